//! Takes a lock or permits from their holders, for operators.

use futures_util::future::try_join_all;

use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::store::errors::after_a_change;
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::store::zookeeper::delay_node::DelayMark;
use crate::store::zookeeper::inspect::{HeldNodes, is_semaphore};
use crate::store::zookeeper::release::remove;
use crate::store::zookeeper::shared::Shared;
use crate::store::zookeeper::{delay, keys, semaphores};
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
    // We look before we remove the delay. Otherwise a look without an answer would say that nothing was changed.
    let held = HeldNodes::read(shared, &session, &parent, &queue, mark.as_ref(), deadline);
    let HeldNodes { nodes, barred } = held.await?;
    if let Some(mark) = &mark {
        // The nodes of a hold go together. Otherwise its holder could release it first, and we would delete the delay node of
        // the next one.
        let own = nodes.iter().find(|(node, _)| node.zxid == mark.generation);
        let both = match own {
            Some((node, _)) => delay::release(shared, &session, name, node, deadline).await?,
            None => None,
        };
        if both != Some(true) {
            delay::remove(shared, &session, name, mark.generation, deadline).await?;
        }
    }
    // A holder that goes meanwhile counts as freed. We must not delete the node of the next holder.
    let removed = nodes
        .iter()
        .map(|(node, _)| remove(shared, &session, &parent, &node.name, deadline));
    let changed = mark.is_some() || nodes.len() > 1;
    let removed = try_join_all(removed).await;
    removed.map_err(|error| after_a_change(changed, error))?;
    // Those that wait for a delay do not hold the lock yet. They keep their place.
    let holds = keys::holders(&queue).len() > barred;
    Ok(holds || mark.is_some())
}

/// Deletes the nodes of these holders if nobody else holds the lock. Only a late number gives a node the
/// name of an earlier one, and such a node holds nothing, so a holder that enters after the look is not touched.
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
        let removed = async {
            // A forced release ends the lock-delay of this hold too.
            if mark.is_some_and(|mark| mark.generation == node.zxid)
                && let Some(removed) = delay::release(shared, session, name, node, deadline).await?
            {
                return Ok(removed);
            }
            remove(shared, session, &parent, &node.name, deadline).await
        };
        any |= removed.await.map_err(|error| after_a_change(any, error))?;
    }
    Ok(any)
}
