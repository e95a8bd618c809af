//! What `tidelock doctor` finds, for the page.

use std::sync::Arc;
use std::time::Duration;

use tidelock::{Client, Finding};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

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
