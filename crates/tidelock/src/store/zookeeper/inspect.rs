//! Read-only requests: inspect, check, list.

use std::time::Duration;

use crate::error::{ErrorKind, Result};
use crate::snapshot::Snapshot;
use crate::store::glob::matches_glob;
use crate::store::zookeeper::keys;
use crate::store::zookeeper::shared::Shared;
use crate::store::zookeeper::{errors, note};
use crate::store::{BootInstant, Name, Page};
use crate::types::FencingToken;

/// Bounds how many names one page of a list reads.
const PAGE_SIZE: usize = 500;

pub(crate) async fn inspect(shared: &Shared, name: &Name) -> Result<Snapshot> {
    let deadline = shared.connection.deadline();
    let session = shared.connection.session(deadline).await?;
    let parent = shared.path(name);
    loop {
        let (nodes, mark) = shared.queue(&session, name, deadline).await?;
        let queue = keys::in_order(nodes);
        let nodes = keys::holders(&queue);
        let asked: Vec<_> = nodes
            .iter()
            .map(|node| session.client.get_data(&format!("{parent}/{node}")))
            .collect();
        let mut snapshot = Snapshot::free(name.as_str());
        let mut ends = Vec::new();
        let mut barred = 0;
        for (node, asked) in nodes.iter().zip(asked) {
            let data = shared.timers.until(deadline, asked).await;
            let data = data.ok_or_else(|| errors::late(ErrorKind::Unavailable))?;
            let Some((data, stat)) = errors::unless_missing(data)? else {
                continue; // it has just gone
            };
            let holder = note::read(node, &data);
            let delayed = mark
                .as_ref()
                .is_some_and(|mark| mark.generation != stat.czxid);
            // A delay is running, and our own nodes wait for its end. Nodes of other clients know no delays: they
            // hold the lock.
            if delayed && holder.owner != *node {
                barred += 1;
                continue;
            }
            let token = FencingToken::new(stat.czxid.unsigned_abs());
            snapshot.token = snapshot.token.max(Some(token));
            snapshot.holders.push(holder);
            ends.push(shared.registry.ends(&parent, node));
        }
        snapshot.waiters = Some((queue.len() - nodes.len() + barred) as u64);
        if snapshot.is_locked() {
            snapshot.expires_in = at_the_least(&ends, shared.timers.now());
        }
        // If every holder went between the two reads, we read again.
        if snapshot.is_locked() || barred > 0 || queue.is_empty() {
            return Ok(snapshot);
        }
    }
}

/// How long the lock stays held at least, by the ends of its holds. `None`: a holder is another client, and its lease
/// is unknown.
fn at_the_least(ends: &[Option<BootInstant>], now: BootInstant) -> Option<Duration> {
    let mut ends = ends.iter();
    ends.try_fold(Duration::ZERO, |most, ends| {
        Some(most.max((*ends)?.since(now)))
    })
}

/// Whether that transaction created the first node of the queue, after a `sync` with the leader.
pub(crate) async fn verify(shared: &Shared, name: &Name, generation: FencingToken) -> Result<bool> {
    let deadline = shared.connection.deadline();
    let session = shared.connection.session(deadline).await?;
    let parent = shared.path(name);
    loop {
        let nodes = shared.queues.read(&session, &parent, deadline).await?;
        let queue = keys::in_order(nodes.unwrap_or_default());
        let Some(first) = queue.first() else {
            return Ok(false);
        };
        let path = format!("{parent}/{first}");
        let stat = session.client.check_stat(&path);
        let stat = shared.timers.until(deadline, stat).await;
        let stat = stat.ok_or_else(|| errors::late(ErrorKind::Unavailable))?;
        // If the first node has gone meanwhile, we read again: another node may be the first now.
        if let Some(stat) = stat.map_err(errors::unread)? {
            return Ok(stat.czxid.unsigned_abs() == generation.get());
        }
    }
}

/// One page of the names under the base path whose queue is not empty.
pub(crate) async fn list(shared: &Shared, pattern: &str, cursor: u64) -> Result<Page> {
    let deadline = shared.connection.deadline();
    let session = shared.connection.session(deadline).await?;
    let base = &shared.connection.address().base;
    let mut all = shared
        .queues
        .read(&session, base, deadline)
        .await?
        .unwrap_or_default();
    all.sort_unstable();
    let skip = usize::try_from(cursor).unwrap_or(usize::MAX);
    let asked: Vec<_> = all
        .iter()
        .skip(skip)
        .take(PAGE_SIZE)
        .filter_map(|segment| Some((keys::name_of(segment)?, segment)))
        .filter(|(name, _)| matches_glob(pattern, name))
        .map(|(name, segment)| {
            let path = shared.connection.address().path(segment);
            (name, session.client.list_children(&path), path)
        })
        .collect();
    let mut names = Vec::new();
    for (name, children, _) in asked {
        let children = shared.timers.until(deadline, children).await;
        let children = children.ok_or_else(|| errors::late(ErrorKind::Unavailable))?;
        let queue = keys::in_order(errors::unless_missing(children)?.unwrap_or_default());
        if !queue.is_empty() {
            names.push(name);
        }
    }
    let end = skip.saturating_add(PAGE_SIZE);
    let next = (end < all.len()).then_some(end as u64);
    Ok(Page { names, next })
}
