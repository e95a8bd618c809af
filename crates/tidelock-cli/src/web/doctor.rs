//! What `tidelock doctor` finds, for the page.

use std::sync::Arc;
use std::time::Duration;

use tidelock::{Client, Escaped, Finding, Severity};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::web::view::{Row, Shows, Table, cell, key};

/// Findings are not asked for again in this time, whoever loads the page: on Redis the doctor writes.
const KEPT: Duration = Duration::from_secs(60);

/// Bounds how long the page waits for the findings.
const PATIENCE: Duration = Duration::from_secs(20);

/// The findings, or why there are none.
pub(super) type Found = Result<Arc<[Finding]>, Arc<str>>;

/// Asks the store, for all who load the page.
#[derive(Debug)]
pub(super) struct Doctor {
    client: Client,
    last: Arc<Mutex<Option<(Instant, Found)>>>,
}

impl Doctor {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            last: Arc::default(),
        }
    }

    /// The findings of the last minute.
    pub(super) async fn ask(&self) -> Found {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some((at, found)) = &*last
            && at.elapsed() < KEPT
        {
            return found.clone();
        }
        let client = self.client.clone();
        // A task of its own: a browser that leaves would end this one before the findings are kept, so a page that is
        // loaded and left again and again would ask the store each time.
        let asked = tokio::spawn(async move {
            let found = match timeout(PATIENCE, client.diagnose()).await {
                Ok(Ok(found)) => Ok(found.into()),
                Ok(Err(error)) => Err(error.to_string().into()),
                Err(_) => Err("it has not answered for twenty seconds".into()),
            };
            last.insert((Instant::now(), found)).1.clone()
        });
        let failed = |failed: tokio::task::JoinError| Err(failed.to_string().into());
        asked.await.unwrap_or_else(failed)
    }
}

/// What stands on the page of the doctor.
pub(super) fn shows(found: &Found) -> Shows {
    let (facts, rows) = match found {
        Ok(found) => (Vec::new(), found.iter().map(finding_row).collect()),
        Err(why) => (vec![("the store", Escaped(why).to_string())], Vec::new()),
    };
    Shows {
        heading: "Can this store keep its promises?".to_owned(),
        facts,
        tables: vec![Table {
            id: "findings",
            caption: "What tidelock doctor finds; it is asked at most once a minute",
            columns: vec!["severity", "subject", "found", "meaning", "advice"],
            numbers: 5,
            rows,
            empty: "it has not answered",
        }],
    }
}

fn finding_row(finding: &Finding) -> Row {
    let (severity, state) = match finding.severity {
        Severity::Good => ("good", ""),
        Severity::Advice => ("advice", "contended"),
        _ => ("danger", "gone"),
    };
    Row {
        key: key(&format!("{}: {}", finding.subject, finding.found)),
        state,
        cells: vec![
            cell(severity),
            cell(&finding.subject),
            cell(&finding.found),
            cell(&finding.meaning),
            cell(finding.advice.as_deref().unwrap_or("-")),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_viewer_that_leaves_does_not_let_the_next_one_ask_again() {
        let client = Client::connect("memory:").await.unwrap();
        let doctor = Doctor::new(client.clone());
        let mut first = Box::pin(doctor.ask());
        let asked = futures_util::poll!(&mut first);
        assert!(asked.is_pending(), "{asked:?}");
        drop(first);
        // The next one waits for the findings of the first.
        assert!(doctor.last.try_lock().is_err(), "nobody asks any more");
        let found = doctor.ask().await.unwrap();
        let again = doctor.ask().await.unwrap();
        assert!(Arc::ptr_eq(&found, &again));
        client.close(Duration::ZERO).await;
    }
}
