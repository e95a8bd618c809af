//! The acquire request: what was asked for, and the state that the caller, the acquire loop and the store share.

use crate::engine::runtime::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::acquire::context::LockContext;
use crate::engine::acquire::upgrade_claim::UpgradeClaim;
use crate::engine::instruments::{AcquireEnd, Instruments};
use crate::engine::lease::hold::{Hold, Successor};
use crate::engine::local_queue::last_answer::LastAnswer;
use crate::engine::local_queue::leader::AcquireTerms;
use crate::engine::local_queue::waiter::{Notification, QueuedRequest, Waiter};
use crate::error::{Error, ErrorKind, Result};
use crate::options::AcquireOptions;
use crate::owner::{OwnerSlot, TurnHolder};
use crate::store::{Caller, LockKind, Name, OwnerId};

/// The part of the response timeout for which an attempt may be without an answer before a wait that ends blames the
/// store: a quarter. It is well above a round trip, because a busy store is not an outage.
const TOLERATED_SILENCE: u32 = 4;

/// The result of an acquisition. `None`: not free with a zero wait, or the caller has left.
pub(crate) type AcquireResult = Result<Option<Arc<Hold>>>;

/// One acquire request: its options, and the state that the caller, the acquire loop and the local queue share. It is a
/// single allocation, because many waiters for one name exist at once and each further allocation costs all of them.
pub(crate) struct AcquireRequest {
    pub(crate) context: Arc<LockContext>,
    pub(crate) name: Name,
    pub(crate) options: AcquireOptions,
    pub(crate) location: &'static Location<'static>,
    pub(crate) terms: AcquireTerms,
    /// The owner of the write hold that this reader joins, for a downgrade.
    pub(crate) downgrade_of: Option<OwnerId>,
    /// The upgradeable hold beside which this writer enters, for an upgrade. Boxed, because few requests have one.
    pub(crate) upgrade_of: Option<Box<UpgradeClaim>>,
    /// Through this the local queue notifies it. It also has the last error of the store.
    pub(crate) waiter: Waiter,
    /// The caller has left. A request in flight is finished in the background.
    pub(crate) gone: AtomicBool,
    /// A request is in flight. Invariant: the acquire loop is not dropped while this is set.
    pub(crate) in_flight: AtomicBool,
    /// It was counted as a waiter.
    waits: AtomicBool,
    /// How it gets the lock, if it gets it: the number of an [`AcquireEnd`].
    path: AtomicU8,
    /// How many attempts the store has answered.
    attempts: AtomicU32,
    /// How many were ahead when it took its position in the queue of the store, plus one. Zero: the store has not told it.
    position: AtomicU32,
}

impl AcquireRequest {
    /// # Errors
    /// [`ErrorKind::InvalidOptions`] for a duration out of range, and for options that exclude each other.
    pub(crate) fn new(
        context: Arc<LockContext>,
        kind: LockKind,
        name: Name,
        options: AcquireOptions,
        location: &'static Location<'static>,
    ) -> Result<Self> {
        let settings = &context.core.settings;
        let term = options
            .term(settings.lease, &settings.drift)
            .and_then(|term| options.check_permits(kind).map(|()| term))
            .map_err(|error| error.on_lock(&name))?;
        Ok(Self {
            terms: AcquireTerms {
                kind,
                lease: term.length,
                renewed: term.renewed,
                wish: options.acknowledge.unwrap_or(settings.acknowledge),
                delay: options.lock_delay.unwrap_or_default(),
            },
            context,
            name,
            options,
            location,
            downgrade_of: None,
            upgrade_of: None,
            waiter: Waiter::default(),
            gone: AtomicBool::new(false),
            in_flight: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            path: AtomicU8::new(AcquireEnd::Direct as u8),
            attempts: AtomicU32::new(0),
            position: AtomicU32::new(0),
        })
    }

    pub(crate) fn instruments(&self) -> &Instruments {
        &self.context.core.steward.instruments
    }

    pub(crate) fn count_attempt(&self) {
        self.attempts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn attempts(&self) -> u32 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// The store has told how many are ahead. The first answer counts: it is how long the queue was.
    pub(crate) fn took_position(&self, ahead: u32) {
        let (position, order) = (ahead.saturating_add(1), Ordering::Relaxed);
        // We ignore a failure: an earlier answer has told it.
        let _ = self.position.compare_exchange(0, position, order, order);
    }

    /// How many were ahead when it took its position. `None`: the store has not told it.
    pub(crate) fn queue_position(&self) -> Option<u32> {
        self.position.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The lock, for the instruments.
    pub(crate) fn subject(&self) -> (LockKind, &Name) {
        (self.terms.kind, &self.name)
    }

    /// From now on the call waits. Counted once.
    pub(crate) fn begin_wait(&self) {
        if !self.waits.swap(true, Ordering::SeqCst) {
            self.set_path(AcquireEnd::Waited);
            let core = &self.context.core;
            let (kind, now) = (self.terms.kind, core.timers.now());
            core.waiting_calls.begin(self.id(), &self.name, kind, now);
            self.instruments().waits(self.subject(), true);
        }
    }

    /// The call has ended: it waits no more.
    pub(crate) fn end_wait(&self) {
        if self.waits.load(Ordering::SeqCst) && self.waits.swap(false, Ordering::SeqCst) {
            self.context.core.waiting_calls.end(self.id());
            self.instruments().waits(self.subject(), false);
        }
    }

    /// Its address: a request is shared, so it stays where it is while the call waits.
    fn id(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }

    pub(crate) fn set_path(&self, path: AcquireEnd) {
        self.path.store(path as u8, Ordering::SeqCst);
    }

    /// How it has got the lock.
    pub(crate) fn path(&self) -> AcquireEnd {
        let number = usize::from(self.path.load(Ordering::SeqCst));
        AcquireEnd::ALL[number]
    }

    /// The longest wait.
    pub(crate) fn patience(&self) -> Duration {
        self.options.wait.unwrap_or(Duration::MAX)
    }

    /// Whether the wait is zero: the caller takes the first answer of the store, and never waits in a queue.
    pub(crate) fn only_asks(&self) -> bool {
        self.patience().is_zero()
    }

    /// The slot of its owner for this lock. `None`: it has no owner.
    pub(crate) fn owner_slot(&self) -> Option<Arc<OwnerSlot>> {
        let owner = self.options.owner.as_ref()?;
        let LockContext { core, store, .. } = &*self.context;
        let client = core.mint.client();
        Some(owner.slot(client, store.set(), self.terms.kind, &self.name))
    }

    /// Refuses if the client is closed. Call it after the request has joined the local queue: a close that we do not
    /// see here comes later, and calls every waiter of the queue. In the other order, a close between the two would
    /// miss this waiter.
    pub(crate) fn announce_wait(&self) -> Result<()> {
        self.context.core.refuse_if_closed()?;
        self.begin_wait();
        self.explain_own_hold();
        Ok(())
    }

    /// Logs a wait for a lock that this client itself holds: in a server normal traffic, in one task a mistake that looks
    /// like a hang.
    pub(crate) fn explain_own_hold(&self) {
        // The search reads the whole lease table, so we search only if the message is logged.
        if tracing::enabled!(tracing::Level::DEBUG)
            && let Some(held_at) = self.context.core.steward.table.location_of(&self.name)
        {
            tracing::debug!(lock = %self.name, held_since = %held_at, waiting_at = %self.location, "this acquire waits for a guard of the same client; use an Owner to re-enter the lock");
        }
    }

    /// The error for a caller whose wait has timed out. It blames another owner only if the store has said that one
    /// holds the lock. Otherwise a store that hangs would look like a lock in demand.
    pub(crate) fn out_of_time(&self) -> Error {
        if let Some(error) = self.waiter.take_last_error() {
            return error;
        }
        let LockContext {
            core,
            queues,
            store,
            ..
        } = &*self.context;
        let queue = queues.as_ref().map(|queues| queues.last_answer(&self.name));
        // A wait for the turn among the acquisitions of its owner relies on those that have one.
        let ahead = self.owner_slot().map(|slot| slot.last_answer());
        let last = self.waiter.last_answer().or(queue.unwrap_or_default());
        let last = last.or(ahead.unwrap_or_default());
        let tolerance = self.context.response_timeout() / TOLERATED_SILENCE;
        if last.is_held(core.timers.now(), tolerance) {
            return Error::new(ErrorKind::TimedOut);
        }
        // Our attempt may still take effect; the client releases the lock then. A waiter has sent nothing itself.
        // While the client connects, no attempt was sent. That of a set may have been, but to too few of its members.
        let may_run = self.in_flight.load(Ordering::SeqCst) && !store.health().is_connecting();
        let kind = if may_run {
            ErrorKind::OutcomeUnknown
        } else {
            ErrorKind::Unavailable
        };
        let wait = self.patience();
        Error::new(kind).because(format!(
            "the store did not answer within the wait limit of {wait:?}"
        ))
    }
}

/// A call may be dropped before it ends. It must not stay in the list of waiting calls.
impl Drop for AcquireRequest {
    fn drop(&mut self) {
        self.end_wait();
    }
}

impl QueuedRequest for AcquireRequest {
    fn name(&self) -> &Name {
        &self.name
    }

    fn terms(&self) -> &AcquireTerms {
        &self.terms
    }

    fn waiter(&self) -> &Waiter {
        &self.waiter
    }
}

impl Successor for AcquireRequest {
    fn location(&self) -> &'static Location<'static> {
        self.location
    }

    fn max_hold(&self) -> Option<Duration> {
        self.options.max_hold
    }

    fn give(&self, hold: Arc<Hold>) {
        self.waiter.notify(Notification::Hold(hold));
    }

    fn join_again(&self) {
        self.waiter.notify(Notification::JoinAgain);
    }
}

impl Caller for AcquireRequest {
    fn has_left(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }
}

impl TurnHolder for AcquireRequest {
    fn last_answer(&self) -> LastAnswer {
        self.waiter.last_answer()
    }

    fn set_last_answer(&self, last: LastAnswer) {
        self.waiter.set_last_answer(last);
    }

    fn is_beside(&self) -> bool {
        self.upgrade_of.is_some() || self.downgrade_of.is_some()
    }
}

impl fmt::Debug for AcquireRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireRequest")
            .field("name", &self.name)
            .field("place", &self.location)
            .finish_non_exhaustive()
    }
}
