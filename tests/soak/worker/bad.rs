//! Deliberate bugs, which show that the soak detects them.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use tidelock::{Client, Latch};

use crate::World;
use crate::record::{Kind, Mode, What, now};

/// The leak depends on time, not on rounds, so it shows on a slow machine as well as on a fast one.
const LEAK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Broken {
    /// Sometimes enters without the lock
    Enters,
    /// Sometimes reports an old token
    Tokens,
    /// Leaks open files
    Descriptors,
    /// Leaks clients with their connections
    Connections,
    /// Leaks keys in the store
    Keys,
    /// Sometimes opens a latch that others still count down
    Latch,
}

#[derive(Debug, Default)]
struct Kept {
    last: Option<Instant>,
    files: Vec<File>,
    clients: Vec<Client>,
    keys: u64,
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
    pub(crate) async fn enter(&self, world: &World, kind: Kind, number: u16) -> Result<()> {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed);
        if self.what != Some(Broken::Enters) || !round.is_multiple_of(5) {
            return Ok(());
        }
        let claim = world.bench.claim(kind, number, Mode::Alone, 1);
        claim.enter_for(now(), world.lease)?;
        // The claim stands for its whole lease. With a shorter one, a run on a slow machine could end before another
        // process had entered while a claim stood.
        tokio::time::sleep(world.lease).await;
        claim.say(What::Leaves)
    }

    /// Sometimes opens a latch too early.
    pub(crate) async fn open(&self, latch: &Latch) -> Result<()> {
        if self.what != Some(Broken::Latch) {
            return Ok(());
        }
        let round = self.rounds.fetch_add(1, Ordering::Relaxed);
        if round.is_multiple_of(5) {
            latch.delete().await?;
        }
        Ok(())
    }

    /// Sometimes replaces the token by the smallest one.
    pub(crate) fn token(&self, token: u64) -> u64 {
        let now_and_then = self.rounds.load(Ordering::Relaxed).is_multiple_of(20);
        if self.what == Some(Broken::Tokens) && now_and_then {
            token.min(1)
        } else {
            token
        }
    }

    /// Leaks a file, a client or a key.
    pub(crate) async fn leak(&self, clients: &[Client], urls: &[String]) -> Result<()> {
        let Some(what) = self.what else {
            return Ok(());
        };
        let number = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.last.is_some_and(|last| last.elapsed() < LEAK_EVERY) {
                return Ok(());
            }
            kept.last = Some(Instant::now());
            kept.keys += 1;
            if what == Broken::Descriptors {
                kept.files.push(File::open("/dev/null")?);
            }
            kept.keys
        };
        match what {
            Broken::Connections => {
                let url = urls.first().context("no store")?;
                let client = Client::connect(url).await?;
                let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.clients.push(client);
            }
            Broken::Keys => {
                let client = clients.first().context("no store")?;
                // The counter of its tokens stays.
                let name = format!("leak-{number}");
                client
                    .lock(&name)
                    .fenced()
                    .acquire()
                    .await?
                    .release()
                    .await?;
            }
            _ => {}
        }
        Ok(())
    }
}
