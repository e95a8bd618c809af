//! Releases the lock of a command and closes its client, in the time of one answer of the store.

use std::pin::pin;
use std::time::Duration;

use tidelock::{Client, Guard};

/// Releases and closes at the same time. Closing waits for one answer of the store, and we wait for no second one: the
/// work has ended, and somebody waits for the exit code. `None`: the store has not confirmed the release in that time.
pub(crate) async fn release_and_close(
    client: &Client,
    guard: Guard,
) -> Option<tidelock::Result<()>> {
    let mut closed = pin!(client.close(Duration::ZERO));
    let mut release = guard.release();
    let released = tokio::select! {
        biased; // the release begins before the client is closed
        released = &mut release => released,
        _ = &mut closed => return None,
    };
    closed.await;
    Some(released)
}

/// The message about a release that is not confirmed.
pub(crate) fn unconfirmed(name: &str) -> String {
    format!(
        "{name}: the store has not confirmed the release; the lock may stay until its lease ends"
    )
}
