//! A running acquisition: it waits in a local queue, or asks the store.

use crate::engine::runtime::sync::atomic::Ordering;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::engine::acquire::attempt_loop;
use crate::engine::acquire::observation::follow;
use crate::engine::acquire::request::{AcquireRequest, AcquireResult};
use crate::engine::instruments::AcquireEnd;
use crate::engine::local_queue::leader::Leader;
use crate::engine::local_queue::queue::Joined;
use crate::engine::local_queue::waiter::{Notification, WaiterFuture};
use crate::error::{Error, ErrorKind, Result};
use crate::owner::{OwnerSlot, OwnerTurn};
use crate::store::BoxFuture;

/// A running acquisition.
pub(crate) enum AcquirePath {
    /// Runs the acquire loop.
    Asks(BoxFuture<'static, AcquireResult>),
    /// Waits in the local queue. Most waiters get a hold by hand-off, so this state has no future of the acquire loop:
    /// that future is large, and a lock may have many waiters.
    Waits(WaiterFuture<AcquireRequest>),
}

impl AcquirePath {
    /// Re-enters the hold of the given owner if it has one. Otherwise acquires the lock.
    pub(crate) fn enter(request: Arc<AcquireRequest>) -> Self {
        match request.owner_slot() {
            Some(slot) => Self::Asks(Box::pin(enter_as(slot, request))),
            None if request.upgrade_of.is_some() => Self::Asks(Box::pin(enter_new(request))),
            None => Self::queue_up(request),
        }
    }

    /// Joins the local queue of the name. A zero wait bypasses it and goes straight to the store.
    ///
    /// We join before we create the future of the acquire loop: that future is large, and only the leader needs it.
    fn queue_up(request: Arc<AcquireRequest>) -> Self {
        // A store with queues keeps a position for each waiter, and only requests of that waiter keep the position.
        let AcquireRequest { context, terms, .. } = &*request;
        let joins = !request.only_asks() && !context.store.queues_in_store(terms.kind);
        match context.queues.as_ref().filter(|_| joins) {
            None => Self::ask(request, None),
            Some(queues) => match queues.join(&request, None) {
                Joined::Leads(leader) => Self::ask(request, Some(leader)),
                Joined::Waits(waiter) => Self::wait(waiter),
            },
        }
    }

    /// Asks the store: as a leader for the whole local queue, otherwise only for itself.
    fn ask(request: Arc<AcquireRequest>, leader: Option<Leader>) -> Self {
        Self::Asks(Box::pin(attempt_loop::drive(request, leader)))
    }

    /// Waits in the local queue.
    fn wait(waiter: WaiterFuture<AcquireRequest>) -> Self {
        match waiter.request().announce_wait() {
            Ok(()) => Self::Waits(waiter),
            Err(closed) => Self::Asks(Box::pin(ready(Err(closed)))),
        }
    }
}

async fn enter_as(slot: Arc<OwnerSlot>, request: Arc<AcquireRequest>) -> AcquireResult {
    loop {
        // One acquisition of an owner at a time, so the second one finds the hold of the first and re-enters it. Otherwise
        // both would ask the store, and the second would wait for its own owner.
        let turn = match slot.try_turn(&request, &request.context.core.timers, patience(&request)) {
            None => wait_for_turn(&slot, &request).await?,
            turn => turn,
        };
        let Some(turn) = turn else {
            return Ok(None);
        };
        if let Some(hold) = reenter(&slot, &request)? {
            return Ok(Some(hold));
        }
        if !turn.is_own() {
            continue; // the hold that it could have re-entered has ended since
        }
        let Some(hold) = turn.run(enter_new(Arc::clone(&request))).await? else {
            return Ok(None);
        };
        // The steward releases a hold whose caller has left. In the slot it would refuse the next acquisition of this owner
        // through a non-reentrant handle, although no guard exists that the owner could release first.
        if request.gone.load(Ordering::SeqCst) || turn.put(&hold) {
            return Ok(Some(hold));
        }
        // The drop of the hold lets the upgrade in. We re-enter the writer then, or the other hold of this owner. A grant
        // records no answer, because it ends the wait; this one does not. Without an answer a wait that ends meanwhile would
        // say that the store is silent.
        let now = request.context.core.timers.now();
        request.waiter.answered(true, now);
    }
}

/// The hold of this owner that the acquisition re-enters. `None`: it needs one of its own.
///
/// # Errors
/// [`ErrorKind::InvalidOptions`] if the lock is non-reentrant, or if the owner would wait for itself.
fn reenter(slot: &OwnerSlot, request: &AcquireRequest) -> AcquireResult {
    let current = match (&request.upgrade_of, &request.downgrade_of) {
        // An upgrade enters beside the hold that it upgrades. Any other hold of this owner is a writer, which it enters
        // again, or a plain reader, which refuses: the upgrade would wait for it, and so for its own owner.
        (Some(claim), _) => slot
            .current()
            .filter(|hold| hold.granted().ticket.owner != claim.owner),
        // The writer has left the slot. A hold that is still there reads upgradeably, with a token that is older than
        // what has been written.
        (None, Some(_)) => None,
        (None, None) => slot.current(),
    };
    let Some(hold) = current else {
        return Ok(None);
    };
    if !request.context.reenters {
        return Err(Error::new(ErrorKind::InvalidOptions).because(
            "this owner holds the lock, which is non-reentrant; release it first, or pass its guard on",
        ));
    }
    request.set_path(AcquireEnd::Reentered);
    hold.shared_with(request.terms.kind).map(Some)
}

/// How long the acquisitions of an owner wait for one of them that does not show that it is polled: as long as the waiters
/// of a local queue.
fn patience(request: &AcquireRequest) -> Duration {
    request.context.core.settings.lease / 3
}

/// Waits until the acquisition is the next one of its owner. `None`: with a zero wait, another one is ahead.
async fn wait_for_turn<'a>(
    slot: &'a OwnerSlot,
    request: &'a Arc<AcquireRequest>,
) -> Result<Option<OwnerTurn<'a>>> {
    let core = &request.context.core;
    let next = || slot.next_turn(request, &core.timers, patience(request));
    let turn = async {
        if !request.only_asks() {
            return Ok(Some(next().await));
        }
        // A caller that has left wants nothing more. Its last request is in flight, and may bring a lock that is released
        // at once. So "not free" would be wrong, and the store gives up that request after a response timeout.
        let is_abandoned = || slot.is_turn_abandoned(&**request);
        if !is_abandoned() {
            // If nobody has answered by a later try, that one goes on without them.
            slot.ask(&**request, core.timers.now());
            return Ok(None);
        }
        let limit = request.context.response_timeout();
        match core.timers.limit(limit, next()).await {
            None if is_abandoned() => Err(Error::new(ErrorKind::Unavailable).because(
                "the store has not answered an earlier attempt of this owner, whose caller has left",
            )),
            turn => Ok(turn),
        }
    };
    // The one that has the turn may be a future that is kept and not polled for a while.
    tokio::select! {
        biased;
        turn = turn => turn,
        () = core.steward.closed.happened() => Err(Error::new(ErrorKind::Closed)),
    }
}

/// Acquires a hold of its own. An upgrade does so only if no other one of its reader waits or has succeeded. One of the
/// same owner has taken its turn before, and has entered the writer again.
async fn enter_new(request: Arc<AcquireRequest>) -> AcquireResult {
    let Some(claim) = &request.upgrade_of else {
        return AcquirePath::queue_up(request).await;
    };
    claim.begin()?;
    let hold = AcquirePath::queue_up(Arc::clone(&request)).await?;
    if let Some(writer) = &hold {
        claim.granted(writer);
    }
    Ok(hold)
}

/// Acts on the notification that ended a wait in the local queue. If it brings no lock and no error, the request joins
/// the queue again at its old position (`number`).
async fn go_on(
    request: Arc<AcquireRequest>,
    mut notification: Notification,
    number: u64,
) -> AcquireResult {
    let context = Arc::clone(&request.context);
    let Some(queues) = &context.queues else {
        return attempt_loop::drive(request, None).await;
    };
    // The futures of the acquire loop are boxed, because most waits end without one.
    loop {
        match notification {
            Notification::TakeLeadership(leader) => {
                return Box::pin(attempt_loop::drive(request, Some(*leader))).await;
            }
            Notification::Hold(mut hold) => {
                context.core.refuse_if_closed()?;
                if hold.is_held() {
                    request.set_path(AcquireEnd::HandedOver);
                    follow(&mut hold);
                    return Ok(Some(hold));
                }
            }
            Notification::Failed(error) => return Err(error),
            Notification::Probe => {
                let granted = Box::pin(attempt_loop::probe(&request, queues)).await?;
                if granted.is_some() || request.gone.load(Ordering::SeqCst) {
                    return Ok(granted);
                }
            }
            Notification::JoinAgain => {}
        }
        let waiter = match queues.join(&request, Some(number)) {
            Joined::Leads(leader) => {
                return Box::pin(attempt_loop::drive(request, Some(leader))).await;
            }
            Joined::Waits(waiter) => waiter,
        };
        request.announce_wait()?;
        notification = waiter.await;
    }
}

impl Future for AcquirePath {
    type Output = AcquireResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<AcquireResult> {
        if let Self::Waits(waiter) = &mut *self {
            match std::task::ready!(Pin::new(&mut *waiter).poll(cx)) {
                Notification::Hold(mut hold) if hold.is_held() => {
                    let open = waiter.request().context.core.refuse_if_closed();
                    waiter.request().set_path(AcquireEnd::HandedOver);
                    follow(&mut hold);
                    return Poll::Ready(open.map(|()| Some(hold)));
                }
                notification => {
                    let (request, number) = (Arc::clone(waiter.request()), waiter.number());
                    *self = Self::Asks(Box::pin(go_on(request, notification, number)));
                }
            }
        }
        match &mut *self {
            Self::Asks(rest) => rest.as_mut().poll(cx),
            Self::Waits(_) => Poll::Pending,
        }
    }
}
