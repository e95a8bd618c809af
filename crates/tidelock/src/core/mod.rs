//! What the clones of a client share, and the machinery behind every lock.

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

/// The settings of a client that the machinery needs.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) lease: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) drift: Drift,
    pub(crate) prefix: String,
    pub(crate) acknowledge: Acknowledge,
}

/// What the clones of a client, its locks and its guards share.
#[derive(Debug)]
pub(crate) struct Core {
    /// Its own store.
    pub(crate) home: Arc<Site>,
    pub(crate) settings: Settings,
    pub(crate) mint: OwnerMint,
    pub(crate) process_info: Arc<ProcessInfo>,
    pub(crate) timers: Timers,
    pub(crate) steward: StewardHandle,
    pub(crate) closed: Closed,
}

impl Core {
    pub(crate) fn refuse_if_closed(&self) -> Result<()> {
        if self.closed.is_set() {
            Err(Error::new(ErrorKind::Closed))
        } else {
            Ok(())
        }
    }
}

/// Set once, by `Client::close`.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    set: AtomicBool,
    bell: Notify,
}

impl Closed {
    /// True for the caller that closes, false for every later one.
    pub(crate) fn set(&self) -> bool {
        let first = !self.set.swap(true, Ordering::SeqCst);
        self.bell.notify_waiters();
        first
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::SeqCst)
    }

    /// Resolves when it is set, also when that was long ago.
    pub(crate) async fn happened(&self) {
        let mut bell = std::pin::pin!(self.bell.notified());
        bell.as_mut().enable(); // before the flag is read, else a close in between would be missed
        if !self.is_set() {
            bell.await;
        }
    }
}
