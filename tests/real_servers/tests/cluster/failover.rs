//! A primary hands over, is killed, or is frozen.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::servers::{Cluster, RedisServer};
use tidelock::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::heard_at;
use real_servers::callers;
use real_servers::{
    History, SOON, boot_time, builder, eventually, hammer, insist, listen, ms, within,
};

/// The limit, counted from the moment the new primary is there, for every client to lock again. It is much shorter than the
/// lease and the response timeout, so that neither of them explains a success.
const BACK: Duration = Duration::from_secs(5);

/// As [`BACK`], for the fastest of the clients: a busy machine may delay some of them, and hardly all. Shorter than the time until
/// a renewal, so that none explains a success.
fn first_back() -> Duration {
    ms(1500)
}

const LEASE: Duration = Duration::from_secs(12);

/// The time within which a release wakes the waiter: a third of the lease.
const WOKEN: Duration = Duration::from_secs(4);

/// The time within which the connections of a closed client end.
const CLOSED: Duration = Duration::from_secs(2);

/// Independent clients, which do not share what they learn of the cluster. All of their locks are on the shard that
/// fails.
struct Crowd {
    cluster: Cluster,
    clients: Vec<Client>,
}

impl Crowd {
    async fn gather(query: &str) -> Result<Self> {
        let cluster = Cluster::start()?;
        let mut clients = Vec::new();
        for _ in 0..4 {
            // The timeout is so long that a client learns of a frozen primary in time only from the other nodes.
            let patient = builder(LEASE).response_timeout(LEASE).connect_within(SOON);
            let client = patient
                .connect(&format!("{}{query}", cluster.url()))
                .await?;
            client.lock("{shop}warm").acquire().await?.release().await?;
            clients.push(client);
        }
        Ok(Self { cluster, clients })
    }

    fn try_all(&self) -> Vec<JoinHandle<Result<Duration>>> {
        let each = self.clients.iter().enumerate().map(|(number, client)| {
            let lock = client.lock(&format!("{{shop}}own {number}"));
            tokio::spawn(async move {
                let guard = insist(lock).await?;
                let begun = boot_time();
                // The key may have been lost in the failover again. The release then returns an error, which does not
                // matter here.
                let _ = guard.release().await;
                Ok(begun)
            })
        });
        each.collect()
    }

    /// Runs `what` on the primary of the locks, and checks that new callers get their locks within [`BACK`], the first of them
    /// within [`first_back`], and that a release wakes the waiter. `kept`: the failover must not lose the hold.
    async fn survives(
        self,
        kept: bool,
        what: impl FnOnce(&Cluster, &RedisServer) -> Result<()>,
    ) -> Result<()> {
        let slot = self.cluster.slot_of("{shop}")?;
        let old = self.cluster.primary_of_slot(slot)?;
        let holder = self.clients[0].lock("{shop}stock").acquire().await?;
        let told = listen(&holder);
        let lock = self.clients[1].lock("{shop}stock");
        let waiter = tokio::spawn(async move {
            let guard = insist(lock).await?;
            anyhow::Ok((guard, boot_time()))
        });
        heard_at(old, "{shop}stock", SOON)?;
        what(&self.cluster, old)?;
        let trying = self.try_all();
        let new = self.cluster.await_primary_other_than(slot, old, SOON)?;
        let there = boot_time();
        let mut first = Duration::MAX;
        for one in trying {
            let begun = within(SOON, "a lock after the failover", one).await???;
            ensure!(
                begun <= there + BACK,
                "{:?} after the new primary was there",
                begun - there
            );
            first = first.min(begun);
        }
        ensure!(
            first <= there + first_back(),
            "the first {:?} after the new primary was there",
            first - there
        );
        if kept {
            heard_at(new, "{shop}stock", WOKEN)?;
            ensure!(holder.is_held() && told.is_quiet(), "nothing was lost");
        }
        let released = holder.release().await;
        ensure!(!kept || released.is_ok(), "{released:?}");
        // No message tells of a hold that was lost, and its lease may go on for a while.
        let limit = if released.is_ok() { WOKEN } else { BACK };
        let since = boot_time();
        let (guard, begun) = within(SOON, "the waiter is woken", waiter).await???;
        ensure!(begun <= since + limit, "woken {:?} late", begun - since);
        guard.release().await?;
        for client in &self.clients {
            client.close(Duration::ZERO).await;
        }
        for node in self.cluster.nodes() {
            if node.port() != old.port() {
                eventually(CLOSED, "no connection is left", || Ok(callers(node)? == 0))?;
            }
        }
        Ok(())
    }
}

fn hand_over(cluster: &Cluster, old: &RedisServer) -> Result<()> {
    let order = ["CLUSTER", "FAILOVER"];
    cluster.replica_of(old)?.admin(&order).map(drop)
}

/// T34, planned. Nothing is lost, and a waiter hears of the release at the new primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t34_a_planned_failover_of_a_shard_loses_nothing() -> Result<()> {
    let crowd = Crowd::gather("").await?;
    crowd.survives(true, hand_over).await
}

/// T34, planned, with plain messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t34_a_planned_failover_with_plain_messages_loses_nothing() -> Result<()> {
    let crowd = Crowd::gather("?sharded_pubsub=off").await?;
    crowd.survives(true, hand_over).await
}

/// T34. The primary is killed. All clients can lock again soon after its replica has taken over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t34_a_killed_primary_of_a_shard_is_followed() -> Result<()> {
    let crowd = Crowd::gather("").await?;
    crowd.survives(false, |_, old| old.kill()).await
}

/// T34, with a frozen primary that keeps its connections open: only the other nodes can report the failover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t34_a_frozen_primary_of_a_shard_is_left() -> Result<()> {
    let crowd = Crowd::gather("").await?;
    crowd.survives(false, |_, old| old.freeze()).await
}

/// T34, planned, on one shard after another under load. A planned failover loses nothing: there are never two holders
/// at once, tokens only grow, and no wait times out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t34_planned_failovers_of_all_shards_harm_nobody() -> Result<()> {
    let crowd = Crowd::gather("").await?;
    let (stop, stopped) = watch::channel(false);
    let mut shards = Vec::new();
    for primary in crowd.cluster.primaries()? {
        let mut names = (0..).map(|number| format!("stock {number}"));
        let name = loop {
            let name = names.next().unwrap_or_default();
            if crowd.cluster.node_of(&name)?.port() == primary.port() {
                break name;
            }
        };
        let history = History::default();
        let each = crowd.clients.iter().map(|client| {
            let lock = client.lock(&name).fenced();
            tokio::spawn(hammer(lock, history.clone(), stopped.clone()))
        });
        let each: Vec<_> = each.collect();
        shards.push((crowd.cluster.slot_of(&name)?, history, each));
    }
    let mut fastest = Duration::MAX;
    for (slot, history, _) in &shards {
        crowd.cluster.failover(*slot)?;
        let so_far = history.len();
        let took = eventually(BACK, "it goes on", || Ok(history.len() > so_far + 4))?;
        fastest = fastest.min(took);
    }
    ensure!(fastest <= first_back(), "each takes {fastest:?} or longer");
    stop.send(true)?;
    for (_, history, each) in shards {
        for one in each {
            let toll = one.await??;
            ensure!(toll.failed_acquires == 0, "{toll:?}");
        }
        ensure!(history.check()? > 20, "{}", history.len());
    }
    Ok(())
}
