//! Read-only requests: inspect, check, list.

use futures_util::future::try_join_all;

use crate::error::{ErrorKind, Result};
use crate::snapshot::{Holder, Snapshot};
use crate::store::glob::matches_glob;
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::store::zookeeper::delay_node::DelayMark;
use crate::store::zookeeper::entry::QueueNode;
use crate::store::zookeeper::keys;
use crate::store::zookeeper::semaphores::{self, at_the_least};
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
        let (mut nodes, mark) = shared.queue(&session, name, deadline).await?;
        if is_semaphore(&nodes, mark.as_ref()) {
            return semaphores::look(shared, &session, name, deadline).await;
        }
        nodes.retain(|node| !keys::is_maker(node));
        let queue = keys::in_order(nodes);
        let held = HeldNodes::read(shared, &session, &parent, &queue, mark.as_ref(), deadline);
        let HeldNodes { nodes, barred } = held.await?;
        let mut snapshot = Snapshot::free(name.as_str());
        let mut ends = Vec::new();
        for (node, holder) in nodes {
            let token = FencingToken::new(node.zxid.unsigned_abs());
            snapshot.token = snapshot.token.max(Some(token));
            snapshot.holders.push(holder);
            ends.push(shared.registry.ends(&parent, &node.name));
        }
        snapshot.waiters = Some((queue.len() - keys::holders(&queue).len() + barred) as u64);
        if snapshot.is_locked() {
            snapshot.expires_in = at_the_least(&ends, shared.timers.now());
        }
        // If every holder went between the two reads, we read again.
        if snapshot.is_locked() || barred > 0 || queue.is_empty() {
            return Ok(snapshot);
        }
    }
}

/// Whether these nodes of a name are no lock. It may have claims without a number: waiters for one, or holders whose number
/// somebody deleted.
pub(crate) fn is_semaphore(nodes: &[String], mark: Option<&DelayMark>) -> bool {
    let is_lock = mark.is_some() || nodes.iter().any(|node| keys::makes_a_lock(node));
    nodes.iter().any(|node| node == keys::NUMBER) || !is_lock
}

/// The nodes of a queue that hold the lock.
pub(crate) struct HeldNodes {
    pub(crate) nodes: Vec<(QueueNode, Holder)>,
    /// How many more would hold it if no lock-delay were running.
    pub(crate) barred: usize,
}

impl HeldNodes {
    /// Reads them. Nodes that have gone since the queue was read are left out.
    pub(crate) async fn read(
        shared: &Shared,
        session: &ZooKeeperSession,
        parent: &str,
        queue: &[String],
        mark: Option<&DelayMark>,
        deadline: BootInstant,
    ) -> Result<Self> {
        let first = keys::holders(queue).iter();
        let asked: Vec<_> = first
            .map(|node| (node, session.client.get_data(&format!("{parent}/{node}"))))
            .collect();
        let (mut nodes, mut barred) = (Vec::new(), 0);
        for (node, asked) in asked {
            let data = shared.timers.until(deadline, asked).await;
            let data = data.ok_or_else(|| errors::late(ErrorKind::Unavailable))?;
            let Some((data, stat)) = errors::unless_missing(data)? else {
                continue;
            };
            let holder = note::read(node, &data);
            let delayed = mark.is_some_and(|mark| mark.generation != stat.czxid);
            // A delay is running, and our own nodes wait for its end. Nodes of other clients know no delays: they
            // hold the lock.
            if delayed && holder.owner != *node {
                barred += 1;
                continue;
            }
            let (name, zxid) = (node.clone(), stat.czxid);
            nodes.push((QueueNode { name, zxid }, holder));
        }
        Ok(Self { nodes, barred })
    }
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

/// One page of the names under the base path whose queue is not empty. What the user may not read is left out.
pub(crate) async fn list(shared: &Shared, pattern: &str, after: Option<&str>) -> Result<Page> {
    let deadline = shared.connection.deadline();
    let session = shared.connection.session(deadline).await?;
    let base = &shared.connection.address().base;
    let all = shared.queues.read(&session, base, deadline).await?;
    let (segments, next) = segments_after(all.unwrap_or_default(), after);
    let asked: Vec<_> = segments
        .iter()
        .filter_map(|segment| Some((keys::name_of(segment)?, segment)))
        .filter(|(name, _)| matches_glob(pattern, name))
        .map(|(name, segment)| {
            let path = shared.connection.address().path(segment);
            (name, session.client.list_children(&path), path)
        })
        .collect();
    let (mut names, mut counted) = (Vec::new(), Vec::new());
    for (name, children, _) in asked {
        let children = shared.timers.until(deadline, children).await;
        let children = children.ok_or_else(|| errors::late(ErrorKind::Unavailable))?;
        let nodes = match errors::unless_missing(children) {
            // The name belongs to other users alone. That hides no name of ours.
            Err(error) if errors::is_forbidden(&error) => continue,
            nodes => nodes?.unwrap_or_default(),
        };
        if nodes.iter().any(|node| node == keys::NUMBER) {
            // Not a name: another program has made a node with the name of a number.
            counted.extend(Name::new(name.as_str()));
        } else if keys::in_order(nodes)
            .iter()
            .any(|node| !keys::is_maker(node))
        {
            names.push(name);
        }
    }
    // One after the other, they would take two round trips each.
    let held = counted.iter().map(async |name| {
        let is_held = semaphores::is_held(shared, &session, name, deadline);
        let is_held = match is_held.await {
            Err(error) if errors::is_forbidden(&error) => false,
            is_held => is_held?,
        };
        Ok(is_held.then(|| name.as_str().to_owned()))
    });
    names.extend(try_join_all(held).await?.into_iter().flatten());
    names.sort_unstable();
    Ok(Page { names, next })
}

/// The nodes of the page after that node, and the cursor of the next page: the last node of this one.
fn segments_after(mut all: Vec<String>, after: Option<&str>) -> (Vec<String>, Option<String>) {
    all.retain(|segment| after.is_none_or(|after| segment.as_str() > after));
    all.sort_unstable();
    let full = all.len() > PAGE_SIZE;
    all.truncate(PAGE_SIZE);
    let next = all.last().filter(|_| full).cloned();
    (all, next)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_name_is_a_semaphore_by_its_number_or_if_nothing_makes_it_a_lock() {
        let delay = DelayMark {
            generation: 7,
            delay: Duration::from_secs(1),
            seen: false,
            version: 0,
            at: 0,
        };
        let (lock, number) = ("_c_x-lock-0000000001", keys::NUMBER);
        for (nodes, mark, expected) in [
            (&[][..], None, true),
            (&[][..], Some(&delay), false),
            (&[lock][..], None, false),
            (&["other"][..], None, true),
            (&[number][..], Some(&delay), true),
            (&[lock, number][..], None, true),
        ] {
            let owned: Vec<String> = nodes.iter().map(|&node| node.to_owned()).collect();
            assert_eq!(is_semaphore(&owned, mark), expected, "{nodes:?}");
        }
    }

    #[test]
    fn the_last_page_has_no_successor_even_if_it_is_full() {
        let all: Vec<String> = (0..PAGE_SIZE).map(|at| format!("{at:04}")).collect();
        let (page, next) = segments_after(all, None);
        assert_eq!((page.len(), next), (PAGE_SIZE, None));
    }

    #[test]
    fn a_node_that_goes_between_two_pages_hides_no_other() {
        let mut all: Vec<String> = (0..=PAGE_SIZE).map(|at| format!("{at:04}")).collect();
        let (first, next) = segments_after(all.clone(), None);
        assert_eq!(first.len(), PAGE_SIZE);
        all.remove(0);
        let (second, last) = segments_after(all, next.as_deref());
        assert_eq!(second, [format!("{PAGE_SIZE:04}")]);
        assert_eq!(last, None);
    }
}
