//! The acquire loop. It is the only one: every store and every kind of lock uses it.
//!
//! The loop sends a ticket (lock name and fresh owner) to the store until the store grants it. It knows no deadline:
//! the caller stops polling it. The algorithm:
//!
//! 1. Join the local queue of the name. The first request becomes the leader and runs the steps below for all waiters;
//!    the others wait to be called. These bypass the queue: a zero wait, a read-write lock, a store with queues of its
//!    own, and a set of stores.
//! 2. Fairness delay: if this process has just released the lock and other clients wait for it, they ask first.
//! 3. Register with the in-flight counter, check for `close`, send the ticket.
//! 4. Granted: insert the hold into the lease table, check for `close` again, return the hold.
//! 5. Refused: the first attempt has no patience, which is the cheapest request. On a store with wakes the second
//!    attempt follows at once; the store then arms a wake before it decides. After that, sleep.
//! 6. Error: pause (backoff), then send the same ticket. If an earlier request of the ticket may still take effect
//!    (only a set of stores reports that), withdraw the ticket and go on with a fresh one, also after a refusal.
//!
//! ```text
//!   waiting in the queue ─ call ─┬─ TakeLeadership ─► drive, as the leader
//!                                ├─ Hold ───────────► return it (closed: error; lost: join again)
//!                                ├─ Probe ──────────► one attempt that bypasses the leader (refused, no answer: join again)
//!                                ├─ JoinAgain ──────► join again, at the old position
//!                                └─ Failed ─────────► return the error
//!   drive ─► fairness delay ─► in flight
//!   in flight ─┬─ granted, lease proved ───────► hold in the lease table ─► return it (closed: release it, error)
//!              ├─ granted, lease over already ─► withdraw, fresh ticket; then as for an error
//!              ├─ refused ┬─ zero wait, or the caller has left ──────────► return None
//!              │          ├─ first refusal, store with wakes, none armed ─► in flight, with patience
//!              │          └─ otherwise ─► asleep ─ woken, recheck time, closed ─► fairness delay
//!              └─ error ──┬─ the caller has left ──────────────────► return None
//!                         ├─ no retry helps, or outage too long ───► return the error
//!                         └─ otherwise ─► backoff ─ over, closed ──► in flight
//! ```
//!
//! Invariants:
//! 1. All requests of a ticket carry the same owner, and the loop sends one at a time. A retry after a lost reply
//!    therefore cannot lock twice.
//! 2. `in_flight` of the acquire request is set exactly while an attempt is in flight. A caller that leaves then passes
//!    the future to the steward instead of dropping it; the steward finishes it and drops a hold that it returns.
//! 3. A ticket that the store may know ends as a hold in the lease table or by a withdrawal, on every path. A tombstone
//!    of the withdrawal stops a request that arrives later.
//! 4. `close` misses no grant: we register before we check for `close`, and check again after the insert.
//! 5. The lease is proved from the time the attempt was sent, never from the time of the reply.
//!
//! Lock order: an owner's async mutex comes first, and is held during the whole acquisition. The locks of the local
//! queues and of the lease table are taken one after the other, never together and never across an await.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::acquire::backoff::Backoff;
use crate::engine::acquire::path::{AcquirePath, AcquireResult};
use crate::engine::acquire::pending_ticket::PendingTicket;
use crate::engine::acquire::request::AcquireRequest;
use crate::engine::acquire::wait_state::WaitState;
use crate::engine::lease::hold::{Hold, HoldStatus};
use crate::engine::lease::table::LeaseEntry;
use crate::engine::local_queue::leader::Leader;
use crate::engine::local_queue::queue::{Joined, LocalQueues};
use crate::engine::local_queue::waiter::{Notification, WaiterFuture};
use crate::engine::store_handle::LockContext;
use crate::error::{Error, ErrorKind, Result};
use crate::owner::Owner;
use crate::store::{Attempt, AttemptReply, BootInstant, Grant, Wait, Wake};

/// The acquire loop of one request. It has no deadline: the caller stops polling it, or passes it to the steward.
pub(crate) struct AcquireLoop {
    pub(crate) request: Arc<AcquireRequest>,
}

/// The result of one attempt.
struct AttemptOutcome {
    /// When the attempt was sent. The lease is proved from here.
    sent: BootInstant,
    /// An earlier request of this ticket may still take effect. Unless it was granted, the loop takes a fresh ticket.
    doubt: bool,
    answer: Result<Attempt>,
}

impl AcquireLoop {
    pub(crate) fn of(waiter: &WaiterFuture) -> Self {
        let request = Arc::clone(waiter.request());
        Self { request }
    }

    /// Re-enters the hold of the given owner if it has one. Otherwise acquires the lock.
    pub(crate) fn enter(self) -> AcquirePath {
        match self.request.options.owner.clone() {
            Some(owner) => AcquirePath::Asks(Box::pin(self.enter_as(owner))),
            None => self.queue_up(),
        }
    }

    async fn enter_as(self, owner: Owner) -> AcquireResult {
        let slot = owner.slot(
            self.request.context.core.mint.client(),
            &self.request.context.store,
            self.request.terms.kind,
            &self.request.name,
        );
        // One acquisition of an owner at a time, so the second one finds the hold of the first and re-enters it.
        // Otherwise both would ask the store, and the second would wait for its own owner.
        let _turn = if self.request.only_asks() {
            match slot.turn.try_lock() {
                Ok(turn) => turn,
                Err(_) => return Ok(None),
            }
        } else {
            slot.turn.lock().await
        };
        if let Some(hold) = slot.current() {
            return hold.shared_with(self.request.terms.kind).map(Some);
        }
        let hold = self.queue_up().await?;
        if let Some(hold) = &hold {
            slot.put(hold);
        }
        Ok(hold)
    }

    /// Joins the local queue of the name. A zero wait bypasses it and goes straight to the store.
    ///
    /// We join before we create the future of the acquire loop: that future is large, and only the leader needs it.
    fn queue_up(self) -> AcquirePath {
        // A store with queues keeps a position for each waiter, and only requests of that waiter keep the position.
        let AcquireRequest { context, terms, .. } = &*self.request;
        let joins = !self.request.only_asks() && !context.store.queues_in_store(terms.kind);
        match context.store.queues().filter(|_| joins) {
            None => AcquirePath::ask(self, None),
            Some(queues) => match queues.join(&self.request, None) {
                Joined::Leads(leader) => AcquirePath::ask(self, Some(leader)),
                Joined::Waits(waiter) => AcquirePath::wait(waiter),
            },
        }
    }

    /// Acts on the call that ended a wait in the local queue. If the call brings no lock and no error, the request
    /// joins the queue again at its old position (`number`).
    pub(crate) async fn come(self, mut call: Notification, number: u64) -> AcquireResult {
        let Some(queues) = self.request.context.store.queues() else {
            return self.drive(None).await;
        };
        loop {
            match call {
                Notification::TakeLeadership(leader) => {
                    return Box::pin(self.drive(Some(*leader))).await;
                }
                Notification::Hold(hold) => {
                    self.request.context.core.refuse_if_closed()?;
                    if hold.is_held() {
                        return Ok(Some(hold));
                    }
                }
                Notification::Failed(error) => return Err(error),
                Notification::Probe => {
                    let granted = Box::pin(self.probe(queues)).await?;
                    if granted.is_some() || self.request.gone.load(Ordering::SeqCst) {
                        return Ok(granted);
                    }
                }
                Notification::JoinAgain => {}
            }
            let waiter = match queues.join(&self.request, Some(number)) {
                Joined::Leads(leader) => return Box::pin(self.drive(Some(leader))).await,
                Joined::Waits(waiter) => waiter,
            };
            self.request.announce_wait()?;
            call = waiter.await;
        }
    }

    /// Asks the store once, although another task leads the local queue. If the lock is granted, this task leads.
    async fn probe(&self, queues: &Arc<LocalQueues>) -> AcquireResult {
        // Declared before the ticket, so dropped after it: `close` also waits for the withdrawal, as in `drive`.
        let _in_flight = self.request.context.core.steward.in_flight();
        self.request.context.core.refuse_if_closed()?;
        let mut pending = PendingTicket::new(self);
        let asked = self.ask(&mut pending).await;
        match asked.answer {
            Ok(Attempt::Acquired(grant)) => {
                let mut leader = Some(queues.take_leadership(&self.request.name));
                let mut waiting = WaitState::default();
                self.grant(&mut pending, &grant, asked.sent, &mut leader, &mut waiting)
                    .map(Some)
            }
            Ok(Attempt::Held(_)) => {
                self.request.set_last_error(None);
                Ok(None)
            }
            Err(error) if error.is_retryable() => {
                self.request.set_last_error(Some(error));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends one attempt. Records in `pending` if an outcome is unknown, so that the ticket is withdrawn later.
    async fn ask(&self, pending: &mut PendingTicket<'_>) -> AttemptOutcome {
        let front = self.request.context.store.front();
        let sent = self.request.context.core.timers.now();
        self.request.in_flight.store(true, Ordering::SeqCst);
        let AttemptReply { outcome, in_doubt } = front.attempt(&pending.ask).await;
        self.request.in_flight.store(false, Ordering::SeqCst);
        pending.unclear |= in_doubt || outcome.as_ref().is_err_and(Error::outcome_unknown);
        AttemptOutcome {
            sent,
            doubt: in_doubt,
            answer: outcome,
        }
    }

    /// Asks the store until it grants the lock or the wait ends. `None`: not free with a zero wait, or the caller left.
    pub(crate) async fn drive(&self, mut leader: Option<Leader>) -> AcquireResult {
        // Declared before `pending`, so dropped after it: `close` also waits until the withdrawal is with the steward.
        let mut _in_flight = None;
        let mut pending = PendingTicket::new(self);
        let mut waiting = WaitState::default();
        if let Some(leader) = &mut leader {
            self.take_over(leader, &mut pending, &mut waiting);
        }
        self.hold_back().await;
        let mut backoff = Backoff::default();
        // False: the waiters may have an error of the store that must be cleared with the next answer. A former leader
        // may have given them one; a queue that has just begun had no leader before.
        let mut settled = leader.as_ref().is_none_or(Leader::is_alone);
        loop {
            // We register before we check for `close`. Otherwise a `close` that runs between the two would return
            // while this attempt is still in flight.
            _in_flight = Some(self.request.context.core.steward.in_flight());
            self.request.context.core.refuse_if_closed()?;
            pending.ask.spare = leader.as_mut().map_or(0, Leader::followers);
            waiting.asking();
            let AttemptOutcome {
                sent,
                doubt,
                answer,
            } = self.ask(&mut pending).await;
            let releases_seen = answer.is_ok();
            if releases_seen {
                waiting.answered();
                if !std::mem::replace(&mut settled, true) {
                    self.request.set_last_error(None);
                    if let Some(leader) = &leader {
                        leader.last_error(None);
                    }
                }
            }
            let answer = match answer {
                Ok(Attempt::Acquired(grant)) => self
                    .grant(&mut pending, &grant, sent, &mut leader, &mut waiting)
                    .map(Ok),
                Ok(Attempt::Held(wait)) => Ok(Err(wait)),
                Err(error) => Err(error),
            };
            let wait = match answer {
                Ok(Ok(hold)) => return Ok(Some(hold)),
                Ok(Err(wait)) => wait,
                Err(error) => {
                    if self.request.gone.load(Ordering::SeqCst) {
                        return Ok(None);
                    }
                    // A grant that came too late is still an answer, so an outage can only begin after it.
                    let since = if releases_seen {
                        self.request.context.core.timers.now()
                    } else {
                        sent
                    };
                    let pause = backoff.pause(error, since, self, leader.as_ref())?;
                    settled = false;
                    if doubt {
                        self.begin_anew(&mut pending).await;
                    }
                    _in_flight = None;
                    self.rest(pause).await;
                    continue;
                }
            };
            backoff = Backoff::default();
            if self.request.gone.load(Ordering::SeqCst) || self.request.only_asks() {
                return Ok(None);
            }
            if doubt {
                self.begin_anew(&mut pending).await;
            }
            _in_flight = None;
            self.wait_for_turn(&mut pending, &mut waiting, wait).await;
        }
    }

    /// Withdraws the ticket and goes on with a fresh one. With a zero wait we wait until the store has removed the old
    /// ticket, for at most a response timeout. Otherwise the store could refuse the next attempt because our own old
    /// ticket holds the lock. A caller with patience is woken when the old ticket is gone.
    async fn begin_anew<'a>(&'a self, pending: &mut PendingTicket<'a>) {
        let gone = pending.begin_anew(self);
        if self.request.only_asks() {
            let core = &self.request.context.core;
            let wait = core.timers.limit(core.settings.response_timeout, gone);
            // Boxed, because this path is rare: inline, it would enlarge every future of the acquire loop.
            drop(Box::pin(wait).await);
        }
    }

    /// Continues with the wake of the former leader, so that the store need not arm another.
    fn take_over(
        &self,
        leader: &mut Leader,
        pending: &mut PendingTicket<'_>,
        waiting: &mut WaitState,
    ) {
        waiting.set_wake(leader.take_wake());
        if let Some(wake) = waiting.armed() {
            pending.ask.armed_by = Some(wake.part());
            pending.ask.patience = self.request.patience();
        }
    }

    /// The fairness delay: lets waiters of other processes ask first. We check again after each pause, because one of
    /// them may have had the lock in the meantime, and another may be due before us.
    async fn hold_back(&self) {
        while let Some(pause) = self.due_to_others() {
            // Boxed, because this path is rare: inline, the timer would enlarge every future of the acquire loop.
            Box::pin(self.rest(pause)).await;
        }
    }

    /// The next pause of the fairness delay. `None`: this process may ask now, or the client is closed.
    fn due_to_others(&self) -> Option<Duration> {
        let LockContext { core, store } = &*self.request.context;
        let name = &self.request.name;
        let pause = store.queues()?.pause(name, || store.releases_seen(name));
        (!pause.is_zero() && !core.closed.is_set()).then_some(pause)
    }

    /// After a refusal: returns at once if the next attempt must arm a wake, otherwise sleeps until it is time to ask.
    async fn wait_for_turn(
        &self,
        pending: &mut PendingTicket<'_>,
        waiting: &mut WaitState,
        mut wait: Wait,
    ) {
        let LockContext { core, store } = &*self.request.context;
        let wakes = store.front().capabilities().wakes;
        let first = pending.ask.patience.is_zero();
        pending.ask.patience = self.request.patience();
        waiting.take(&mut wait);
        pending.ask.armed_by = waiting.armed().map(Wake::part);
        if first {
            self.request.explain_own_hold();
            if wakes && pending.ask.armed_by.is_none() {
                return; // with patience the store arms a wake before it decides, so no release is missed
            }
        }
        let recheck = wait
            .recheck
            .unwrap_or(self.request.terms.lease)
            .min(core.settings.lease)
            .max(Duration::from_millis(1));
        let wake = if wakes {
            waiting.sleep(recheck)
        } else {
            let polls = store.polls(&core.timers);
            let releases = store.front().extensions().releases;
            let interval = releases.and_then(|it| it.poll_interval(&self.request.name));
            Some(waiting.poll(recheck, interval, polls, self.request.name.as_str()))
        };
        match wake {
            Some(wake) => {
                tokio::select! {
                    biased;
                    () = wake.woken() => {}
                    () = core.closed.happened() => {}
                }
            }
            None => self.rest(recheck).await,
        }
        self.hold_back().await;
    }

    /// Waits for that time, or until the client is closed.
    async fn rest(&self, time: Duration) {
        tokio::select! {
            biased;
            () = self.request.context.core.timers.after(time) => {}
            () = self.request.context.core.closed.happened() => {}
        }
    }

    /// Turns a grant into a hold. From here on a drop releases the lock.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the reply took so long that the lease proves nothing: the ticket is withdrawn.
    /// [`ErrorKind::Closed`] if the client was closed: the hold is released.
    fn grant<'a>(
        &'a self,
        pending: &mut PendingTicket<'a>,
        grant: &Grant,
        sent: BootInstant,
        leader: &mut Option<Leader>,
        waiting: &mut WaitState,
    ) -> Result<Arc<Hold>> {
        let core = &self.request.context.core;
        let valid_until = sent + core.settings.drift.proved(self.request.terms.lease);
        let mut status = HoldStatus::new(valid_until, core.timers.clock());
        if self.request.terms.renewed {
            status = status.renewed_since(sent, self.request.terms.lease);
        }
        let status = status.bound(grant.bond.clone(), core.settings.drift);
        if !status.is_proved() {
            pending.unclear = true; // so that its drop, in the next statement, withdraws the granted ticket
            *pending = PendingTicket::new(self);
            return Err(Error::new(ErrorKind::Unavailable).because(
                "the store took longer to answer than the lease lasts; set a longer lease",
            ));
        }
        let store = &self.request.context.store;
        if let Some(queues) = store.queues() {
            let name = &self.request.name;
            queues.granted(name, || store.releases_seen(name));
        }
        // The term begins before the insert: the status in the table must have it, so that a loss ends the term.
        let term = leader
            .take()
            .and_then(|leader| leader.begin(self.request.terms, grant, waiting.give_up_wake()));
        let status = Arc::new(status.leading(term.as_ref()));
        let entry = LeaseEntry {
            store: Arc::clone(store),
            ticket: pending.ask.ticket.clone(),
            status: Arc::clone(&status),
            location: self.request.location,
            lease: self.request.terms.lease,
            wish: pending.ask.wish,
            unclear: pending.unclear,
            renew_at: if self.request.terms.renewed {
                sent + self.request.terms.lease / 3
            } else {
                BootInstant::FAR
            },
            asked: false,
            ends_at: self
                .request
                .options
                .max_hold
                .map_or(BootInstant::FAR, |cap| sent + cap),
        };
        let hold = Hold {
            entry: core.steward.table.insert(entry),
            context: Arc::clone(&self.request.context),
            ticket: pending.ask.ticket.clone(),
            token: grant.token,
            generation: grant.token,
            is_written: AtomicBool::new(false),
            status,
            unclear: pending.unclear,
            lease: self.request.terms.lease,
            wish: pending.ask.wish,
            acknowledged: grant.acknowledged,
            extension: AtomicU64::new(0),
            disarmed: AtomicBool::new(false),
            term,
        };
        pending.settled = true;
        // We check for `close` after the insert. `close` sets its flag before it reads the table, so either we see the
        // flag or `close` sees the hold.
        core.refuse_if_closed()?;
        Ok(Arc::new(hold))
    }
}
