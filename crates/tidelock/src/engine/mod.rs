//! The engine: the acquire loop, the local queues, the lease table and the steward. It knows a store only by the
//! backend trait. This file contains the state that all clones of a client share.

pub(crate) mod acquire;
pub(crate) mod lease;
pub(crate) mod local_queue;
pub(crate) mod runtime;
pub(crate) mod store_handle;

use std::sync::Arc;
use std::time::Duration;

use crate::acknowledge::ReplicaAck;
use crate::engine::lease::process_info::ProcessInfo;
use crate::engine::lease::steward::StewardHandle;
use crate::engine::runtime::event::Flag;
use crate::engine::runtime::timers::Timers;
use crate::engine::store_handle::StoreHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Drift;
use crate::owner::OwnerMint;

/// The settings of a client that the engine needs.
#[derive(Debug, Clone)]
pub(crate) struct ClientSettings {
    pub(crate) lease: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) drift: Drift,
    pub(crate) prefix: String,
    pub(crate) acknowledge: ReplicaAck,
}

/// The state that the clones of a client, its locks and its guards share.
#[derive(Debug)]
pub(crate) struct ClientInner {
    /// The client's own store.
    pub(crate) home: Arc<StoreHandle>,
    pub(crate) settings: ClientSettings,
    pub(crate) mint: OwnerMint,
    pub(crate) process_info: Arc<ProcessInfo>,
    pub(crate) timers: Timers,
    pub(crate) steward: StewardHandle,
    /// Set by `Client::close`.
    pub(crate) closed: Flag,
}

impl ClientInner {
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
