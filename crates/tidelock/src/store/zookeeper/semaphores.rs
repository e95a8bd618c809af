//! Shows who has permits of a semaphore, and takes permits back, for operators.

use std::time::Duration;

use futures_util::future::try_join_all;

use crate::error::{ErrorKind, Result};
use crate::snapshot::{Holder, Mode, PermitCount, Snapshot};
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::store::zookeeper::permit_requests::{learn, view};
use crate::store::zookeeper::permit_steps::PermitPaths;
use crate::store::zookeeper::permit_view::{Claim, ClaimView, SemaphoreNumber};
use crate::store::zookeeper::release::remove;
use crate::store::zookeeper::shared::Shared;
use crate::store::zookeeper::{claims, errors, note};
use crate::store::{BootInstant, Name, OwnerId};

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
/// Only a late number gives a claim the name of an earlier one, and such a claim has no permits, so no holder that comes
/// after the look is touched.
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
    let nodes = claims::in_order(nodes)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_stays_held_until_its_last_hold_ends_unless_one_is_unknown() {
        let second = Duration::from_secs(1);
        let now = BootInstant::from_nanos(1);
        let ends = [Some(now + second), Some(now + second * 3), Some(now)];
        assert_eq!(at_the_least(&ends, now), Some(second * 3));
        assert_eq!(at_the_least(&[Some(now + second), None], now), None);
    }

    /// The user looks for the id that the program shows, which is that of a permit.
    #[test]
    fn a_holder_is_shown_by_the_id_of_its_first_permit() {
        let claim = Claim {
            node: "_c_x-3-permits-0000000001".to_owned(),
            permits: 3,
        };
        let owner = OwnerId::of_text("a9a63a8c-7c23-4a8e-9d52-0f1d6b0d4d11:7");
        let ours = holder(&claim, owner.text().as_bytes());
        assert_eq!(ours.owner, owner.permit_id(0));
        assert_eq!((ours.mode, ours.holds), (Mode::Permits, 3));
        let foreign = holder(&claim, b"10.0.0.7");
        assert_eq!(foreign.owner, claim.node);
    }
}
