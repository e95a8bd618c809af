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
    last: Mutex<Option<(Instant, Found)>>,
}

impl Doctor {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            last: Mutex::default(),
        }
    }

    /// The findings of the last minute.
    pub(super) async fn ask(&self) -> Found {
        let mut last = self.last.lock().await;
        if let Some((at, found)) = &*last
            && at.elapsed() < KEPT
        {
            return found.clone();
        }
        let found = match timeout(PATIENCE, self.client.diagnose()).await {
            Ok(Ok(found)) => Ok(found.into()),
            Ok(Err(error)) => Err(error.to_string().into()),
            Err(_) => Err("it has not answered for twenty seconds".into()),
        };
        last.insert((Instant::now(), found)).1.clone()
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
