use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The poll interval: servers send no notification of these events.
const PAUSE: Duration = Duration::from_millis(15);

/// Polls until there is a result.
pub(super) fn until<T>(
    what: &str,
    patience: Duration,
    mut ask: impl FnMut() -> Result<T>,
) -> Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        match ask() {
            Err(error) if Instant::now() > deadline => {
                return Err(error).with_context(|| format!("{what}: not within {patience:?}"));
            }
            Err(_) => thread::sleep(PAUSE),
            done => return done,
        }
    }
}
