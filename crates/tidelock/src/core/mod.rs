//! The engine: the acquire loop, the local queues, the lease table and the steward. It knows a store only by the
//! backend trait. This file contains the state that all clones of a client share.

pub(crate) mod acquire;
mod batch;
pub(crate) mod bond;
pub(crate) mod caller;
pub(crate) mod chance;
mod claim;
pub(crate) mod clock;
mod courtesy;
mod crowd;
mod debt;
mod drive;
mod entering;
mod heir;
pub(crate) mod hold;
mod in_flight;
pub(crate) mod lead;
pub(crate) mod line;
mod outage;
pub(crate) mod process_info;
#[cfg(feature = "fuzzing")]
pub(crate) mod queue;
#[cfg(not(feature = "fuzzing"))]
mod queue;
pub(crate) mod release;
pub(crate) mod retry;
pub(crate) mod rt;
pub(crate) mod seat;
pub(crate) mod signals;
pub(crate) mod site;
pub(crate) mod steward;
pub(crate) mod table;
pub(crate) mod timers;
mod turn;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::acknowledge::Acknowledge;
use crate::core::process_info::ProcessInfo;
use crate::core::site::Site;
use crate::core::steward::StewardHandle;
use crate::core::timers::Timers;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Drift;
use crate::owner::OwnerMint;

/// The settings of a client that the engine needs.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) lease: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) drift: Drift,
    pub(crate) prefix: String,
    pub(crate) acknowledge: Acknowledge,
}

/// The state that the clones of a client, its locks and its guards share.
#[derive(Debug)]
pub(crate) struct Core {
    /// The client's own store.
    pub(crate) home: Arc<Site>,
    pub(crate) settings: Settings,
    pub(crate) mint: OwnerMint,
    pub(crate) process_info: Arc<ProcessInfo>,
    pub(crate) timers: Timers,
    pub(crate) steward: StewardHandle,
    pub(crate) closed: Closed,
}

impl Core {
    /// Fails if the client is closed. Check after you have registered with the in-flight counter, a queue or the lease
    /// table. Otherwise a `close` between the two would miss this operation.
    pub(crate) fn refuse_if_closed(&self) -> Result<()> {
        if self.closed.is_set() {
            Err(Error::new(ErrorKind::Closed))
        } else {
            Ok(())
        }
    }
}

/// The flag that `Client::close` sets. It is never cleared.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    set: AtomicBool,
    bell: Notify,
}

impl Closed {
    /// Sets the flag and wakes all listeners. True for the first call only.
    pub(crate) fn set(&self) -> bool {
        let first = !self.set.swap(true, Ordering::SeqCst);
        self.bell.notify_waiters();
        first
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::SeqCst)
    }

    /// Resolves when the flag is set, at once if it is set already.
    pub(crate) async fn happened(&self) {
        let mut bell = std::pin::pin!(self.bell.notified());
        bell.as_mut().enable(); // before we read the flag; otherwise we miss a `close` in between
        if !self.is_set() {
            bell.await;
        }
    }
}
