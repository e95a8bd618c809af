//! The register of a barrier: its state in the store, and the signal for those that wait.
//!
//! The state is a mark of the name `NAME%barrier`. Each member holds the read side of the lock `NAME`, so the store itself
//! says which members are alive. A step reads the state, then the holders, and writes by compare-and-set. That order is
//! needed: a member takes its hold before it joins, so a member that is in the state and not among the holders, which were
//! read later, is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::barrier::state::{BarrierDecision, BarrierState, BarrierStep};
use crate::engine::ClientInner;
use crate::engine::runtime::backoff::ExponentialBackoff;
use crate::engine::runtime::retry;
use crate::engine::store_handle::StoreHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Backend, LockKind, MarkChange, Name, ReplicaAck, Timers};
use crate::types::LostReason;

/// The slot of the state among the marks.
const SLOT: &str = "state";

/// How long the store keeps a state that nobody changes: the longest use of a barrier.
const KEEP: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long the store keeps the state without anybody: longer than a network keeps a request. A late copy of a join that replaced
/// no state must find one. Otherwise it would bring back a member that has gone.
const KEEP_IDLE: Duration = Duration::from_secs(3600);

/// The pause after another member has changed the state between our read and our write. Each such conflict means that the
/// other one has done its step.
const CONFLICT: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(2), Duration::from_millis(50)).jitter(1.0);

/// Whether a write of a member may still be on its way: no reply came, or its caller has left. Such a write could let the
/// others in with a member that has given up. So the next step of the member writes in any case. After that the late one
/// finds another text than the one that it wants to replace.
#[derive(Debug, Default)]
pub(super) struct WriteInDoubt(AtomicBool);

impl WriteInDoubt {
    pub(super) fn is_open(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    async fn settles(&self, write: impl Future<Output = Result<bool>>) -> Result<bool> {
        let earlier = self.0.swap(true, Ordering::SeqCst);
        let written = write.await;
        match &written {
            // The text is another one now, whoever wrote it. No earlier write fits it.
            Ok(_) => self.0.store(false, Ordering::SeqCst),
            Err(error) if error.outcome_unknown() => {}
            Err(_) => self.0.store(earlier, Ordering::SeqCst),
        }
        written
    }
}

/// The state of one barrier in the store. It does not keep the client alive.
#[derive(Debug, Clone)]
pub(super) struct BarrierRegister {
    store: Arc<StoreHandle>,
    /// The lock that each member holds for reading.
    name: Name,
    /// The name of the mark, and of the lock behind which members wait for a signal.
    pub(super) signal: Name,
    size: u32,
    wish: ReplicaAck,
}

impl BarrierRegister {
    pub(super) fn new(core: &ClientInner, store: &Arc<StoreHandle>, name: Name, size: u32) -> Self {
        Self {
            store: Arc::clone(store),
            signal: name.of_barrier(),
            name,
            size,
            wish: core.settings.acknowledge,
        }
    }

    /// Refuses a barrier that the store cannot have, before any traffic.
    pub(super) fn check(&self) -> Result<()> {
        let can = self.store.front().capabilities();
        if can.marks && can.has(LockKind::Read) {
            return Ok(());
        }
        Err(crate::store::kinds::no_barriers())
    }

    /// The members that are present and alive.
    pub(super) async fn look(&self, core: &ClientInner) -> Result<BarrierState> {
        let patience = core.settings.lease;
        let again = || async {
            let backend = self.store.front();
            let state = self.read(backend).await?.1;
            let seen = backend.inspect(&self.name).await?;
            let is_alive = |owner: &str| seen.has_owner(owner);
            state.after(BarrierStep::Look, "", self.size, &is_alive)
        };
        let decision = core.through_outage(patience, again).await;
        self.store.heard(&self.name, &decision);
        Ok(decision.map_err(Error::without_effect)?.state)
    }

    /// Does a step of this member, and repeats it while the store cannot be reached, for at most `patience`, or another
    /// member was faster. Returns the state after it.
    ///
    /// # Errors
    /// `OutcomeUnknown` if the step may have been done although no reply came.
    pub(super) async fn step(
        &self,
        core: &ClientInner,
        step: BarrierStep,
        member: (&str, &WriteInDoubt),
        patience: Duration,
    ) -> Result<BarrierState> {
        let in_doubt = AtomicBool::new(false);
        let mut conflicts = 0;
        loop {
            core.refuse_if_closed()?;
            let again = || async {
                let tried = self.try_step(self.store.front(), step, member).await;
                self.store.heard(&self.name, &tried);
                if tried.as_ref().is_err_and(Error::outcome_unknown) {
                    in_doubt.store(true, Ordering::Relaxed);
                }
                tried
            };
            let tried = core.through_outage(patience, again).await;
            let in_doubt = in_doubt.load(Ordering::Relaxed);
            let decision = match tried {
                Ok(Some(decision)) => decision,
                Ok(None) => {
                    let pause = core.timers.after(CONFLICT.pause(conflicts));
                    // The timers stop with the steward, so the pause alone would never end then.
                    let paused = core.steward.unless_ended(pause).await;
                    paused.ok_or_else(|| Error::new(ErrorKind::Closed))?;
                    conflicts += 1;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Closed => return Err(error),
                // Any other error of a member that joins says more than that an earlier try is in doubt.
                Err(error) if in_doubt && (step == BarrierStep::Leave || error.is_retryable()) => {
                    return Err(Error::new(ErrorKind::OutcomeUnknown).because(error.to_string()));
                }
                Err(error) => return Err(error),
            };
            // A write without a reply may have been the one that the others wait for.
            if decision.is_awaited || in_doubt {
                let signal = self.signal(self.store.front());
                // The step is done, with or without its signal. When the steward has ended, no limit ends the request.
                core.steward.unless_ended(signal).await;
            }
            if step == BarrierStep::Leave && !decision.was_alive {
                return Err(left_without_a_hold(in_doubt));
            }
            return Ok(decision.state);
        }
    }

    /// Removes a member whose caller has left, in the background. If the store does not answer within `limit`, the hold of
    /// the member has ended by then, and the other members remove it.
    pub(super) async fn remove(
        &self,
        member: (&str, &WriteInDoubt),
        limit: Duration,
        longest: Duration,
        timers: &Timers,
    ) -> Result<()> {
        let again = || async {
            let mut conflicts = 0;
            while self
                .try_step(self.store.back(), BarrierStep::Leave, member)
                .await?
                .is_none()
            {
                timers.after(CONFLICT.pause(conflicts)).await;
                conflicts += 1;
            }
            Ok(())
        };
        retry::within(limit, longest, timers, again).await?;
        // Also if this step has changed nothing that others wait for: the caller may have left between a step that they
        // wait for and its signal.
        self.signal(self.store.back()).await;
        Ok(())
    }

    /// `None`: the state has changed since it was read, and nothing was written.
    async fn try_step(
        &self,
        backend: &dyn Backend,
        step: BarrierStep,
        (member, doubt): (&str, &WriteInDoubt),
    ) -> Result<Option<BarrierDecision>> {
        // A read changes nothing, so its outcome is never in doubt.
        let (before, state) = self.read(backend).await.map_err(Error::without_effect)?;
        let seen = backend
            .inspect(&self.name)
            .await
            .map_err(Error::without_effect)?;
        let is_alive = |owner: &str| seen.has_owner(owner);
        let mut decision = state.after(step, member, self.size, &is_alive)?;
        let late = doubt.is_open();
        // What another member has written may not be on the replicas yet. With `Any` no failover is promised to keep it, so
        // a second write by each member would only cost.
        let is_kept = matches!(self.wish, ReplicaAck::Majority | ReplicaAck::All);
        let needs_replicas = is_kept && state.is_inside(member);
        if decision.state == state && !late && !needs_replicas {
            return Ok(Some(decision));
        }
        decision.state.version = state.version + 1;
        let (after, is_idle) = (decision.state.to_line(), decision.state.is_idle());
        let keep = if is_idle { KEEP_IDLE } else { KEEP };
        let change = MarkChange {
            slot: SLOT,
            before: before.as_deref(),
            after: &after,
            keep,
            wish: self.wish,
        };
        let marks = backend.extensions().need_marks()?;
        let write = marks.replace(&self.signal, change);
        Ok(doubt.settles(write).await?.then_some(decision))
    }

    /// The state, and the text that the store has for it.
    async fn read(&self, backend: &dyn Backend) -> Result<(Option<String>, BarrierState)> {
        let marks = backend.extensions().need_marks()?;
        let text = marks.read(&self.signal, SLOT).await?;
        let state = BarrierState::from_line(text.as_deref().unwrap_or_default())?;
        Ok((text, state))
    }

    /// Wakes all members that wait, in all processes: frees the lock that they queue behind. If this fails, they look again
    /// by themselves after a while.
    async fn signal(&self, backend: &dyn Backend) {
        let freed = backend.force_release(&self.signal, None).await;
        self.store.heard(&self.signal, &freed);
        if let Err(error) = freed {
            tracing::debug!(barrier = %self.name, %error, "no signal was sent; the members look again after a while");
        }
    }
}

/// A member that leaves had lost its hold before, so the others did not wait for it. `in_doubt`: an earlier try may have
/// taken it out while it had its hold.
fn left_without_a_hold(in_doubt: bool) -> Error {
    if in_doubt {
        Error::new(ErrorKind::OutcomeUnknown)
            .because("no reply came until the hold of this member had ended")
    } else {
        Error::lost(LostReason::Taken)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::barrier::Barrier;
    use crate::client::Client;
    use crate::guard::Guard;

    const PATIENCE: Duration = Duration::from_secs(1);

    /// Says whether a write that has ended so, or an earlier one, is in doubt.
    async fn is_in_doubt(doubt: &WriteInDoubt, ended: Result<bool>) -> bool {
        let _ = doubt.settles(std::future::ready(ended)).await;
        doubt.is_open()
    }

    #[tokio::test]
    async fn a_write_is_in_doubt_until_the_store_has_answered_a_later_one() {
        let doubt = WriteInDoubt::default();
        let failed = |kind| Err(Error::new(kind));
        let (unsent, lost) = (ErrorKind::Unavailable, ErrorKind::OutcomeUnknown);
        assert!(!is_in_doubt(&doubt, failed(unsent)).await);
        assert!(is_in_doubt(&doubt, failed(lost)).await);
        assert!(is_in_doubt(&doubt, failed(unsent)).await);
        assert!(!is_in_doubt(&doubt, Ok(false)).await);
        // The caller leaves while it is under way.
        let left = doubt.settles(std::future::pending()).now_or_never();
        assert!(left.is_none() && doubt.is_open());
        assert!(!is_in_doubt(&doubt, Ok(true)).await);
    }

    #[test]
    fn a_member_whose_hold_ended_while_its_leave_was_in_doubt_is_not_told_a_loss() {
        let error = left_without_a_hold(true);
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
        let lost = left_without_a_hold(false);
        assert_eq!(lost.lost_reason(), Some(LostReason::Taken));
    }

    /// Another member has written what let it in, and that may not be on the replicas yet.
    #[tokio::test]
    async fn a_member_that_finds_itself_inside_writes_once_more_for_the_replicas() {
        for (wish, writes) in [
            (ReplicaAck::All, true),
            (ReplicaAck::Majority, true),
            (ReplicaAck::Any, false),
            (ReplicaAck::Off, false),
        ] {
            let builder = Client::builder().acknowledge(wish);
            let client = builder.connect("memory:").await.unwrap();
            let barrier = client.barrier("solver", 1);
            let [inside, outside] = [
                Present::holding(&barrier).await,
                Present::holding(&barrier).await,
            ];
            let before = inside.step(&barrier, BarrierStep::Join).await.version;
            let after = inside.step(&barrier, BarrierStep::Join).await.version;
            assert_eq!(after > before, writes, "{wish}");
            let before = outside.step(&barrier, BarrierStep::Join).await.version;
            let after = outside.step(&barrier, BarrierStep::Join).await.version;
            assert_eq!(after, before, "it only waits: {wish}");
        }
    }

    struct Present {
        guard: Guard,
        doubt: WriteInDoubt,
    }

    impl Present {
        async fn holding(barrier: &Barrier) -> Self {
            let guard = barrier.lock.acquire().await.unwrap();
            let doubt = WriteInDoubt::default();
            Self { guard, doubt }
        }

        async fn step(&self, barrier: &Barrier, step: BarrierStep) -> BarrierState {
            let core = &barrier.lock.context.core;
            let name = barrier.lock.checked_name().unwrap();
            let register = barrier.register(&name).unwrap();
            let owner = self.guard.owner_id();
            let member = (&*owner, &self.doubt);
            register.step(core, step, member, PATIENCE).await.unwrap()
        }
    }

    /// The network delivers the request of a member twice, the second time when nobody is present any more.
    #[tokio::test]
    async fn a_late_copy_of_an_answered_join_changes_nothing() {
        let client = Client::connect("memory:").await.unwrap();
        let barrier = client.barrier("copied", 2);
        let name = barrier.lock.checked_name().unwrap();
        let register = barrier.register(&name).unwrap();
        let backend = register.store.front();
        let before = register.read(backend).await.unwrap().0;
        let member = Present::holding(&barrier).await;
        member.step(&barrier, BarrierStep::Join).await;
        let after = register.read(backend).await.unwrap().0.unwrap();
        member.step(&barrier, BarrierStep::Withdraw).await;
        // It lives a moment longer than a mark that expires at once.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let copy = MarkChange {
            slot: SLOT,
            before: before.as_deref(),
            after: &after,
            keep: KEEP,
            wish: ReplicaAck::Off,
        };
        let marks = backend.extensions().need_marks().unwrap();
        assert!(!marks.replace(&register.signal, copy).await.unwrap());
    }

    /// The write of a member that joins is still on its way when the member gives up.
    #[tokio::test]
    async fn a_late_request_of_a_member_that_gave_up_changes_nothing() {
        let client = Client::connect("memory:").await.unwrap();
        for others_wait in [true, false] {
            let barrier = client.barrier(if others_wait { "some" } else { "none" }, 2);
            let other = Present::holding(&barrier).await;
            if others_wait {
                other.step(&barrier, BarrierStep::Join).await;
            }
            let name = barrier.lock.checked_name().unwrap();
            let register = barrier.register(&name).unwrap();
            let backend = register.store.front();
            let (before, state) = register.read(backend).await.unwrap();
            let leaver = Present::holding(&barrier).await;
            let owner = leaver.guard.owner_id();
            let joined = state.after(BarrierStep::Join, &owner, 2, &|_| true);
            let mut joined = joined.unwrap().state;
            joined.version += 1;
            leaver.doubt.0.store(true, Ordering::SeqCst);
            let left = leaver.step(&barrier, BarrierStep::Withdraw).await;
            assert!(!leaver.doubt.is_open() && !left.is_inside(&owner));
            let late = MarkChange {
                slot: SLOT,
                before: before.as_deref(),
                after: &joined.to_line(),
                keep: KEEP,
                wish: ReplicaAck::Off,
            };
            let marks = backend.extensions().need_marks().unwrap();
            let written = marks.replace(&register.signal, late).await.unwrap();
            assert!(!written, "others wait: {others_wait}");
            // The barrier goes on.
            other.step(&barrier, BarrierStep::Join).await;
            let third = Present::holding(&barrier).await;
            let entered = third.step(&barrier, BarrierStep::Join).await;
            assert_eq!(entered.together.len(), 2);
            assert!(!entered.is_inside(&owner));
        }
    }
}
