//! Takes a lock or permits from their holders, for operators.

use futures_util::future::try_join_all;

use crate::error::{ErrorKind, Result};
use crate::snapshot::Snapshot;
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::store::zookeeper::delay_node::DelayMark;
use crate::store::zookeeper::inspect::{HeldNodes, is_semaphore};
use crate::store::zookeeper::release::remove;
use crate::store::zookeeper::shared::Shared;
use crate::store::zookeeper::{delay, errors, keys, semaphores};
use crate::store::{BootInstant, Name};

/// Deletes the nodes that hold the lock, also those of other clients, and the delay node. False: there was nothing to
/// delete. `seen`: only if they are the nodes of its holders.
pub(crate) async fn force(shared: &Shared, name: &Name, seen: Option<&Snapshot>) -> Result<bool> {
    let deadline = shared.connection.deadline();
    let session = shared.connection.session(deadline).await?;
    let parent = shared.path(name);
    let (nodes, mark) = shared.queue(&session, name, deadline).await?;
    if is_semaphore(&nodes, mark.as_ref()) {
        return semaphores::force(shared, &session, name, seen, deadline).await;
    }
    let mut queue = keys::in_order(nodes);
    // It holds nothing: see `permit_counter.rs`.
    queue.retain(|node| !keys::is_maker(node));
    if let Some(seen) = seen {
        let seen = (seen, &*queue, mark.as_ref());
        return force_if(shared, &session, name, seen, deadline).await;
    }
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
    (seen, queue, mark): (&Snapshot, &[String], Option<&DelayMark>),
    deadline: BootInstant,
) -> Result<bool> {
    let parent = shared.path(name);
    let held = HeldNodes::read(shared, session, &parent, queue, mark, deadline).await?;
    let token = held.nodes.iter().map(|(node, _)| node.zxid.unsigned_abs());
    let mut owners = held.nodes.iter().map(|(_, holder)| &*holder.owner);
    if !seen.is_of(&mut owners, token.max()) {
        return Ok(false);
    }
    let mut any = false;
    for (node, _) in &held.nodes {
        // A forced release ends the lock-delay of this hold too.
        let marked = match mark {
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
