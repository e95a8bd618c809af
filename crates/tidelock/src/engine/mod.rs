//! The engine: the acquire loop, the local queues, the lease table and the steward. It knows a store only by the
//! backend trait. This file contains the state that all clones of a client share.
//!
//! Each room names only the rooms below it: `acquire`, `local_queue`, `fairness`, `lease`, `instruments`,
//! `runtime`. A hold and the steward know
//! the local queues above them by two traits, [`Queues`](lease::leader_term::Queues) and
//! [`HoldContext`](lease::hold::HoldContext).

pub(crate) mod acquire;
pub(crate) mod fairness;
pub(crate) mod instruments;
pub(crate) mod job_runs;
pub(crate) mod lease;
pub(crate) mod local_queue;
pub(crate) mod own_candidates;
pub(crate) mod runtime;
pub(crate) mod store_handle;
pub(crate) mod store_health;
pub(crate) mod waiting_calls;

use std::sync::Arc;
use std::time::Duration;

use crate::acknowledge::ReplicaAck;
use crate::engine::job_runs::JobRuns;
use crate::engine::lease::process_info::ProcessInfo;
use crate::engine::lease::steward::StewardHandle;
use crate::engine::local_queue::queued_store::QueuedStore;
use crate::engine::own_candidates::OwnCandidates;
use crate::engine::runtime::in_flight::InFlightCounter;
use crate::engine::runtime::retry;
use crate::engine::runtime::timers::Timers;
use crate::engine::waiting_calls::WaitingCalls;
use crate::error::{Error, ErrorKind, Result};
use crate::types::{Drift, OwnerMint};

/// The settings of a client that the engine needs.
#[derive(Debug, Clone)]
pub(crate) struct ClientSettings {
    pub(crate) lease: Duration,
    pub(crate) response_timeout: Duration,
    /// How long an acquire waits for a client that has not connected yet, if that is longer than the lease.
    pub(crate) connect_within: Duration,
    pub(crate) drift: Drift,
    pub(crate) prefix: String,
    pub(crate) acknowledge: ReplicaAck,
    /// From how long on an acquire is logged as slow.
    pub(crate) slow_acquire: Duration,
}

/// The state that the clones of a client, its locks and its guards share.
#[derive(Debug)]
pub(crate) struct ClientInner {
    /// The client's own store.
    pub(crate) home: QueuedStore,
    /// The same store with the plain layout of locks, if it has one. It has local queues of its own: a plain lock and
    /// another lock of the same name are different locks.
    pub(crate) plain: Option<QueuedStore>,
    pub(crate) settings: ClientSettings,
    pub(crate) mint: OwnerMint,
    pub(crate) timers: Timers,
    pub(crate) steward: StewardHandle,
    pub(crate) process_info: Arc<ProcessInfo>,
    /// Counts the acquisitions that wait.
    pub(crate) waiting: Arc<InFlightCounter>,
    /// The acquisitions that the store has refused once, or that wait behind another of this client.
    pub(crate) waiting_calls: WaitingCalls,
    pub(crate) own_candidates: OwnCandidates,
    pub(crate) job_runs: JobRuns,
}

impl ClientInner {
    /// Fails if the client is closed. Check after you have registered with the in-flight counter, a queue or the lease
    /// table. Otherwise a `close` between the two would miss this operation.
    pub(crate) fn refuse_if_closed(&self) -> Result<()> {
        if self.steward.closed.is_set() {
            Err(Error::new(ErrorKind::Closed))
        } else {
            Ok(())
        }
    }

    /// Fails in a process that was forked from the one that made the client. It has a copy of the client, and the requests of
    /// both would have the same owners: what the store has granted to one of them it would grant to the other, as a
    /// repeated request. Costs a system call.
    ///
    /// # Errors
    /// [`ErrorKind::Runtime`].
    pub(crate) fn refuse_after_fork(&self) -> Result<()> {
        if self.mint.is_of_this_process() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Runtime).because(
            "the client was made by another process, from which this one was forked, and its threads exist only there; connect after the fork",
        ))
    }

    /// Repeats a request through an outage of the store, for at most `patience`. A freeze of this process is none.
    ///
    /// # Errors
    /// As [`retry::within`]. `Closed` when the client's background has ended: its timers have stopped then, so a pause
    /// between two tries would never end.
    pub(crate) async fn through_outage<T, F>(
        &self,
        patience: Duration,
        ask: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let longest = self.settings.response_timeout;
        let answered = retry::within(patience, longest, &self.timers, ask);
        self.steward.answered(answered).await
    }
}

#[cfg(test)]
mod tests;
