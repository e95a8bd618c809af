//! Deletes nodes from the queue: release, withdraw, force-release.

use futures_util::future::try_join_all;
use zookeeper_client as zk;

use crate::error::{ErrorKind, Result};
use crate::snapshot::Snapshot;
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::store::zookeeper::entry::QueueNode;
use crate::store::zookeeper::inspect::HeldNodes;
use crate::store::zookeeper::shared::Shared;
use crate::store::zookeeper::{delay, errors, keys};
use crate::store::{BootInstant, Name, Released, Ticket};

/// Deletes the ticket's node. A ticket that never sent a create costs no round trip.
pub(crate) async fn leave(shared: &Shared, ticket: &Ticket, withdrawn: bool) -> Result<Released> {
    let now = shared.timers.now();
    let Some(left) = shared.registry.leave(&ticket.owner, now, withdrawn) else {
        return Ok(Released::NotHeld);
    };
    let deadline = shared.connection.deadline();
    let session = left.connection.session(deadline).await?;
    let parent = shared.path(&ticket.name);
    let marked = match left.node.as_ref().filter(|_| left.marked) {
        Some(node) => delay::release(shared, &session, &ticket.name, node, deadline).await?,
        None => None,
    };
    let removed = match (marked, &left.node) {
        (Some(removed), _) => removed,
        (None, Some(QueueNode { name, .. })) => {
            remove(shared, &session, &parent, name, deadline).await?
        }
        (None, None) => sweep(shared, &session, &parent, ticket, deadline).await?,
    };
    // We forget the ticket only after the delete is confirmed. Otherwise a repeated release would find nothing to
    // delete.
    shared.registry.gone(&ticket.owner, left.create);
    Ok(if removed && left.granted {
        Released::Freed
    } else {
        Released::NotHeld
    })
}

/// Deletes the nodes of a ticket by its prefix, because their names are unknown. A create that was sent earlier has
/// been executed before this list.
async fn sweep(
    shared: &Shared,
    session: &ZooKeeperSession,
    parent: &str,
    ticket: &Ticket,
    deadline: BootInstant,
) -> Result<bool> {
    let prefix = keys::prefix(ticket);
    let nodes = shared
        .queues
        .read(session, parent, deadline)
        .await?
        .unwrap_or_default();
    let mut any = false;
    for name in nodes.iter().filter(|node| node.starts_with(&prefix)) {
        any |= remove(shared, session, parent, name, deadline).await?;
    }
    Ok(any)
}

/// False: the node did not exist.
async fn remove(
    shared: &Shared,
    session: &ZooKeeperSession,
    parent: &str,
    name: &str,
    deadline: BootInstant,
) -> Result<bool> {
    let path = format!("{parent}/{name}");
    let answer = shared
        .timers
        .until(deadline, session.client.delete(&path, None))
        .await;
    match answer.ok_or_else(|| errors::late(ErrorKind::OutcomeUnknown))? {
        Ok(()) => Ok(true),
        Err(zk::Error::NoNode) => Ok(false),
        Err(error) => Err(errors::unwritten(error)),
    }
}

/// Deletes the nodes that hold the lock, also those of other clients, and the delay node. False: there was nothing to
/// delete. `seen`: only if they are the nodes of its holders.
pub(crate) async fn force(shared: &Shared, name: &Name, seen: Option<&Snapshot>) -> Result<bool> {
    let deadline = shared.connection.deadline();
    let session = shared.connection.session(deadline).await?;
    if let Some(seen) = seen {
        return force_if(shared, &session, name, seen, deadline).await;
    }
    let parent = shared.path(name);
    let (nodes, mark) = shared.queue(&session, name, deadline).await?;
    let queue = keys::in_order(nodes);
    if mark.is_some() {
        delay::remove(shared, &session, name, deadline).await?;
    }
    let holders = keys::holders(&queue);
    let Some(first) = holders.first() else {
        return Ok(mark.is_some());
    };
    if let Some(mark) = mark {
        let path = format!("{parent}/{first}");
        let stat = session.client.check_stat(&path);
        let stat = shared.timers.until(deadline, stat).await;
        let stat = stat.ok_or_else(|| errors::late(ErrorKind::Unavailable))?;
        let stat = stat.map_err(errors::unread)?;
        // A delay was running, so these nodes did not hold the lock yet. They keep their place.
        if stat.is_none_or(|stat| stat.czxid != mark.generation) {
            return Ok(true);
        }
    }
    // A holder that goes meanwhile counts as freed. We must not delete the node of the next holder.
    let removed = holders
        .iter()
        .map(|node| remove(shared, &session, &parent, node, deadline));
    try_join_all(removed).await?;
    Ok(true)
}

/// Deletes the nodes of these holders if nobody else holds the lock. The name of a node is never used again, so a node
/// that enters after the look is not touched.
async fn force_if(
    shared: &Shared,
    session: &ZooKeeperSession,
    name: &Name,
    seen: &Snapshot,
    deadline: BootInstant,
) -> Result<bool> {
    let parent = shared.path(name);
    let (nodes, mark) = shared.queue(session, name, deadline).await?;
    let queue = keys::in_order(nodes);
    let held = HeldNodes::read(shared, session, &parent, &queue, mark.as_ref(), deadline).await?;
    let token = held.nodes.iter().map(|(node, _)| node.zxid.unsigned_abs());
    let mut owners = held.nodes.iter().map(|(_, holder)| &*holder.owner);
    if !seen.is_of(&mut owners, token.max()) {
        return Ok(false);
    }
    let mut any = false;
    for (node, _) in &held.nodes {
        // A forced release ends the lock-delay of this hold too.
        let marked = match &mark {
            Some(mark) if mark.generation == node.zxid => {
                delay::release(shared, session, name, node, deadline).await?
            }
            _ => None,
        };
        any |= match marked {
            Some(removed) => removed,
            None => remove(shared, session, &parent, &node.name, deadline).await?,
        };
    }
    Ok(any)
}
