//! The waiters of this process for fair locks, on stores that keep the queue in a table.
//!
//! 1. An attempt with patience puts a row into the table: the store orders the rows by their arrival, and counts the
//!    waiter as alive for [`ALIVE`].
//! 2. The transaction that frees the lock removes waiters that are no longer alive, and grants the lock to the first one
//!    that is. So does any transaction that finds the lock free. The grant ends after [`unconfirmed`], unless its owner
//!    confirms it.
//! 3. The process looks at the table ([`QueueTable::look`]): a waiter of its own without a row has been granted the
//!    lock, or has lost its place. It wakes that waiter, whose next attempt confirms the grant or queues again.
//! 4. Every [`BEAT`] a look also shows that the process is alive: one request for all its waiters of a name.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::runtime::poll_pace::PollPace;
use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::store::beats::{ALIVE, BEAT, Beat, Beats};
use crate::store::{
    AttemptRequest, Background, BootInstant, Name, OwnerId, Timers, Wake, WakeChannels,
};

/// Bounds how many waiters ahead a store counts. Further behind, the pause is a [`BEAT`] anyway.
pub(crate) const COUNTED: u32 = 256;

/// How long a grant lasts that the transaction of another client has made, for a waiter that asked for this lease. It is
/// not longer than its process counts as alive, and a confirmed lease is not shorter.
pub(crate) fn unconfirmed(lease: Duration) -> Duration {
    lease.min(ALIVE)
}

/// Bounds the waiters that a snapshot shows.
const SHOWN: usize = 100;

/// Shows the waiters of a fair lock, in their order.
pub(crate) fn show_queue(snapshot: &mut Snapshot, queue: Vec<String>) {
    snapshot.waiters = (!queue.is_empty()).then_some(queue.len() as u64);
    snapshot.queue = queue.into_iter().take(SHOWN).collect();
}

/// The place in the queue that an attempt asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FairPosition {
    /// The caller does not wait.
    None,
    Last,
    /// The caller had a place, and lost it because its process did not show that it is alive.
    First,
}

impl FairPosition {
    pub(crate) fn of(ask: &AttemptRequest) -> Self {
        match (ask.patience.is_zero(), ask.armed_by) {
            (true, _) => Self::None,
            (false, None) => Self::Last,
            (false, Some(_)) => Self::First,
        }
    }
}

/// The table of a store.
pub(crate) trait QueueTable: Send + Sync + 'static {
    /// Looks at the queue of a lock for this process, and grants a lock that is free to the first waiter. `beat`: also
    /// shows that the process is alive.
    fn look(
        &self,
        name: &Name,
        client: &str,
        beat: bool,
    ) -> impl Future<Output = Result<QueueLook>> + Send;

    /// Whether a message tells this process of its grants now. Then a look comes only with a beat.
    fn is_told(&self) -> bool {
        false
    }
}

/// What a look at the queue has shown.
#[derive(Debug, Default)]
pub(crate) struct QueueLook {
    /// The waiters of this process that have a place.
    pub(crate) waiting: HashSet<String>,
    /// How many waiters are ahead of the first of them, up to [`COUNTED`].
    pub(crate) ahead: u32,
    /// How long the holder's lease lasts. Zero: nobody holds the lock.
    pub(crate) left: Duration,
}

/// The waiters of this process.
pub(crate) struct FairWaiters<T> {
    beats: Arc<Beats<TableBeat<T>>>,
    signals: WakeChannels,
}

impl<T: QueueTable> FairWaiters<T> {
    /// `table`: with the connection of the steward's thread, on which the looks run.
    /// `signals`: wakes a waiter on the channel of its owner.
    pub(crate) fn new(
        table: T,
        signals: WakeChannels,
        timers: &Timers,
        background: &Background,
    ) -> Arc<Self> {
        let beat = TableBeat {
            table,
            signals: signals.clone(),
            timers: timers.clone(),
        };
        Arc::new(Self {
            beats: Beats::new(beat, timers.clone(), background.clone()),
            signals,
        })
    }

    /// Arms a wake, if the attempt wants one. Call it before the attempt: otherwise its turn could be missed.
    pub(crate) fn arm(&self, ask: &AttemptRequest) -> Option<Wake> {
        ask.wants_wake()
            .then(|| self.signals.arm(ask.ticket.owner.text()))
    }

    /// The attempt was refused. If it waits, it has a place now. The next look follows at once: the lock may have been
    /// freed by a transaction that did not see that place.
    pub(crate) fn was_refused(&self, ask: &AttemptRequest) {
        if !ask.patience.is_zero() {
            self.beats.enter(&ask.ticket.name, &ask.ticket.owner);
            self.beats.hurry(&ask.ticket.name);
        }
    }

    /// The next look at this queue comes at once: somebody has left the lock free.
    #[cfg(feature = "postgres")]
    pub(crate) fn look_now(&self, name: &str) {
        if let Ok(name) = Name::new(name) {
            self.beats.hurry(&name);
        }
    }

    /// The waiter has the lock, or gives up its place.
    pub(crate) fn leave(&self, name: &Name, owner: &OwnerId) {
        self.beats.leave(name, owner);
    }

    /// A transaction of this client has granted the lock to this owner. A waiter of this client need not wait for the
    /// next look.
    pub(crate) fn wake(&self, owner: &str) {
        self.signals.wake_one(owner);
    }

    pub(crate) fn close(&self) {
        self.beats.close();
    }
}

impl<T> std::fmt::Debug for FairWaiters<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FairWaiters").finish_non_exhaustive()
    }
}

struct TableBeat<T> {
    table: T,
    signals: WakeChannels,
    timers: Timers,
}

/// What the looks of one name remember.
#[derive(Default)]
pub(crate) struct LookState {
    /// When the process last showed that it is alive.
    shown: Option<BootInstant>,
    pace: PollPace,
}

impl LookState {
    /// The time until the next look.
    fn pause(&mut self, look: &QueueLook, told: bool) -> Duration {
        let pause = if told {
            BEAT
        } else {
            // A process behind others pauses as much longer as it has of them ahead, so that a crowd costs the store little
            // more than its head. The lock is handed to nobody else before.
            self.pace.pause(look.ahead, f64::from(look.ahead) + 1.0)
        };
        // The head comes when the lease ends. The others leave that to it, for as long as it lives.
        let ends = look.left + Duration::from_millis(1);
        if look.ahead == 0 && !look.left.is_zero() {
            pause.min(ends)
        } else {
            pause
        }
        .min(BEAT)
    }
}

impl<T: QueueTable> Beat for TableBeat<T> {
    type State = LookState;

    async fn beat(&self, name: &Name, owners: &[OwnerId], state: &mut LookState) -> Duration {
        let now = self.timers.now();
        // The rows of a process that has only just begun to wait are as young.
        let shown = *state.shown.get_or_insert(now);
        let due = now.since(shown) >= BEAT;
        let client = owners.first().map_or("", |owner| owner.client());
        let look = match self.table.look(name, client, due).await {
            Ok(look) => look,
            Err(error) => {
                tracing::debug!(lock = %name, %error, "a look at the queue of a fair lock was not answered");
                return BEAT / 4;
            }
        };
        if due {
            state.shown = Some(now);
        }
        for owner in owners {
            if !look.waiting.contains(owner.text()) {
                self.signals.wake_one(owner.text());
            }
        }
        state.pause(&look, self.table.is_told())
    }
}

#[cfg(test)]
mod tests;
