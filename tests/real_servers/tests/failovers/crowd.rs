//! Clients that hold locks through failovers, and tasks that pass shared locks among each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use testkit::process::boot_time;
use tidelock::{AcquireOptions, Client, Guard, ReplicaAck};
use tokio::task::JoinSet;

use crate::ledger::{Ledger, Period};
use crate::servers::Servers;

/// Long enough to survive a failover, as the default is in production.
pub(crate) const LEASE: Duration = Duration::from_secs(12);

const CLIENTS: usize = 3;

/// The number of locks that the tasks pass among each other.
const SHARED: usize = 2;

/// The number of locks that each client holds all the time.
const KEPT: usize = 3;

/// The name of a lock that a client keeps. Larger numbers wrap around.
pub(crate) fn kept(number: usize) -> String {
    let number = number % (CLIENTS * KEPT);
    format!("kept {} {}", number / KEPT, number % KEPT)
}

pub(crate) struct Crowd {
    policy: ReplicaAck,
    clients: Vec<Client>,
    kept: Vec<(String, Guard)>,
    ledger: Arc<Ledger>,
    stop: Arc<AtomicBool>,
    traders: JoinSet<Result<()>>,
}

impl Crowd {
    pub(crate) async fn gather(servers: &Servers, policy: ReplicaAck) -> Result<Self> {
        let mut crowd = Self {
            policy,
            clients: Vec::new(),
            kept: Vec::new(),
            ledger: Arc::default(),
            stop: Arc::default(),
            traders: JoinSet::new(),
        };
        for _ in 0..CLIENTS {
            let client = Client::builder()
                .lease(LEASE)
                .response_timeout(LEASE / 6)
                .acknowledge(policy)
                .connect(&servers.url())
                .await?;
            for name in 0..SHARED {
                let (client, ledger) = (client.clone(), Arc::clone(&crowd.ledger));
                let stop = Arc::clone(&crowd.stop);
                crowd.traders.spawn(trade(client, name, ledger, stop));
            }
            crowd.clients.push(client);
        }
        Ok(crowd)
    }

    /// Makes every client hold all of its own locks: it acquires the lost ones again.
    pub(crate) async fn holds_all(&mut self) -> Result<()> {
        self.kept.retain(|(_, guard)| guard.is_held());
        for (owner, client) in self.clients.iter().enumerate() {
            for number in 0..KEPT {
                let name = kept(owner * KEPT + number);
                if self.kept.iter().all(|(kept, _)| *kept != name) {
                    let guard = client.lock(&name).acquire().await?;
                    self.kept.push((name, guard));
                }
            }
        }
        Ok(())
    }

    /// Waits until every hold has been renewed after `time`: until then no policy survives another failover. With `All`
    /// every hold must still be there if leases outlasted the last failover.
    pub(crate) async fn renewed_since(&self, time: Duration, outlasted: bool) -> Result<()> {
        let end = boot_time() + LEASE;
        for (name, guard) in &self.kept {
            // The drift allowance is a hundredth of the lease, so we accept 49/50.
            while guard.is_held() && boot_time() + guard.valid_for() < time + LEASE * 49 / 50 {
                ensure!(boot_time() < end, "{name} was not renewed");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            if self.policy == ReplicaAck::All && outlasted {
                held(name, guard).await?;
            }
        }
        Ok(())
    }

    pub(crate) fn periods(&self) -> usize {
        self.ledger.len()
    }

    /// Waits until locks change hands again.
    pub(crate) async fn moves_on(&self, before: usize) -> Result<()> {
        let end = boot_time() + LEASE * 2;
        while self.ledger.len() < before + CLIENTS * SHARED * 2 {
            ensure!(boot_time() < end, "no lock was handed on");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Compares the new primary with the beliefs of the holders. If there was no primary for longer than a lease lasts,
    /// a hold may be lost, but its holder must be told.
    pub(crate) async fn check(&self, servers: &Servers, outlasted: bool) -> Result<()> {
        // A loss is told at the next renewal, and one is due every third of a lease.
        let bound = LEASE / 2;
        for (name, guard) in &self.kept {
            let there = || -> Result<bool> {
                let field = guard.owner_id();
                Ok(servers
                    .primary_of(name)?
                    .query::<i64, _>(&["HEXISTS", name, &field])?
                    == 1)
            };
            if self.policy == ReplicaAck::All && outlasted {
                held(name, guard).await?;
                ensure!(there()?, "{name} is believed to be held, and is not there");
            } else if !there()? {
                let told = tokio::time::timeout(bound, guard.lost()).await;
                told.with_context(|| format!("the loss of {name} was not told"))?;
            }
        }
        self.ledger.check(self.policy, bound)
    }

    pub(crate) async fn disperse(mut self) -> Result<()> {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(trader) = self.traders.join_next().await {
            trader??;
        }
        self.kept.clear();
        for client in self.clients {
            client.close(Duration::from_secs(1)).await;
        }
        Ok(())
    }
}

async fn held(name: &str, guard: &Guard) -> Result<()> {
    if !guard.is_held() {
        bail!("{name} was lost: {}", guard.lost().await);
    }
    Ok(())
}

/// Takes a lock, holds it for a moment, releases it, and repeats.
async fn trade(
    client: Client,
    name: usize,
    ledger: Arc<Ledger>,
    stop: Arc<AtomicBool>,
) -> Result<()> {
    let lock = client.lock(&format!("shared {name}"));
    while !stop.load(Ordering::SeqCst) {
        // The acquire waits out outages. An error says only that the outage was longer than one lease.
        let patient = AcquireOptions::new().wait(LEASE * 3);
        let Ok(guard) = lock.acquire_with(patient).await else {
            continue;
        };
        let begun = boot_time();
        let moment = Duration::from_millis(fastrand::u64(5..200));
        // The hold ends after a moment, or with its loss if that comes first.
        let _ = tokio::time::timeout(moment, guard.lost()).await;
        let ended = boot_time();
        let _ = guard.release().await;
        ledger.note(Period { name, begun, ended });
    }
    Ok(())
}
