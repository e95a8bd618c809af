//! Deliberate bugs, which show that the soak detects them.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::plan::{Broken, LEASE};
use crate::witness::{Claim, Desk, micros, now};

/// The leak depends on time, not on rounds, so it shows on a slow machine as well as on a fast one.
const LEAK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct Kept {
    last: Option<Instant>,
    files: Vec<File>,
    memory: Vec<Vec<u8>>,
}

#[derive(Debug)]
pub(crate) struct Bad {
    what: Option<Broken>,
    rounds: AtomicU64,
    kept: Mutex<Kept>,
}

impl Bad {
    pub(crate) fn new(what: Option<Broken>) -> Self {
        Self {
            what,
            rounds: AtomicU64::new(0),
            kept: Mutex::default(),
        }
    }

    /// Sometimes claims a lock that this process does not hold.
    pub(crate) async fn enter(&self, desk: &Desk, name: &str, fast: bool) -> Result<()> {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed);
        if self.what != Some(Broken::Enters) || !fast || !round.is_multiple_of(20) {
            return Ok(());
        }
        let claim = Claim {
            name: name.to_owned(),
            id: format!("nobody:{round}"),
            from: now(),
            until: now() + micros(LEASE),
            token: 0,
        };
        desk.enter(&claim).await?;
        tokio::task::yield_now().await;
        desk.leave(&claim, "given back", Duration::ZERO).await
    }

    /// Sometimes replaces the token by the smallest one.
    pub(crate) fn token(&self, claim: &mut Claim) {
        let now_and_then = self.rounds.load(Ordering::Relaxed).is_multiple_of(20);
        if self.what == Some(Broken::Tokens) && now_and_then {
            claim.token = claim.token.min(1);
        }
    }

    /// Leaks a file, memory or a task.
    pub(crate) fn leak(&self) -> Result<()> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.last.is_some_and(|last| last.elapsed() < LEAK_EVERY) {
            return Ok(());
        }
        kept.last = Some(Instant::now());
        match self.what {
            Some(Broken::Descriptors) => kept.files.push(File::open("/dev/null")?),
            Some(Broken::Memory) => kept.memory.push(vec![1; 256 << 10]),
            Some(Broken::Tasks) => drop(tokio::spawn(std::future::pending::<()>())),
            _ => {}
        }
        Ok(())
    }
}
