//! The records of a store in memory, which its clients share.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use super::queue::LockQueue;
use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::snapshot::ClientInfo;
use crate::store::{BootInstant, Capabilities, ClientId, Env, Name, OwnerId, Timers, WakeChannels};

/// The shared stores, by name. They live until the process ends.
static SHARED: LazyLock<Mutex<HashMap<String, Arc<World>>>> = LazyLock::new(Mutex::default);

#[derive(Debug)]
pub(crate) struct World {
    records: Mutex<Records>,
    pub(crate) can: Capabilities,
    #[allow(dead_code, reason = "shown by Debug")]
    timers: Timers,
}

#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) locks: HashMap<Name, LockQueue>,
    /// Locks that nobody can acquire until then, because of a lock-delay.
    pub(crate) barred: HashMap<Name, BootInstant>,
    /// The newest token of each lock.
    pub(crate) tokens: HashMap<Name, u64>,
    /// Withdrawn owners, and until when they are remembered.
    pub(crate) withdrawn: HashMap<OwnerId, BootInstant>,
    pub(crate) clients: HashMap<ClientId, ClientInfo>,
    /// The waiters of each client.
    pub(crate) listeners: Vec<WakeChannels>,
}

impl World {
    /// The store of this name, or a new one if the name is empty.
    pub(crate) fn named(name: &str, can: Capabilities, env: &Env) -> Arc<Self> {
        let fresh = || {
            Arc::new(Self {
                records: Mutex::default(),
                can,
                timers: env.timers.clone(),
            })
        };
        if name.is_empty() {
            return fresh();
        }
        let mut shared = SHARED.lock();
        Arc::clone(shared.entry(name.to_owned()).or_insert_with(fresh))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock()
    }
}

impl Records {
    /// The queue of a name, without expired entries. `None`: the lock has no holder and no waiter.
    pub(crate) fn queue(&mut self, name: &Name, now: BootInstant) -> Option<&mut LockQueue> {
        let queue = self.locks.get_mut(name)?;
        if let Some(until) = queue.tidy(now) {
            self.barred.insert(name.clone(), until);
        }
        if queue.is_empty() {
            self.locks.remove(name);
        }
        self.locks.get_mut(name)
    }

    /// When the lock-delay of a lock without a holder ends. `None`: no delay is running.
    pub(crate) fn barred(&mut self, name: &Name, now: BootInstant) -> Option<BootInstant> {
        let until = *self.barred.get(name)?;
        if until <= now {
            self.barred.remove(name);
            return None;
        }
        Some(until)
    }

    /// The waiters to wake after a release, a withdrawal or a force release. The caller wakes them after it has
    /// unlocked the records. Otherwise a task that runs inside its wake would deadlock.
    #[must_use]
    pub(crate) fn left(&mut self, name: &Name, now: BootInstant) -> Vec<(WakeChannels, Box<str>)> {
        let channels: Vec<Box<str>> = match self.queue(name, now) {
            Some(queue) => queue.next().map(|owner| owner.text().into()).collect(),
            None => vec![name.as_str().into()],
        };
        let told = channels.iter().flat_map(|channel| {
            let listeners = self.listeners.iter();
            listeners.map(|signals| (signals.clone(), channel.clone()))
        });
        told.collect()
    }
}
