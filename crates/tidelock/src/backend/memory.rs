//! The reference store, in this process only: for tests, examples and the simulator.
//!
//! Each `memory:` is a store of its own; all that connect to `memory:NAME` in one process share one.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::glob::matches_glob;
use crate::backend::{
    Ask, Attempt, Backend, BoxFuture, Capabilities, ClientId, Env, Grant, Moment, Name, OwnerId,
    Page, Released, Renewal, Renewed, Signals, Store, Ticket, Timers, Wait,
};
use crate::error::Result;
use crate::guard::FencingToken;
use crate::snapshot::{ClientInfo, Finding, Holder, Severity, Snapshot};

/// Stores that are shared by name.
static SHARED: LazyLock<Mutex<HashMap<String, Arc<World>>>> = LazyLock::new(Mutex::default);

/// What this store can do.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    wakes: true,
    tokens: true,
    queues: false,
    shared: false,
    durable: false,
    delays: true,
    sequencers: true,
};

/// Opens `memory:NAME`, or a new store if the name is empty.
pub(crate) fn open(name: &str, env: &Env) -> Store {
    let world = if name.is_empty() {
        Arc::new(World::new(env.timers.clone()))
    } else {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(
            shared
                .entry(name.to_owned())
                .or_insert_with(|| Arc::new(World::new(env.timers.clone()))),
        )
    };
    // Each client has waiters on its own timers; the record is shared.
    let signals = Signals::new(env.timers.clone(), |_| {});
    world.lock().listeners.push(signals.clone());
    Store::single(Arc::new(Memory {
        world,
        signals,
        timers: env.timers.clone(),
    }))
}

#[derive(Debug)]
struct World(
    Mutex<Records>,
    #[allow(dead_code, reason = "shown by Debug")] Timers,
);

#[derive(Debug, Default)]
struct Records {
    locks: HashMap<Name, Record>,
    /// Locks that are nobody's until then.
    barred: HashMap<Name, Moment>,
    tokens: HashMap<Name, u64>,
    withdrawn: HashMap<OwnerId, Moment>,
    clients: HashMap<ClientId, ClientInfo>,
    listeners: Vec<Signals>,
}

#[derive(Debug)]
struct Record {
    owner: OwnerId,
    ends: Moment,
    token: u64,
    delay: Duration,
}

impl World {
    fn new(timers: Timers) -> Self {
        Self(Mutex::default(), timers)
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One client's face of the store.
#[derive(Debug)]
struct Memory {
    world: Arc<World>,
    signals: Signals,
    timers: Timers,
}

impl Drop for Memory {
    fn drop(&mut self) {
        let mut records = self.world.lock();
        records
            .listeners
            .retain(|signals| !signals.is(&self.signals));
    }
}

impl Records {
    /// The holder at this instant; a lease that has ended is no holder.
    fn holder(&mut self, name: &Name, now: Moment) -> Option<&mut Record> {
        if let Some(record) = self.locks.get(name)
            && record.ends <= now
        {
            // It ended by itself, then: not when somebody looks.
            if !record.delay.is_zero() {
                let until = record.ends + record.delay;
                self.barred.insert(name.clone(), until);
            }
            self.locks.remove(name);
        }
        self.locks.get_mut(name)
    }

    /// For how long the lock, which nobody has, is nobody's yet.
    fn barred(&mut self, name: &Name, now: Moment) -> Option<Duration> {
        let left = self.barred.get(name)?.since(now);
        if left.is_zero() {
            self.barred.remove(name);
            return None;
        }
        Some(left)
    }

    /// Who is to be told, once the records are free for others: a task may be run inside of its wake-up.
    #[must_use]
    fn free(&mut self, name: &Name) -> Vec<Signals> {
        self.locks.remove(name);
        self.listeners.clone()
    }
}

fn tell(listeners: &[Signals], name: &Name) {
    for signals in listeners {
        signals.wake_one(name.as_str());
    }
}

impl Memory {
    fn decide(&self, ask: &Ask) -> Result<Attempt> {
        let wake = (!ask.armed).then(|| self.signals.arm(ask.ticket.name.as_str()));
        let now = self.timers.now();
        let mut records = self.world.lock();
        let Ticket { name, owner, .. } = &ask.ticket;
        if records.withdrawn.contains_key(owner) {
            return Err(crate::Error::new(crate::ErrorKind::Cancelled)
                .because("the attempt had been withdrawn"));
        }
        match records.holder(name, now) {
            Some(record) if record.owner == *owner => {
                record.ends = record.ends.max(now + ask.lease);
                Ok(Attempt::Acquired(Grant {
                    token: Some(FencingToken::new(record.token)),
                    ..Grant::default()
                }))
            }
            Some(record) => {
                let recheck = Some(record.ends.since(now));
                drop(records);
                Ok(Attempt::Held(Wait { wake, recheck }))
            }
            None => {
                if let Some(left) = records.barred(name, now) {
                    drop(records);
                    let recheck = Some(left);
                    return Ok(Attempt::Held(Wait { wake, recheck }));
                }
                let count = records.tokens.entry(name.clone()).or_default();
                let token = *count + 1;
                *count = token + u64::from(ask.spare);
                records.locks.insert(
                    name.clone(),
                    Record {
                        owner: owner.clone(),
                        ends: now + ask.lease,
                        token,
                        delay: ask.delay,
                    },
                );
                drop(records);
                Ok(Attempt::Acquired(Grant {
                    token: Some(FencingToken::new(token)),
                    more: ask.spare,
                    ..Grant::default()
                }))
            }
        }
    }

    fn end(&self, ticket: &Ticket) -> Released {
        let mut records = self.world.lock();
        match records.holder(&ticket.name, self.timers.now()) {
            Some(record) if record.owner == ticket.owner => {
                let listeners = records.free(&ticket.name);
                drop(records);
                tell(&listeners, &ticket.name);
                Released::Freed
            }
            _ => Released::NotHeld,
        }
    }

    fn keep(&self, renewal: &Renewal) -> Renewed {
        let now = self.timers.now();
        match self.world.lock().holder(&renewal.ticket.name, now) {
            Some(record) if record.owner == renewal.ticket.owner => {
                record.ends = record.ends.max(now + renewal.lease);
                Renewed::Kept
            }
            _ => Renewed::Gone,
        }
    }

    fn look(&self, name: &Name) -> Snapshot {
        let now = self.timers.now();
        let mut records = self.world.lock();
        let mut snapshot = Snapshot::free(name.as_str());
        let waiting = records
            .listeners
            .iter()
            .filter(|signals| signals.is_watched(name.as_str()));
        snapshot.waiters = Some(waiting.count() as u64);
        snapshot.token = records.tokens.get(name).copied().map(FencingToken::new);
        if let Some(record) = records.holder(name, now) {
            let (owner, left) = (record.owner.clone(), record.ends.since(now));
            snapshot.expires_in = Some(left);
            let mut holder = Holder::new(owner.to_string(), 1);
            holder.client = records.clients.get(owner.client()).cloned();
            snapshot.holders.push(holder);
        }
        snapshot
    }
}

fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

impl Backend for Memory {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn attempt<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Result<Attempt>> {
        ready(self.decide(ask))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        ready(Ok(batch.iter().map(|renewal| self.keep(renewal)).collect()))
    }

    fn lane(&self, _name: &Name) -> u64 {
        0
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        ready(Ok(self.end(ticket)))
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        let now = self.timers.now();
        let mut records = self.world.lock();
        records.withdrawn.retain(|_, until| *until > now);
        records
            .withdrawn
            .insert(ticket.owner.clone(), now + Duration::from_secs(300));
        drop(records);
        ready(Ok(self.end(ticket)))
    }

    fn check<'a>(
        &'a self,
        name: &'a Name,
        generation: FencingToken,
    ) -> BoxFuture<'a, Result<bool>> {
        let mut records = self.world.lock();
        let holder = records.holder(name, self.timers.now());
        let same = holder.is_some_and(|record| record.token == generation.get());
        drop(records);
        ready(Ok(same))
    }

    fn force_release<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<bool>> {
        let mut records = self.world.lock();
        let held = records.holder(name, self.timers.now()).is_some();
        let held = records.barred.remove(name).is_some() || held;
        let listeners = if held { records.free(name) } else { Vec::new() };
        drop(records);
        tell(&listeners, name);
        ready(Ok(held))
    }

    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        ready(Ok(self.look(name)))
    }

    fn list<'a>(&'a self, pattern: &'a str, _cursor: u64) -> BoxFuture<'a, Result<Page>> {
        let now = self.timers.now();
        let records = self.world.lock();
        let held = records.locks.iter().filter(|(_, record)| record.ends > now);
        let names = held
            .map(|(name, _)| name.as_str())
            .filter(|name| matches_glob(pattern, name))
            .map(str::to_owned)
            .collect();
        drop(records);
        ready(Ok(Page { names, next: None }))
    }

    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: &'a ClientInfo,
        _keep: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        self.world
            .lock()
            .clients
            .insert(client.clone(), info.clone());
        ready(Ok(()))
    }

    fn examine(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        ready(Ok(vec![
            Finding::new(
                Severity::Danger,
                "reach",
                "memory of this process",
                "no other process shares these locks",
            )
            .advise(
                "use it for tests; sqlite:PATH shares locks between the processes of a machine",
            ),
        ]))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        ready(())
    }
}
