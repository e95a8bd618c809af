//! `sqlite:PATH` with real processes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper that fails ends the test"
)]

mod basics;
mod child;
mod conformance;
mod counters;
mod every_await;
mod examined;
mod fair;
mod faults;
mod names;
mod permits;
mod processes;
mod removed;
mod sides;
#[cfg(feature = "testing")]
mod simulated;
mod waiting;

use std::path::Path;
use std::time::Duration;

use tidelock::Client;

/// A client with a short lease.
pub(crate) async fn client(file: &Path, lease: Duration) -> Client {
    Client::builder()
        .lease(lease)
        .connect(&url(file))
        .await
        .unwrap()
}

pub(crate) fn url(file: &Path) -> String {
    format!("sqlite:{}", file.display())
}
