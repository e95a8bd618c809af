use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Servers announce none of what is awaited here.
const PAUSE: Duration = Duration::from_millis(15);

/// Asks until there is an answer.
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
