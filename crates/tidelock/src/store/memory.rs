//! The reference store, in the memory of this process: for tests, examples and the simulator.
//!
//! Each client of `memory:` has a separate store. All clients of `memory:NAME` in one process share one. One mutex
//! guards all records; each lock has a queue of holders and waiters (`queue`).

mod queue;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use self::queue::{LockQueue, QueuedHold, channel};
use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::error::Result;
use crate::snapshot::{ClientInfo, Finding, Holder, Severity, Snapshot};
use crate::store::glob::matches_glob;
use crate::store::{
    Attempt, AttemptReply, AttemptRequest, Backend, BootInstant, BoxFuture, Capabilities, ClientId,
    Env, Extensions, Grant, LockKind, Name, Operate, OwnerId, Page, Released, Renewal, Renewed,
    Store, Ticket, Timers, VerifySequencers, WakeChannels, ready,
};
use crate::types::FencingToken;

/// The shared stores, by name. They live until the process ends.
static SHARED: LazyLock<Mutex<HashMap<String, Arc<World>>>> = LazyLock::new(Mutex::default);

/// What this store can do.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    kinds: &[
        LockKind::Mutex,
        LockKind::Fenced,
        LockKind::Read,
        LockKind::Write,
    ],
    wakes: true,
    queues: false,
    shared: false,
    durable: false,
    delays: true,
    sequencers: true,
};

/// How many leases of the client the queue keeps a waiter that does not ask again. A live waiter asks at least once per
/// lease.
const STATE_TTL_LEASES: u32 = 3;

/// Opens `memory:NAME`, or a new store if the name is empty.
pub(crate) fn open(name: &str, env: &Env) -> Store {
    let world = if name.is_empty() {
        Arc::new(World::new(env.timers.clone()))
    } else {
        let mut shared = SHARED.lock();
        Arc::clone(
            shared
                .entry(name.to_owned())
                .or_insert_with(|| Arc::new(World::new(env.timers.clone()))),
        )
    };
    // Each client has its own waiters and timers; the records are shared.
    let signals = WakeChannels::new(env.timers.clone(), |_| {});
    world.lock().listeners.push(signals.clone());
    Store::single(Arc::new(Memory {
        world,
        signals,
        timers: env.timers.clone(),
        lease: env.lease,
    }))
}

#[derive(Debug)]
struct World(
    Mutex<Records>,
    #[allow(dead_code, reason = "shown by Debug")] Timers,
);

#[derive(Debug, Default)]
struct Records {
    locks: HashMap<Name, LockQueue>,
    /// Locks that nobody can acquire until then, because of a lock-delay.
    barred: HashMap<Name, BootInstant>,
    /// The newest token of each lock.
    tokens: HashMap<Name, u64>,
    /// Withdrawn owners, and until when they are remembered.
    withdrawn: HashMap<OwnerId, BootInstant>,
    clients: HashMap<ClientId, ClientInfo>,
    /// The waiters of each client.
    listeners: Vec<WakeChannels>,
}

impl World {
    fn new(timers: Timers) -> Self {
        Self(Mutex::default(), timers)
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock()
    }
}

/// One client's handle to the store.
#[derive(Debug)]
struct Memory {
    world: Arc<World>,
    signals: WakeChannels,
    timers: Timers,
    /// The client's default lease.
    lease: Duration,
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
    /// The queue of a name, without expired entries. `None`: the lock has no holder and no waiter.
    fn queue(&mut self, name: &Name, now: BootInstant) -> Option<&mut LockQueue> {
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
    fn barred(&mut self, name: &Name, now: BootInstant) -> Option<BootInstant> {
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
    fn left(&mut self, name: &Name, now: BootInstant) -> Vec<(WakeChannels, Box<str>)> {
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

    /// Returns the next token, and reserves `spare` more after it.
    fn count(&mut self, name: &Name, spare: u32) -> u64 {
        let count = self.tokens.entry(name.clone()).or_default();
        let token = *count + 1;
        *count = token + u64::from(spare);
        token
    }
}

fn tell(told: &[(WakeChannels, Box<str>)]) {
    for (signals, channel) in told {
        signals.wake_one(channel);
    }
}

fn granted(token: u64, more: u32) -> Attempt {
    Attempt::Acquired(Grant {
        token: Some(FencingToken::new(token)),
        more,
        ..Grant::default()
    })
}

impl Memory {
    fn decide(&self, ask: &AttemptRequest) -> Result<Attempt> {
        let Ticket { kind, name, owner } = &ask.ticket;
        // A mutex has no queue entries for waiters, so we always arm. A waiter for a side has an entry in the queue, so
        // we arm only if it waits. We arm before we lock the records; otherwise a release between the two would be
        // missed.
        let waits = !ask.patience.is_zero();
        let arms = ask.armed_by.is_none() && (waits || !kind.is_read_write());
        let wake = arms.then(|| self.signals.arm(channel(&ask.ticket)));
        let now = self.timers.now();
        let mut records = self.world.lock();
        if records.withdrawn.contains_key(owner) {
            return Err(crate::Error::new(crate::ErrorKind::Cancelled)
                .because("the attempt was withdrawn before"));
        }
        // A retry of a ticket that holds the lock: extend its lease, keep its token.
        let held = records.queue(name, now).and_then(|queue| {
            let place = queue.held_by(owner)?;
            place.ends = place.ends.max(now + ask.lease);
            place.token
        });
        if let Some(token) = held {
            return Ok(granted(token, 0));
        }
        let way = records.queue(name, now);
        let way = way.and_then(|queue| queue.in_the_way(owner, *kind));
        // A running lock-delay blocks every kind. Waiters keep their entries meanwhile.
        let first_end = way.or_else(|| records.barred(name, now));
        let (ends, token) = match first_end {
            None => (now + ask.lease, Some(records.count(name, ask.spare))),
            Some(_) => (now + self.lease * STATE_TTL_LEASES, None),
        };
        if token.is_some() || kind.is_read_write() && waits {
            let queue = records.locks.entry(name.clone()).or_default();
            queue.put(QueuedHold {
                kind: *kind,
                owner: owner.clone(),
                ends,
                token,
                delay: ask.delay,
            });
        }
        drop(records);
        Ok(match token {
            Some(token) => granted(token, ask.spare),
            None => Attempt::held(wake, first_end.map(|end| end.since(now))),
        })
    }

    fn end(&self, ticket: &Ticket) -> Released {
        let now = self.timers.now();
        let mut records = self.world.lock();
        let queue = records.queue(&ticket.name, now);
        let Some(held) = queue.and_then(|queue| queue.remove(&ticket.owner)) else {
            return Released::NotHeld;
        };
        let told = records.left(&ticket.name, now);
        drop(records);
        tell(&told);
        if held {
            Released::Freed
        } else {
            Released::NotHeld
        }
    }

    fn renew_one(&self, renewal: &Renewal) -> Renewed {
        let now = self.timers.now();
        let mut records = self.world.lock();
        let queue = records.queue(&renewal.ticket.name, now);
        match queue.and_then(|queue| queue.held_by(&renewal.ticket.owner)) {
            Some(place) => {
                place.ends = place.ends.max(now + renewal.lease);
                Renewed::Kept
            }
            None => Renewed::Gone,
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
        let mut waiting = waiting.count();
        snapshot.token = records.tokens.get(name).copied().map(FencingToken::new);
        if let Some(queue) = records.queue(name, now) {
            waiting += queue.waiters();
            for place in queue.holders() {
                let left = place.ends.since(now);
                snapshot.expires_in = snapshot.expires_in.max(Some(left));
                let mut holder = Holder::new(place.owner.text(), 1);
                holder.mode = place.kind.into();
                snapshot.holders.push(holder);
            }
        }
        for holder in &mut snapshot.holders {
            let client = holder.owner.split_once(':').map(|(client, _)| client);
            holder.client = client.and_then(|client| records.clients.get(client).cloned());
        }
        snapshot.waiters = Some(waiting as u64);
        snapshot
    }
}

impl Backend for Memory {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            sequencers: Some(self),
            ..Extensions::NONE
        }
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply> {
        ready(self.decide(ask).into())
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        ready(Ok(batch
            .iter()
            .map(|renewal| self.renew_one(renewal))
            .collect()))
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

    fn close(&self) -> BoxFuture<'_, ()> {
        ready(())
    }
}

impl VerifySequencers for Memory {
    fn verify<'a>(
        &'a self,
        name: &'a Name,
        generation: FencingToken,
    ) -> BoxFuture<'a, Result<bool>> {
        let mut records = self.world.lock();
        let queue = records.queue(name, self.timers.now());
        let same = queue.is_some_and(|queue| {
            let mut holders = queue.holders();
            holders.any(|place| place.token == Some(generation.get()))
        });
        drop(records);
        ready(Ok(same))
    }
}

impl Operate for Memory {
    fn force_release<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<bool>> {
        let now = self.timers.now();
        let mut records = self.world.lock();
        let held = records.queue(name, now).is_some_and(LockQueue::force);
        let held = records.barred(name, now).is_some() || held;
        records.barred.remove(name);
        let told = if held {
            records.left(name, now)
        } else {
            Vec::new()
        };
        drop(records);
        tell(&told);
        ready(Ok(held))
    }

    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        ready(Ok(self.look(name)))
    }

    fn list<'a>(&'a self, pattern: &'a str, _cursor: u64) -> BoxFuture<'a, Result<Page>> {
        let now = self.timers.now();
        let records = self.world.lock();
        let held = |queue: &LockQueue| queue.holders().any(|place| place.ends > now);
        let names = records
            .locks
            .iter()
            .filter(|(_, queue)| held(queue))
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
        info: Option<&'a ClientInfo>,
    ) -> BoxFuture<'a, Result<()>> {
        let clients = &mut self.world.lock().clients;
        match info {
            Some(info) => clients.insert(client.clone(), info.clone()),
            None => clients.remove(client),
        };
        ready(Ok(()))
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
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
}
