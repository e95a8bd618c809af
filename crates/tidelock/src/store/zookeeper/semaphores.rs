//! Semaphores as operators see them: changes their number, shows who has permits, and takes permits back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;

use crate::error::{ErrorKind, Result};
use crate::snapshot::{Holder, Mode, PermitCount, Snapshot};
use crate::store::kinds::is_lock;
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::store::zookeeper::entry::NodePlace;
use crate::store::zookeeper::own_node::OwnNode;
use crate::store::zookeeper::permit_requests::{commit, learn, view};
use crate::store::zookeeper::permit_steps::PermitPaths;
use crate::store::zookeeper::permit_view::{Claim, ClaimView, SemaphoreNumber};
use crate::store::zookeeper::release::{leave, remove};
use crate::store::zookeeper::renew::withdraw;
use crate::store::zookeeper::shared::Shared;
use crate::store::zookeeper::{ZooKeeper, delay_node, errors, keys, note};
use crate::store::{
    BootInstant, BoxFuture, LockKind, Name, OwnerId, PermitChange, PermitCounter, Ticket,
};
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
    loop {
        let view = view(shared, &session, &paths, deadline).await?;
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
                commit(shared, &session, &changes, deadline)
                    .await?
                    .is_none()
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
    leave(shared, &maker.ticket, true).await?;
    made
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
        let nodes = errors::unless_missing(own.until(listed).await?)?;
        let nodes = nodes.unwrap_or_default();
        let mark = delay_node::mark(own.until(marked).await?)?;
        if nodes.iter().any(|node| node == keys::NUMBER) {
            return Ok(false);
        }
        let is_curators = nodes
            .iter()
            .any(|node| keys::is_of_curators_semaphore(node));
        let queue = keys::in_order(nodes);
        let mut ahead = queue.iter().take_while(|other| **other != node.name);
        // The delay of a lock may run without a node.
        if is_curators || mark.is_some() || ahead.any(|node| keys::makes_a_lock(node)) {
            return Err(is_lock());
        }
        // As an owner id, the epoch is unique.
        let epoch = self.ticket.owner.permit_id(0);
        let changes = paths.first_number(&node.name, total, &epoch);
        let made = commit(shared, session, &changes, deadline).await?.is_none();
        if made {
            shared.registry.lost(&self.ticket.owner, &node);
        }
        Ok(made)
    }
}

impl Drop for NumberMaker<'_> {
    fn drop(&mut self) {
        if self
            .shared
            .registry
            .connection(&self.ticket.owner)
            .is_none()
        {
            return; // it has left no node
        }
        let (shared, ticket) = (Arc::clone(self.shared), self.ticket.clone());
        let background = self.shared.background.clone();
        background.spawn(async move { withdraw(&shared, &ticket).await });
    }
}

/// The holders of a semaphore, as they were read after its claims.
struct SemaphoreState {
    number: Option<SemaphoreNumber>,
    holders: Vec<(Claim, Holder)>,
    waiters: usize,
}

impl SemaphoreState {
    async fn read(
        shared: &Shared,
        session: &ZooKeeperSession,
        paths: &PermitPaths,
        deadline: BootInstant,
    ) -> Result<Self> {
        let ClaimView { number, claims, .. } = view(shared, session, paths, deadline).await?;
        let asked: Vec<_> = claims
            .into_iter()
            .map(|claim| (session.client.get_data(&paths.claim(&claim.node)), claim))
            .collect();
        let (mut holders, mut waiters) = (Vec::new(), 0);
        for (asked, claim) in asked {
            let data = shared.timers.until(deadline, asked).await;
            let data = data.ok_or_else(|| errors::late(ErrorKind::Unavailable))?;
            match errors::unless_missing(data)? {
                Some((data, _)) if data.is_empty() => waiters += 1,
                Some((data, _)) => holders.push((claim.clone(), holder(&claim, &data))),
                None => {}
            }
        }
        Ok(Self {
            number,
            holders,
            waiters,
        })
    }
}

/// Operators see the id of the first permit as the owner.
fn holder(claim: &Claim, data: &[u8]) -> Holder {
    let noted = note::read(&claim.node, data);
    let owner = if noted.owner == claim.node {
        noted.owner
    } else {
        OwnerId::of_text(&noted.owner).permit_id(0)
    };
    let mut holder = Holder::new(owner, claim.permits.into());
    holder.mode = Mode::Permits;
    holder.client = noted.client;
    holder
}

/// Describes a semaphore.
pub(crate) async fn look(
    shared: &Shared,
    session: &ZooKeeperSession,
    name: &Name,
    deadline: BootInstant,
) -> Result<Snapshot> {
    let paths = shared.permit_paths(name);
    let state = SemaphoreState::read(shared, session, &paths, deadline).await?;
    let held: u64 = state.holders.iter().map(|(_, holder)| holder.holds).sum();
    let count = |number: SemaphoreNumber| {
        let held = i64::try_from(held).unwrap_or(i64::MAX);
        PermitCount::new(number.total.saturating_sub(held), number.total)
    };
    let mut snapshot = Snapshot::free(name.as_str());
    snapshot.permits = state.number.map(count);
    snapshot.waiters = Some(state.waiters as u64);
    let ends = state.holders.iter();
    let ends = ends.map(|(claim, _)| shared.registry.ends(&paths.claims, &claim.node));
    let ends: Vec<_> = ends.collect();
    if !ends.is_empty() {
        snapshot.expires_in = at_the_least(&ends, shared.timers.now());
    }
    snapshot.holders = state
        .holders
        .into_iter()
        .map(|(_, holder)| holder)
        .collect();
    Ok(snapshot)
}

/// Takes the permits of all holders back, or only if they are those in `seen`. False: nobody held any, or somebody else.
///
/// The name of a claim is never used again, so no claim that comes after the look is touched.
pub(crate) async fn force(
    shared: &Shared,
    session: &ZooKeeperSession,
    name: &Name,
    seen: Option<&Snapshot>,
    deadline: BootInstant,
) -> Result<bool> {
    let paths = shared.permit_paths(name);
    let state = SemaphoreState::read(shared, session, &paths, deadline).await?;
    let mut owners = state.holders.iter().map(|(_, holder)| &*holder.owner);
    if seen.is_some_and(|seen| !seen.is_of(&mut owners, None)) {
        return Ok(false);
    }
    let removed = { state.holders.iter() }
        .map(|(claim, _)| remove(shared, session, &paths.claims, &claim.node, deadline));
    let removed = try_join_all(removed).await?;
    Ok(removed.contains(&true))
}

/// Whether somebody holds permits of this semaphore.
pub(crate) async fn is_held(
    shared: &Shared,
    session: &ZooKeeperSession,
    name: &Name,
    deadline: BootInstant,
) -> Result<bool> {
    let paths = shared.permit_paths(name);
    let claims = session.client.list_children(&paths.claims);
    let claims = shared.timers.until(deadline, claims).await;
    let claims = claims.ok_or_else(|| errors::late(ErrorKind::Unavailable))?;
    let nodes = errors::unless_missing(claims)?.unwrap_or_default();
    let nodes = keys::claims(nodes)
        .into_iter()
        .map(|(node, _)| node)
        .collect();
    let learned = learn(shared, session, &paths, nodes, deadline);
    let learned = learned.await?;
    Ok(learned.iter().any(|(_, holds)| *holds == Some(true)))
}

/// How long the lock stays held at least, by the ends of its holds. `None`: a holder is another client, and its lease
/// is unknown.
pub(crate) fn at_the_least(ends: &[Option<BootInstant>], now: BootInstant) -> Option<Duration> {
    let mut ends = ends.iter();
    ends.try_fold(Duration::ZERO, |most, ends| {
        Some(most.max((*ends)?.since(now)))
    })
}
