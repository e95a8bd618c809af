//! Deletes the node of a ticket: release, withdraw.

use std::sync::atomic::Ordering;

use zookeeper_client as zk;

use crate::error::{ErrorKind, Result};
use crate::store::errors::unanswered;
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::store::zookeeper::entry::{NodePlace, QueueNode};
use crate::store::zookeeper::shared::Shared;
use crate::store::zookeeper::{delay, errors};
use crate::store::{BootInstant, Released, Ticket};

/// Deletes the ticket's node, within the response timeout. A ticket that never sent a create costs no round trip.
pub(crate) async fn leave(shared: &Shared, ticket: &Ticket, withdrawn: bool) -> Result<Released> {
    let deadline = shared.connection.deadline();
    leave_by(shared, ticket, withdrawn, deadline).await
}

/// As [`leave`], with the deadline of an attempt that takes its node back.
pub(crate) async fn leave_by(
    shared: &Shared,
    ticket: &Ticket,
    withdrawn: bool,
    deadline: BootInstant,
) -> Result<Released> {
    let now = shared.timers.now();
    let Some(left) = shared.registry.leave(ticket, now, withdrawn) else {
        // A close has forgotten the node, and the server may not have deleted it. The release is repeated if its first request
        // had no reply, and then "not held" would be a success.
        if shared.closed.load(Ordering::SeqCst) {
            return Err(unanswered("the client is closing"));
        }
        return Ok(Released::NotHeld);
    };
    let session = left.connection.session(deadline).await?;
    let parent = &left.place.parent;
    let marked = match left.node.as_ref().filter(|_| left.marked) {
        Some(node) => delay::release(shared, &session, &ticket.name, node, deadline).await?,
        None => None,
    };
    let removed = match (marked, &left.node) {
        (Some(removed), _) => removed,
        (None, Some(QueueNode { name, .. })) => {
            remove(shared, &session, parent, name, deadline).await?
        }
        (None, None) => sweep(shared, &session, &left.place, deadline).await?,
    };
    // We forget the ticket only after the delete is confirmed. Otherwise a repeated release would find nothing to
    // delete.
    shared.registry.gone(ticket, left.create);
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
    NodePlace { parent, prefix }: &NodePlace,
    deadline: BootInstant,
) -> Result<bool> {
    let nodes = shared
        .queues
        .read(session, parent, deadline)
        .await?
        .unwrap_or_default();
    let mut any = false;
    for name in nodes.iter().filter(|node| node.starts_with(prefix)) {
        any |= remove(shared, session, parent, name, deadline).await?;
    }
    Ok(any)
}

/// False: the node did not exist.
pub(crate) async fn remove(
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
