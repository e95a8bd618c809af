//! The contract of a store: what every store answers, what operators need, and what only some stores have.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;

use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::snapshot::{ClientInfo, Finding, Snapshot};
use crate::store::{
    Attempt, AttemptReply, AttemptRequest, Released, ReleasesSeen, Renewal, Renewed, ReplicaAck,
    Ticket, Wait,
};
use crate::types::{ClientId, FencingToken, LockKind, OwnerId};

/// A boxed future. It makes [`Backend`] usable as `dyn`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What every store answers: single requests. A store does not retry, sets no timer and never waits for a lock.
///
/// 1. The server decides `attempt` at one instant. A repeated attempt of the same ticket, after a refusal or a lost
///    reply, neither queues twice nor counts twice. It never shortens a lease.
/// 2. If the store wakes and the request [wants a wake](AttemptRequest::wants_wake), a refusal carries one armed
///    *before* that instant, or none if the store cannot arm at the moment. A store whose wakes cost nothing arms one
///    without patience too.
/// 3. `release` ends the ticket's acquisition. `withdraw` does the same, removes anything else that the ticket left (a
///    position in a queue), and makes any later attempt of the ticket have no effect. Both may be repeated.
/// 4. No method retries a request that may have taken effect. An error that may have taken effect has the kind
///    [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown); one that certainly has not has the kind
///    [`Unavailable`](crate::ErrorKind::Unavailable) or another.
/// 5. A grant or a renewal without the requested acknowledgements is no success. The grant is undone, and reported as
///    `Unavailable` if the undo is certain, otherwise as `OutcomeUnknown` and [in doubt](AttemptReply::in_doubt); the
///    renewal is [`Failed`](Renewed::Failed).
/// 6. Each call ends within the response timeout of its [`Env`](crate::store::Env), if necessary with an error.
/// 7. A future may be polled on several runtimes in turn, the last of them the background's. It must not own timers or
///    sockets of the runtime that first polled it; use [`Timers`](crate::store::Timers).
/// 8. A grant is valid until its lease or the condition of its [`Bond`](crate::store::Bond) ends; nobody else gets the
///    lock before. If a store can only detect the end, it severs the bond at that moment.
/// 9. All tickets for [permits](crate::store::LockKind::Permits) of one name together hold at most as many as the
///    semaphore has, however often it is asked. Permits that come back in any way are counted once.
///    A refused ticket keeps a position exactly if [`PermitCounter::queues`] is true.
/// 10. Tickets of a fair or a read-write lock are served in order of arrival. A [`Read`](crate::store::LockKind::Read)
///     ticket waits until no other kind is ahead of it; all other tickets wait until nothing is ahead. A ticket that was
///     refused with patience keeps its position until it is withdrawn, or until it makes no attempt for two leases. All
///     kinds on one name but permits compete with each other. A ticket that is a
///     [downgrade](AttemptRequest::downgrade_of) joins that write hold, so that no other writer gets the lock between
///     the two.
/// 11. An [`UpgradeableRead`](crate::store::LockKind::UpgradeableRead) ticket waits until only readers are ahead of it;
///     readers pass it. Of the holders at most one is such a ticket, and no ticket holds the lock beside it but readers and
///     its upgrade. A ticket that is an [upgrade](AttemptRequest::upgrade_of) waits for nothing but the other holders, and
///     everything else waits for it, also a ticket that came first or that gets a place ahead of it. It is never granted
///     while its reader does not hold the lock; each of its attempts then fails with [`Lost`](crate::ErrorKind::Lost), also if it
///     was granted before, and it keeps out nobody. The upgradeable hold stays as it is.
pub trait Backend: Operate + fmt::Debug + Send + Sync + 'static {
    /// The capabilities of the store. They never change.
    fn capabilities(&self) -> Capabilities;
    /// The abilities that only some stores have. They never change.
    fn extensions(&self) -> Extensions<'_>;
    /// Attempts to acquire the lock for this ticket.
    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply>;
    /// Renews a batch of one lane. The results are in the order of the batch.
    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>>;
    /// The lane of a lock. Lanes fail independently: a batch of renewals never mixes lanes, and a lane that hangs does
    /// not delay another. A lock may change its lane, for example with the server that has it; a batch that was formed
    /// before that must still be answered. It must not wait.
    fn lane(&self, name: &Name) -> u64;
    /// Releases the lock of the ticket.
    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>>;
    /// Removes everything that the ticket left, and makes its late requests have no effect.
    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>>;
    /// Closes connections and subscriptions gracefully.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// What operators need of every store.
pub trait Operate {
    /// Returns the visible state of a lock.
    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>>;
    /// Lists the names of held locks that match a glob (`*`, `?`), one page at a time. `after`: the cursor of the page
    /// before. A cursor is a position in the order of the names, or the store's own. It is no count of names: if names
    /// vanish between two pages, no other name is left out.
    fn list<'a>(&'a self, pattern: &'a str, after: Option<&'a str>) -> BoxFuture<'a, Result<Page>>;
    /// Frees the lock regardless of its holder, and wakes its waiters. Returns false if the lock was free.
    ///
    /// `seen`: an earlier look at the lock. The store frees the lock only if each of its holders is in it, and the newest
    /// token is the same, if it has one. It decides and frees at one instant. Otherwise an operator could take the lock
    /// from an owner that has got it meanwhile. If it is held otherwise, it stays as it is, and the answer is false.
    fn force_release<'a>(
        &'a self,
        name: &'a Name,
        seen: Option<&'a Snapshot>,
    ) -> BoxFuture<'a, Result<bool>>;
    /// Publishes the details of this process for [`CLIENT_INFO_TTL`]. `None`: removes them.
    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: Option<&'a ClientInfo>,
    ) -> BoxFuture<'a, Result<()>>;
    /// Looks for conditions that weaken a lock.
    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>>;
}

/// Bounds how long the details of a process stay in the store after [`Operate::announce`]. The client publishes them
/// again after a third of this.
pub const CLIENT_INFO_TTL: Duration = Duration::from_secs(3600);

/// The abilities that only some stores have. `None`: this store does not have it. A wrapper must decide on each.
#[derive(Clone, Copy)]
#[allow(
    missing_debug_implementations,
    reason = "references to the store itself"
)]
pub struct Extensions<'a> {
    /// Whether a given grant has the lock now: [`Capabilities::sequencers`].
    pub sequencers: Option<&'a dyn VerifySequencers>,
    /// The statement of a [`SqlFence`](crate::SqlFence), with the lock's name and a token as its parameters. It fails
    /// the user's own transaction unless this token is still the newest.
    pub sql_fence: Option<&'a str>,
    /// The counter of the fencing tokens, if it can be raised.
    pub token_counter: Option<&'a dyn TokenCounter>,
    /// What the jobs of [`OnceJob`](crate::once::OnceJob) did in each slot.
    pub marks: Option<&'a dyn Marks>,
    /// The permits of semaphores, if the store has them.
    pub permit_counter: Option<&'a dyn PermitCounter>,
    /// The latches and counting semaphores, if the store has them.
    pub counts: Option<&'a dyn Counts>,
    /// Which run of the server answers now.
    pub server_runs: Option<&'a dyn ServerRuns>,
    /// Releases that the client notices without asking for the lock.
    pub releases: Option<&'a dyn HearReleases>,
    /// The locks with waiters that the store shows by itself.
    pub awaited: Option<&'a dyn ListAwaited>,
    /// The clients that poll for a lock, if the store wakes nobody and can count them.
    pub pollers: Option<&'a dyn Pollers>,
}

impl<'a> Extensions<'a> {
    /// The marks, for a wrapper whose inner store has them.
    pub(crate) fn need_marks(&self) -> Result<&'a dyn Marks> {
        let marks = self.marks;
        marks.ok_or_else(|| Error::new(ErrorKind::Unsupported))
    }

    /// The latches and counting semaphores, for a wrapper whose inner store has them.
    pub(crate) fn need_counts(&self) -> Result<&'a dyn Counts> {
        let counts = self.counts;
        counts.ok_or_else(|| Error::new(ErrorKind::Unsupported))
    }

    /// No ability besides the contract.
    pub const NONE: Self = Self {
        sequencers: None,
        sql_fence: None,
        token_counter: None,
        marks: None,
        permit_counter: None,
        counts: None,
        server_runs: None,
        releases: None,
        awaited: None,
        pollers: None,
    };
}

/// See [`Extensions::sequencers`].
pub trait VerifySequencers: Send + Sync {
    /// Tells whether the grant with this token has the lock now. It uses a linearizable read, not the state of a server
    /// that may lag.
    fn verify<'a>(
        &'a self,
        name: &'a Name,
        generation: FencingToken,
    ) -> BoxFuture<'a, Result<bool>>;
}

/// See [`Extensions::token_counter`].
pub trait TokenCounter: Send + Sync {
    /// Raises the counter that the next tokens of this lock come from to `newest`, unless it is there or beyond. It
    /// never lowers the counter and touches no hold. Returns the newest token that was given out or reserved, now. Every
    /// attempt that is decided later gets larger ones. A call that changes nothing writes nothing, and the call may be
    /// repeated.
    fn raise<'a>(&'a self, name: &'a Name, newest: u64) -> BoxFuture<'a, Result<u64>>;
}

/// See [`Extensions::marks`]. A mark is a line of text, one for each slot of a lock's name. It is no part of the lock: no
/// method looks at a hold.
pub trait Marks: Send + Sync {
    /// The time of the store, of the server that has this name. A store without a clock returns the time of this
    /// machine.
    fn now<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<SystemTime>>;
    /// The mark of a slot. `None`: it has none, or its mark has expired.
    fn read<'a>(&'a self, name: &'a Name, slot: &'a str) -> BoxFuture<'a, Result<Option<String>>>;
    /// Gives the slot the mark [`after`](MarkChange::after), if its mark is [`before`](MarkChange::before) at that
    /// instant. Returns whether it did. Otherwise it changes nothing. If the slot has `after` already, because the reply
    /// to an earlier call was lost, a store may write it again and return true.
    ///
    /// A store with replicas returns true only when as many as [`wish`](MarkChange::wish) says have acknowledged the
    /// write. If they do not, it fails with [`ErrorKind::OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown).
    fn replace<'a>(&'a self, name: &'a Name, change: MarkChange<'a>)
    -> BoxFuture<'a, Result<bool>>;
    /// The slots of this name that have a mark, with their marks; at most `limit`, the one that was written last first.
    fn history<'a>(
        &'a self,
        name: &'a Name,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>>;
}

/// A change of the mark of one slot.
#[derive(Debug, Clone, Copy)]
pub struct MarkChange<'a> {
    /// The slot.
    pub slot: &'a str,
    /// What the slot must have. `None`: no mark.
    pub before: Option<&'a str>,
    /// What it has then. An empty mark may be removed at once.
    pub after: &'a str,
    /// For how long the store keeps the mark, at least.
    pub keep: Duration,
    /// The replicas that must acknowledge the write.
    pub wish: ReplicaAck,
}

impl<'a> MarkChange<'a> {
    /// A change that a failover may lose: no replica must acknowledge it.
    pub fn unacknowledged(
        slot: &'a str,
        before: Option<&'a str>,
        after: &'a str,
        keep: Duration,
    ) -> Self {
        Self {
            slot,
            before,
            after,
            keep,
            wish: ReplicaAck::Off,
        }
    }
}

/// See [`Extensions::permit_counter`].
pub trait PermitCounter: Send + Sync {
    /// Whether a refused ticket for permits keeps a position in a queue of the store until it is withdrawn.
    fn queues(&self) -> bool;
    /// Changes the number of permits of a semaphore, and wakes its waiters if some are available then. It takes no
    /// permit from a holder. Returns false if nothing was changed.
    fn change<'a>(&'a self, name: &'a Name, change: PermitChange) -> BoxFuture<'a, Result<bool>>;
}

/// A change of the number of permits of a semaphore, those that are held included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermitChange {
    /// To this number, unless the semaphore has one already.
    SetIfNew(u32),
    /// To this number.
    Set(u32),
    /// By this number.
    Add(i32),
}

/// See [`Extensions::counts`]. A count is a number that callers wait for and that nobody holds.
pub trait Counts: Send + Sync {
    /// Changes a count, and wakes all waiters if they may go on then. A change that took effect is remembered: the same
    /// id, repeated or late, has no second effect and gets the same answer. A change that took none need not be
    /// remembered. `settled` are earlier changes whose only request was answered: the store may forget them.
    fn change<'a>(
        &'a self,
        name: &'a Name,
        change: CountChange,
        id: &'a OwnerId,
        settled: &'a [OwnerId],
    ) -> BoxFuture<'a, Result<CountChanged>>;
    /// The count. 0: it has none.
    fn count<'a>(&'a self, name: &'a Name, kind: CountKind) -> BoxFuture<'a, Result<i64>>;
    /// Registers a waiter. The count may have changed before, so the caller must ask again. Without a wake in the result
    /// the caller polls.
    fn arm<'a>(&'a self, name: &'a Name, kind: CountKind) -> BoxFuture<'a, Result<Wait>>;
}

/// What a count is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountKind {
    /// A latch: how often it must still be counted down.
    Latch,
    /// A counting semaphore: how many permits it has now.
    Semaphore,
}

/// A change of a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountChange {
    /// Of a latch.
    Latch(LatchChange),
    /// Of a counting semaphore.
    Semaphore(SemaphoreChange),
}

impl CountChange {
    /// What the count is for.
    pub fn kind(self) -> CountKind {
        match self {
            Self::Latch(_) => CountKind::Latch,
            Self::Semaphore(_) => CountKind::Semaphore,
        }
    }
}

/// A change of the count of a latch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatchChange {
    /// To this number, unless the latch has one.
    SetIfNew(u32),
    /// One less. An open latch stays open.
    CountDown,
    /// To none: the latch is open.
    Delete,
}

/// A change of the permits of a counting semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SemaphoreChange {
    /// To this number, unless the semaphore has one.
    SetIfNew(u32),
    /// By this number.
    Add(i32),
    /// Takes this many, all or none.
    Take(u32),
    /// Gives this many back.
    GiveBack(u32),
    /// Takes all.
    Drain,
    /// Gives back what the change with the same id took, and stops that change from taking effect later.
    Undo,
}

/// The answer to a [`CountChange`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountChanged {
    /// Whether the change had an effect.
    pub changed: bool,
    /// The count after the change. If permits were taken: how many.
    pub count: i64,
}

/// See [`Extensions::server_runs`].
pub trait ServerRuns: Send + Sync {
    /// Returns the server run that answers now. After an attempt, this is the run that decided the attempt, or a later
    /// one. `None`: unknown.
    fn server_run(&self) -> BoxFuture<'_, Result<Option<Incarnation>>>;
}

/// See [`Extensions::releases`]. The methods send no request.
pub trait HearReleases: Send + Sync {
    /// The releases of this lock that the client has noticed. `None`: the client is not listening.
    fn seen(&self, name: &Name) -> Option<ReleasesSeen>;
    /// Whether a waiter with this ticket would hear of its turn at no further cost. Then already its first attempt has
    /// patience, and takes a position in the queue of the store.
    fn hears_turns(&self, ticket: &Ticket) -> bool;
    /// The poll interval of a waiter that has a [`Wake`](crate::store::Wake), in a store that does not always wake but
    /// does at the moment. `None`: the same as for a waiter without a wake.
    fn poll_interval(&self, name: &Name) -> Option<Duration>;
}

/// See [`Extensions::awaited`].
pub trait ListAwaited: Send + Sync {
    /// The names of the locks for which the store shows waiters, of any client. Some may be missing, and some may have had
    /// a waiter a moment ago.
    fn awaited(&self) -> BoxFuture<'_, Result<Vec<String>>>;
}

/// How often a poller shows that it is alive. Its pauses are shorter.
pub(crate) const POLLER_BEAT: Duration = Duration::from_secs(4);

/// See [`Extensions::pollers`]. A poller is a client that asks for one lock again and again. It joins the others once it
/// has waited for a while, and leaves when its wait ends. A store grants nothing by this list: a poller that counts too
/// many others asks too rarely, and one that counts too few asks too often.
pub trait Pollers: Send + Sync {
    /// Counts the pollers of the lock that joined before this ticket and have shown life in the last seconds. A store need
    /// not count more than some hundreds. `None`: this ticket is not among them.
    fn ahead<'a>(
        &'a self,
        ticket: &'a Ticket,
        beat: PollerBeat,
    ) -> BoxFuture<'a, Result<Option<u32>>>;
    /// This ticket polls no longer. Returns at once. If a request of [`ahead`](Self::ahead) arrives later and brings the
    /// ticket back, it counts until it has shown no life for some seconds.
    fn leave(&self, ticket: &Ticket);
}

/// What a poller shows to the others when it counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollerBeat {
    /// It is new: behind all others.
    Join,
    /// It is alive.
    Stay,
    /// Nothing: it only counts.
    Skip,
}

/// The capabilities of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "a table of abilities, not a state"
)]
pub struct Capabilities {
    /// The kinds of lock that the store has. A request for any other kind fails before any traffic.
    pub kinds: &'static [LockKind],
    /// The store wakes waiters. Otherwise the acquire loop polls.
    pub wakes: bool,
    /// A refused ticket keeps a position in a queue of the store until it is withdrawn.
    pub queues: bool,
    /// Processes of other machines can share the locks.
    pub shared: bool,
    /// A reported grant survives a crash of the store.
    pub durable: bool,
    /// After a hold that ended without a release, the store can delay the next grant: [`AttemptRequest::delay`].
    pub delays: bool,
    /// The store can tell whether a given grant has the lock now. True exactly if it has [`Extensions::sequencers`].
    pub sequencers: bool,
    /// The counter of fencing tokens can be raised. True exactly if it has [`Extensions::token_counter`].
    pub raises_tokens: bool,
    /// The store keeps marks of slots. True exactly if it has [`Extensions::marks`].
    pub marks: bool,
    /// The store has count-down latches and counting semaphores. True exactly if it has [`Extensions::counts`].
    pub counts: bool,
}

impl Capabilities {
    /// Grants and refusals of locks without tokens, nothing else.
    pub const NONE: Self = Self {
        kinds: &[LockKind::Mutex],
        wakes: false,
        queues: false,
        shared: false,
        durable: false,
        delays: false,
        sequencers: false,
        raises_tokens: false,
        marks: false,
        counts: false,
    };

    /// Whether the store has this kind of lock.
    pub fn has(&self, kind: LockKind) -> bool {
        self.kinds.iter().any(|own| own.number() == kind.number())
    }

    /// Whether a waiter for this kind of lock is woken. That for a spin lock never is. A process that waits for a fair or
    /// a read-write lock looks at its queue for all its waiters, and wakes those that have been granted the lock, also
    /// where the store wakes nobody.
    pub(crate) fn wakes_for(&self, kind: LockKind) -> bool {
        kind.is_queued() || self.wakes && !kind.is_spin()
    }
}

/// One page of [`Operate::list`].
#[derive(Debug, Default)]
pub struct Page {
    /// Names of held locks, in no order. A name may appear twice.
    pub names: Vec<String>,
    /// The cursor of the next page. `None`: this was the last page.
    pub next: Option<String>,
}

/// One run of a server process. A server that lost all its state is a new run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incarnation {
    /// The id of the run, different for every start.
    pub id: Arc<str>,
    /// The minimum time that the server has been up.
    pub up: Duration,
}

/// A future that is ready: the answer of a store that asks no server.
pub fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

/// The reply of a store whose attempts are never in doubt.
pub fn certain<'a>(
    outcome: impl Future<Output = Result<Attempt>> + Send + 'a,
) -> BoxFuture<'a, AttemptReply> {
    // Mapped, because an async block that awaits `outcome` would hold that future twice.
    Box::pin(outcome.map(Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A waiter that expects a wake in vain sleeps until the holder's lease ends. One that is woken and polls too costs the
    /// store requests.
    #[test]
    fn each_store_wakes_the_waiters_of_a_queue_and_none_those_of_a_spin_lock() {
        for (kind, by_one_that_wakes, by_one_that_does_not) in [
            (LockKind::Mutex, true, false),
            (LockKind::Permits(2), true, false),
            (LockKind::Spin, false, false),
            (LockKind::SpinFenced, false, false),
            (LockKind::FairFenced, true, true),
            (LockKind::Read, true, true),
        ] {
            for (wakes, expected) in [(true, by_one_that_wakes), (false, by_one_that_does_not)] {
                let can = Capabilities {
                    wakes,
                    ..Capabilities::NONE
                };
                assert_eq!(can.wakes_for(kind), expected, "{kind:?}, {wakes}");
            }
        }
    }
}
