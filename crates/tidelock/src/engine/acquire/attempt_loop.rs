//! The acquire loop. It is the only one: every store and every kind of lock uses it.
//!
//! The loop sends a ticket (lock name and fresh owner) to the store until the store grants it. It knows no deadline:
//! the caller stops polling it. The algorithm:
//!
//! 1. Join the local queue of the name. The first request becomes the leader and runs the steps below for all waiters;
//!    the others wait for a notification (`path.rs`). These bypass the queue: a zero wait, a read-write lock, a store
//!    with queues of its own, and a set of stores.
//! 2. Fairness delay: if this process has just released the lock and other clients wait for it, they ask first.
//! 3. Register with the in-flight counter, check for `close`, send the ticket.
//! 4. Granted: insert the hold into the lease table, check for `close` again, return the hold.
//! 5. Refused: the first attempt has no patience, which is the cheapest request, unless this process hears of the turns
//!    in the store's queue already. On a store with wakes the second attempt follows at once; the store then arms a wake
//!    before it decides. After that, sleep.
//! 6. Error: pause (backoff), then send the same ticket. If an earlier request of the ticket may still take effect
//!    (only a set of stores reports that), withdraw the ticket and go on with a fresh one, also after a refusal.
//!
//! ```text
//!   waiting in the queue ─ notified ─┬─ TakeLeadership ─► drive, as the leader
//!                                    ├─ Hold ───────────► return it (closed: error; lost: join again)
//!                                    ├─ Probe ──────────► one attempt that bypasses the leader
//!                                    │                    (refused, no answer, lease over already: join again)
//!                                    ├─ JoinAgain ──────► join again, at the old position
//!                                    └─ Failed ─────────► return the error
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
//! Lock order: the turn of an owner comes first, and is held during the whole acquisition. The locks of the local
//! queues and of the lease table are taken one after the other, never together and never across an await.

use crate::engine::runtime::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::acquire::context::LockContext;
use crate::engine::acquire::grant::ProvedGrant;
use crate::engine::acquire::outage::StoreOutage;
use crate::engine::acquire::pending_ticket::PendingTicket;
use crate::engine::acquire::poller_place::{PollerPlace, pollers_ahead};
use crate::engine::acquire::request::{AcquireRequest, AcquireResult};
use crate::engine::acquire::wait_state::WaitState;
use crate::engine::instruments::WakeCause;
use crate::engine::lease::hold::Hold;
use crate::engine::local_queue::leader::Leader;
use crate::engine::local_queue::queue::LocalQueues;
use crate::engine::runtime::in_flight::{InFlight, InFlightCounter};
use crate::error::{Error, Result};
use crate::store::{Attempt, AttemptReply, BootInstant, Grant, Wait, Wake};

/// What the loop does next.
enum Next {
    Return(Option<Arc<Hold>>),
    WaitForTurn(Wait),
    BackOff(Error),
}

/// Decides after each answer of the store. `only_asks`: the wait is zero. `gone`: the caller has left.
fn decide(answer: Result<Result<Arc<Hold>, Wait>>, only_asks: bool, gone: bool) -> Next {
    match answer {
        Ok(Ok(hold)) => Next::Return(Some(hold)),
        Ok(Err(_)) if only_asks || gone => Next::Return(None),
        Ok(Err(wait)) => Next::WaitForTurn(wait),
        Err(_) if gone => Next::Return(None),
        Err(error) => Next::BackOff(error),
    }
}

/// Asks the store until it grants the lock or the wait ends. It has no deadline: the caller stops polling it, or passes
/// it to the steward. `None`: not free with a zero wait, or the caller left.
pub(crate) async fn drive(request: Arc<AcquireRequest>, leader: Option<Leader>) -> AcquireResult {
    AcquireLoop::new(&request, leader).run().await
}

/// Asks the store once, although another task leads the local queue. If the lock is granted, this task leads. `None`:
/// refused, or no answer.
pub(crate) async fn probe(
    request: &Arc<AcquireRequest>,
    queues: &Arc<LocalQueues>,
) -> AcquireResult {
    AcquireLoop::new(request, None).ask_once(queues).await
}

/// The acquire loop of one request.
///
/// It ends by its drop, and the order of the fields is the order of the drop. `close` waits for what is in flight, so we
/// stop counting only when the withdrawal is with the steward. We pass on leadership last: the attempt of the next leader
/// comes after all that this loop has sent.
struct AcquireLoop<'a> {
    request: &'a Arc<AcquireRequest>,
    backoff: StoreOutage,
    waiting: WaitState,
    /// Boxed to keep the future small: few stores count those that poll. `None`: this loop has not polled.
    place: Option<Box<PollerPlace<'a>>>,
    pending: PendingTicket<'a>,
    /// Set from before an attempt is sent until the loop has acted on its answer.
    in_flight: Option<InFlight<&'a InFlightCounter>>,
    /// `None`: asks only for itself, or the hold has begun a leader term.
    leader: Option<Leader>,
    /// False: the waiters may have an error of the store that must be cleared with the next answer. A former leader may
    /// have given them one; a queue that has just begun had no leader before.
    settled: bool,
    /// The store has refused the lock, to this loop or to the former leader.
    refused: bool,
    /// What ended the wait before the next attempt.
    woken: Option<WakeCause>,
}

/// The result of one attempt.
struct AttemptOutcome {
    /// When the attempt was sent. The lease is proved from here.
    sent: BootInstant,
    /// An earlier request of this ticket may still take effect. Unless it was granted, the loop takes a fresh ticket.
    doubt: bool,
    answer: Result<Attempt>,
}

impl<'a> AcquireLoop<'a> {
    /// With a leader, it continues with the wake of the former leader, so that the store need not arm another.
    fn new(request: &'a Arc<AcquireRequest>, mut leader: Option<Leader>) -> Self {
        let mut pending = PendingTicket::new(request);
        let mut waiting = match &request.context.queues {
            Some(_) if leader.is_some() => WaitState::leading(),
            Some(_) => WaitState::default(),
            None => WaitState::without_queue(request.context.core.settings.lease / 3),
        };
        waiting.set_wake(leader.as_mut().and_then(Leader::take_wake));
        pending.ask.armed_by = waiting.armed().map(Wake::part);
        let refused = pending.ask.armed_by.is_some();
        if refused || pending.hears_turns() {
            pending.ask.patience = request.patience();
        }
        Self {
            request,
            refused,
            backoff: StoreOutage::default(),
            waiting,
            place: None,
            pending,
            in_flight: None,
            settled: leader.as_ref().is_none_or(Leader::is_alone),
            leader,
            woken: None,
        }
    }

    async fn run(&mut self) -> AcquireResult {
        self.hold_back().await;
        loop {
            self.begin_attempt()?;
            self.pending.ask.spare = self.leader.as_mut().map_or(0, Leader::asks);
            self.waiting.asking();
            tracing::debug!(target: "tidelock::requests", lock = %self.request.name, "asking the store for the lock");
            let AttemptOutcome {
                sent,
                doubt,
                answer,
            } = self.ask().await;
            let answered = answer.is_ok();
            if answered {
                self.answered();
            }
            let answer = match answer {
                Ok(Attempt::Acquired(grant)) => self.granted(grant, sent).map(Ok),
                Ok(Attempt::Held(wait)) => Ok(Err(wait)),
                Err(error) => Err(error),
            };
            let gone = self.request.gone.load(Ordering::SeqCst);
            match decide(answer, self.request.only_asks(), gone) {
                Next::Return(hold) => return Ok(hold),
                Next::WaitForTurn(wait) => {
                    self.backoff = StoreOutage::default();
                    self.end_attempt(doubt).await;
                    self.wait_for_turn(wait).await;
                }
                Next::BackOff(error) => {
                    // A grant that came too late is still an answer, so an outage can only begin after it.
                    let since = if answered { self.now() } else { sent };
                    let leader = self.leader.as_ref();
                    let pause = self.backoff.pause(error, since, self.request, leader)?;
                    self.settled = false;
                    if self.request.context.store.front().capabilities().queues {
                        // A set may have released a part, and with it the place in a queue that the wake belongs to.
                        self.pending.ask.armed_by = None;
                    }
                    self.end_attempt(doubt).await;
                    rest(self.request, pause).await;
                }
            }
        }
    }

    /// The probe: one attempt. We take leadership only after the grant is proved. Otherwise a grant that came too late
    /// would end the leader term of a hold that is valid.
    async fn ask_once(&mut self, queues: &Arc<LocalQueues>) -> AcquireResult {
        self.begin_attempt()?;
        let AttemptOutcome { sent, answer, .. } = self.ask().await;
        let request = self.request;
        let proved = match answer {
            Ok(Attempt::Acquired(grant)) => {
                ProvedGrant::new(request, &mut self.pending, grant, sent).map(Some)
            }
            Ok(Attempt::Held(_)) => Ok(None),
            Err(error) => Err(error),
        };
        match proved {
            Ok(Some(proved)) => {
                let leader = Some(queues.take_leadership(&request.name));
                let hold = proved.into_hold(request, &mut self.pending, leader, None)?;
                Ok(Some(hold))
            }
            Ok(None) => {
                request.waiter.set_last_error(None);
                Ok(None)
            }
            Err(error) if error.is_retryable() => {
                request.waiter.set_last_error(Some(error));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// We register before we check for `close`. Otherwise a `close` that runs between the two would return while this
    /// attempt is still in flight.
    fn begin_attempt(&mut self) -> Result<()> {
        let core = &self.request.context.core;
        self.in_flight = Some(core.steward.in_flight());
        core.refuse_if_closed()?;
        core.refuse_after_fork()?;
        self.pending.enter_hosts()
    }

    /// Sends one attempt. Records in `pending` if an outcome is unknown, so that the ticket is withdrawn later.
    async fn ask(&mut self) -> AttemptOutcome {
        let front = self.request.context.store.front();
        let sent = self.request.context.core.timers.now();
        self.request.in_flight.store(true, Ordering::SeqCst);
        self.request.waiter.asked(sent);
        let AttemptReply { outcome, in_doubt } = front.attempt(&self.pending.ask).await;
        self.request.in_flight.store(false, Ordering::SeqCst);
        self.request
            .record_answer(sent, &outcome, self.woken.take());
        self.note_answer(&outcome);
        self.pending.in_doubt |= in_doubt || outcome.as_ref().is_err_and(Error::outcome_unknown);
        AttemptOutcome {
            sent,
            doubt: in_doubt,
            answer: outcome,
        }
    }

    /// Records the answer, for the error of a wait that ends. A grant needs no record: it ends the wait.
    fn note_answer(&self, outcome: &Result<Attempt>) {
        if !self.request.gone.load(Ordering::SeqCst) {
            // A caller that has left may keep the store from sending its request. That is no outage.
            self.request
                .context
                .store
                .heard(&self.request.name, outcome);
        }
        let held = match outcome {
            Ok(Attempt::Acquired(_)) => return,
            Ok(Attempt::Held(_)) => true,
            Err(_) => false,
        };
        self.request.waiter.answered(held, self.now());
        if held && let Some(leader) = &self.leader {
            leader.refused();
        }
    }

    /// The loop has acted on the answer. If an earlier request of the ticket may still take effect, the withdrawal of
    /// the ticket is with the steward before `close` stops waiting for this attempt.
    async fn end_attempt(&mut self, doubt: bool) {
        if doubt {
            self.start_over().await;
        }
        drop(self.pending.take_guest());
        drop(self.in_flight.take());
    }

    /// The store has answered: clears the error that the caller and the waiters may have.
    fn answered(&mut self) {
        self.waiting.answered();
        if !std::mem::replace(&mut self.settled, true) {
            self.request.waiter.set_last_error(None);
            if let Some(leader) = &self.leader {
                leader.last_error(None);
            }
        }
    }

    fn granted(&mut self, grant: Grant, sent: BootInstant) -> Result<Arc<Hold>> {
        let proved = ProvedGrant::new(self.request, &mut self.pending, grant, sent)?;
        let leader = self.leader.take();
        let wake = leader.as_ref().and_then(|_| self.waiting.give_up_wake());
        proved.into_hold(self.request, &mut self.pending, leader, wake)
    }

    /// Withdraws the ticket and goes on with a fresh one. With a zero wait we wait until the store has removed the old
    /// ticket, for at most a response timeout. Otherwise the store could refuse the next attempt because our own old
    /// ticket holds the lock. A caller with patience is woken when the old ticket is gone.
    async fn start_over(&mut self) {
        let gone = self.pending.start_over();
        if self.request.only_asks() {
            let context = &self.request.context;
            let limit = context.response_timeout();
            let wait = context.core.timers.limit(limit, gone);
            // Boxed, because this path is rare: inline, it would enlarge every future of the acquire loop.
            drop(Box::pin(wait).await);
        }
    }

    /// The fairness delay: lets waiters of other processes ask first. We check again after each pause, because one of
    /// them may have had the lock in the meantime, and another may be due before us.
    async fn hold_back(&self) {
        while let Some(pause) = self.due_to_others() {
            // For a wait that ends in the pause: the others have the lock.
            self.request.waiter.answered(true, self.now());
            // Boxed, because this path is rare: inline, the timer would enlarge every future of the acquire loop.
            Box::pin(rest(self.request, pause)).await;
        }
    }

    /// The next pause of the fairness delay. `None`: this process may ask now, or the client is closed.
    fn due_to_others(&self) -> Option<Duration> {
        let LockContext {
            core,
            store,
            queues,
            ..
        } = &*self.request.context;
        let name = &self.request.name;
        let pause = queues.as_ref()?.pause(name, || store.releases_seen(name));
        (!pause.is_zero() && !core.steward.closed.is_set()).then_some(pause)
    }

    /// After a refusal: returns at once if the next attempt must arm a wake, otherwise sleeps until it is time to ask.
    async fn wait_for_turn(&mut self, mut wait: Wait) {
        let request = self.request;
        let Self {
            waiting,
            place,
            pending,
            refused,
            ..
        } = self;
        let LockContext { core, store, .. } = &*request.context;
        let wakes = store.front().capabilities().wakes_for(request.terms.kind);
        let first = !std::mem::replace(refused, true);
        pending.ask.patience = request.patience();
        pending.ask.refused = true;
        waiting.take(&mut wait);
        pending.ask.armed_by = waiting.armed().map(Wake::part);
        request.begin_wait();
        if first {
            tracing::debug!(lock = %request.name, "the lock is held; waiting for it");
            request.explain_own_hold();
            if wakes && pending.ask.armed_by.is_none() {
                return; // with patience the store arms a wake before it decides, so no release is missed
            }
        }
        let recheck = wait
            .recheck
            .unwrap_or(request.terms.lease)
            .min(core.settings.lease)
            .max(Duration::from_millis(1));
        let wake = if wakes {
            waiting.sleep(recheck)
        } else {
            let polls = store.polls(&core.timers);
            let releases = store.front().extensions().releases;
            let interval = releases.and_then(|it| it.poll_interval(&request.name));
            let ahead = Box::pin(pollers_ahead(place, request, &pending.ask.ticket)).await;
            Some(waiting.poll(recheck, interval, ahead, polls, request.name.as_str()))
        };
        let mut cause = WakeCause::Timer;
        if let Some(wake) = wake {
            tokio::select! {
                biased;
                () = wake.woken() => {}
                () = core.steward.closed.happened() => {}
            }
            if wake.is_by_message() {
                cause = WakeCause::Message;
            }
        } else {
            rest(request, recheck).await;
        }
        self.woken = Some(cause);
        self.hold_back().await;
    }

    fn now(&self) -> BootInstant {
        self.request.context.core.timers.now()
    }
}

/// Waits for that time, or until the client is closed.
async fn rest(request: &AcquireRequest, time: Duration) {
    let core = &request.context.core;
    tokio::select! {
        biased;
        () = core.timers.after(time) => {}
        () = core.steward.closed.happened() => {}
    }
}
