//! Makes the number of permits of a semaphore, and changes it.

use std::sync::Arc;

use crate::error::Result;
use crate::store::kinds::is_lock;
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::store::zookeeper::entry::NodePlace;
use crate::store::zookeeper::own_node::OwnNode;
use crate::store::zookeeper::permit_requests::{view, without_epoch};
use crate::store::zookeeper::permit_steps::PermitPaths;
use crate::store::zookeeper::permit_view::SemaphoreNumber;
use crate::store::zookeeper::release::leave;
use crate::store::zookeeper::renew::withdraw;
use crate::store::zookeeper::shared::Shared;
use crate::store::zookeeper::transaction::commit;
use crate::store::zookeeper::{ZooKeeper, delay_node, errors, keys};
use crate::store::{BootInstant, BoxFuture, LockKind, Name, PermitChange, PermitCounter, Ticket};
use crate::types::OwnerMint;

impl PermitCounter for ZooKeeper {
    fn queues(&self) -> bool {
        true
    }

    fn change<'a>(&'a self, name: &'a Name, change: PermitChange) -> BoxFuture<'a, Result<bool>> {
        Box::pin(change_number(&self.0, name, change))
    }
}

/// Repeats the change until the number has not changed between our read and our write.
async fn change_number(shared: &Arc<Shared>, name: &Name, change: PermitChange) -> Result<bool> {
    let deadline = shared.connection.deadline();
    let session = shared.connection.session(deadline).await?;
    let paths = shared.permit_paths(name);
    let mut refused: Option<SemaphoreNumber> = None;
    loop {
        let view = view(shared, &session, &paths, deadline).await?;
        if refused.is_some() && refused == view.number {
            return Err(without_epoch());
        }
        let total = view.number.as_ref().map(|number| number.total);
        let after = match (change, total) {
            (PermitChange::SetIfNew(_), Some(total)) => total,
            (PermitChange::SetIfNew(total) | PermitChange::Set(total), _) => total.into(),
            (PermitChange::Add(more), total) => total.unwrap_or(0).saturating_add(more.into()),
        };
        if total == Some(after) {
            return Ok(false);
        }
        let changed = match view.number {
            Some(number) => {
                let changes = paths.renumber(&number, after);
                let failed = commit(shared, &session, &changes, deadline).await?;
                refused = (failed == Some(PermitPaths::EPOCH)).then_some(number);
                failed.is_none()
            }
            None => make_number(shared, &session, name, after, deadline).await?,
        };
        if changed {
            return Ok(true);
        }
    }
}

/// Makes the first number of a semaphore. False: another client was faster.
///
/// The name may be a lock, also one that somebody acquires at this moment. So we queue as for a lock, and the node with the
/// number takes the place of ours when no lock is ahead of it.
async fn make_number(
    shared: &Arc<Shared>,
    session: &ZooKeeperSession,
    name: &Name,
    total: i64,
    deadline: BootInstant,
) -> Result<bool> {
    let maker = NumberMaker {
        shared,
        ticket: Ticket {
            kind: LockKind::Mutex,
            name: name.clone(),
            owner: OwnerMint::new().fresh(),
        },
    };
    let made = maker.make(session, total, deadline).await;
    let left = leave(shared, &maker.ticket, true).await;
    // First the outcome of the transaction: if it is unknown, an error of the request after it would say that nothing was
    // changed.
    let made = made?;
    left?;
    Ok(made)
}

/// The node in the queue of the lock that is there while the number is made. It is withdrawn if the caller leaves.
struct NumberMaker<'a> {
    shared: &'a Arc<Shared>,
    ticket: Ticket,
}

impl NumberMaker<'_> {
    async fn make(
        &self,
        session: &ZooKeeperSession,
        total: i64,
        deadline: BootInstant,
    ) -> Result<bool> {
        let (shared, name) = (self.shared, &self.ticket.name);
        let (paths, parent) = (shared.permit_paths(name), shared.path(name));
        let own = OwnNode {
            shared,
            connection: &shared.connection,
            ticket: &self.ticket,
            place: NodePlace {
                parent: parent.clone(),
                prefix: keys::maker_prefix(&self.ticket),
            },
            deadline,
        };
        let mark = shared.delay_path(name);
        let also = || {
            (
                session.client.list_children(&parent),
                session.client.get_data(&mark),
            )
        };
        let ends = deadline + shared.response_timeout;
        let created = own.create(session, b"", ends, also).await?;
        let Some((node, (listed, marked))) = created else {
            return Ok(false);
        };
        own.refuse_late(&node).await?;
        let nodes = errors::unless_missing(own.until(listed).await?)?;
        let nodes = nodes.unwrap_or_default();
        let mark = delay_node::mark(own.until(marked).await?)?;
        // The delay of a lock may run without a node.
        if !may_make(nodes, &node.name, mark.is_some())? {
            return Ok(false);
        }
        // As an owner id, the epoch is unique.
        let epoch = self.ticket.owner.permit_id(0);
        let changes = paths.first_number(&node.name, total, &epoch);
        let made = commit(shared, session, &changes, deadline).await?.is_none();
        if made {
            shared.registry.lost(&self.ticket, &node);
        }
        Ok(made)
    }
}

/// Whether the maker with this node makes the number. If not, it starts over: the number is there, or may be made. `delayed`: the
/// delay of a lock is running.
fn may_make(nodes: Vec<String>, own: &str, delayed: bool) -> Result<bool> {
    if nodes.iter().any(|node| node == keys::NUMBER) {
        return Ok(false);
    }
    let is_curators = nodes
        .iter()
        .any(|node| keys::is_of_curators_semaphore(node));
    let queue = keys::in_order(nodes);
    let mut ahead = queue.iter().take_while(|other| **other != own);
    let first = ahead.position(|node| keys::makes_a_lock(node));
    if first.is_some_and(|at| at > 0) {
        // Another maker is ahead of that lock. If it makes the number, the lock is refused.
        return Ok(false);
    }
    if is_curators || delayed || first.is_some() {
        return Err(is_lock());
    }
    Ok(true)
}

impl Drop for NumberMaker<'_> {
    fn drop(&mut self) {
        if self.shared.registry.connection(&self.ticket).is_none() {
            return; // it has left no node
        }
        let withdrawn = withdraw(Arc::downgrade(self.shared), self.ticket.clone());
        self.shared.background.spawn(withdrawn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const OWN: &str = "_c_b-number-__WRIT__%lock-0000000003";

    #[test]
    fn a_number_is_made_unless_the_name_is_a_lock_or_another_maker_decides_first() {
        let (ahead, behind) = ("_c_x-lock-0000000002", "_c_x-lock-0000000004");
        let faster = "_c_a-number-__WRIT__%lock-0000000001";
        for (others, expected) in [
            (&[][..], Some(true)),
            (&[behind][..], Some(true)),
            (&[faster][..], Some(true)),
            (&[ahead][..], None),
            (&[faster, ahead][..], Some(false)),
            (&[keys::NUMBER][..], Some(false)),
            (&[keys::NUMBER, ahead][..], Some(false)),
            (&["leases"][..], None),
            (&["locks"][..], None),
        ] {
            let nodes = others.iter().chain([&OWN]).map(|&node| node.to_owned());
            let made = may_make(nodes.collect(), OWN, false);
            if let Err(error) = &made {
                assert_eq!(error.kind(), ErrorKind::WrongType);
            }
            assert_eq!(made.ok(), expected, "{others:?}");
        }
        let delayed = may_make(vec![OWN.to_owned()], OWN, true).unwrap_err();
        assert_eq!(delayed.kind(), ErrorKind::WrongType);
    }
}
