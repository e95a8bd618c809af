//! Clients that hold locks through failovers, and others that hand some on from one to the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use proofs::boot_time;
use tidelock::{AcquireOptions, Client, Guard, ReplicaAck};
use tokio::task::JoinSet;

use crate::ledger::{Ledger, Period};
use crate::servers::Servers;

/// Long enough to outlast a failover, as the default is in production.
pub(crate) const LEASE: Duration = Duration::from_secs(12);

const CLIENTS: usize = 3;

/// Locks that go from hand to hand.
const SHARED: usize = 2;

/// Locks each client keeps all the time.
const KEPT: usize = 3;

/// The name of a lock that is kept, one after the other and from the beginning again.
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

    /// Every client holds all of its own locks: those it has lost it takes anew.
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

    /// Everything that is held has been renewed after that time: no policy survives a second failover before. With `All`
    /// everything is held, unless the last failover took longer than a lease can stand.
    pub(crate) async fn renewed_since(&self, time: Duration, outlasted: bool) -> Result<()> {
        let end = boot_time() + LEASE;
        for (name, guard) in &self.kept {
            // The drift is a hundredth of it.
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

    /// Locks are handed on again.
    pub(crate) async fn moves_on(&self, before: usize) -> Result<()> {
        let end = boot_time() + LEASE * 2;
        while self.ledger.len() < before + CLIENTS * SHARED * 2 {
            ensure!(boot_time() < end, "no lock was handed on");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// What the new primary has beside what the holders believe. Was there none for longer than a lease can stand, holds
    /// may be over, but not in silence.
    pub(crate) async fn check(&self, servers: &Servers, outlasted: bool) -> Result<()> {
        // Told at the next renewal, and there is one in every third of a lease.
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

/// Takes a lock, holds it for a moment, gives it back, and again.
async fn trade(
    client: Client,
    name: usize,
    ledger: Arc<Ledger>,
    stop: Arc<AtomicBool>,
) -> Result<()> {
    let lock = client.lock(&format!("shared {name}"));
    while !stop.load(Ordering::SeqCst) {
        // What an outage costs is waited out; an error says only that it was longer than one lease.
        let patient = AcquireOptions::new().wait(LEASE * 3);
        let Ok(guard) = lock.acquire_with(patient).await else {
            continue;
        };
        let begun = boot_time();
        let moment = Duration::from_millis(fastrand::u64(5..200));
        // Whichever comes first, its end or its loss.
        let _ = tokio::time::timeout(moment, guard.lost()).await;
        let ended = boot_time();
        let _ = guard.release().await;
        ledger.note(Period { name, begun, ended });
    }
    Ok(())
}
