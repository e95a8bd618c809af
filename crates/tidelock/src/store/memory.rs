//! The reference store, in the memory of this process: for tests, examples and the simulator.
//!
//! Each client of `memory:` has a separate store. All clients of `memory:NAME` in one process share one. With
//! `?like=redis` it can do what that store can, and no more. One mutex guards all records; each lock has a queue of
//! holders and waiters (`queue`).

pub(crate) mod address;
mod counter;
mod counts;
mod downgrade;
mod marks;
mod permits;
mod queue;
mod semaphores;
mod slot_marks;
mod upgrade;
mod world;

use std::sync::Arc;
use std::time::Duration;

use self::queue::{LockQueue, QueuedHold};
use self::semaphores::Semaphores;
use self::world::{World, tell};
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{ClientInfo, Finding, Holder, Severity, Snapshot};
use crate::store::{
    Attempt, AttemptReply, AttemptRequest, Backend, BoxFuture, Capabilities, ClientId, Env,
    Extensions, LockKind, Name, Operate, Page, Released, Renewal, Renewed, Store, Ticket, Timers,
    TokenCounter, VerifySequencers, WakeChannels, ready,
};
use crate::types::FencingToken;

/// What this store can do.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    kinds: &[
        LockKind::Mutex,
        LockKind::Fenced,
        LockKind::Read,
        LockKind::Write,
        LockKind::Fair,
        LockKind::FairFenced,
        LockKind::ReadFenced,
        LockKind::WriteFenced,
        LockKind::Permits(1),
        LockKind::Spin,
        LockKind::SpinFenced,
        LockKind::UpgradeableRead,
        LockKind::UpgradeableReadFenced,
    ],
    wakes: true,
    queues: false,
    shared: false,
    durable: false,
    delays: true,
    sequencers: true,
    raises_tokens: true,
    marks: true,
    counts: true,
};

/// How many leases of the client the queue keeps a waiter that does not ask again. A live waiter asks at least once per
/// lease.
const STATE_TTL_LEASES: u32 = 3;

/// Opens `memory:NAME`, or a new store if the name is empty. It has these abilities, and plain locks if there are
/// abilities for them.
///
/// # Errors
/// [`ErrorKind::InvalidOptions`] if the store of that name is like another one.
pub(crate) fn open(
    name: &str,
    can: Capabilities,
    plain: Option<Capabilities>,
    env: &Env,
) -> Result<Store> {
    let world = World::named(name, can, env);
    // Otherwise one client would queue its waiters in the store and the other would not, and a test would pass or fail
    // by the order of its clients.
    if world.can != can {
        return Err(Error::new(ErrorKind::InvalidOptions).because(
            "this process has a store of that memory: name with another like=; use one like= for all clients of a name",
        ));
    }
    let mut store = Store::single(Memory::new(&world, can, env));
    let plain = plain.map(|can| Box::new(Store::single(Memory::new(&world, can, env))));
    store.plain = plain;
    Ok(store)
}

/// One client's handle to the store.
#[derive(Debug)]
struct Memory {
    world: Arc<World>,
    semaphores: Semaphores,
    signals: WakeChannels,
    timers: Timers,
    /// The client's default lease.
    lease: Duration,
    can: Capabilities,
}

impl Drop for Memory {
    fn drop(&mut self) {
        let mut records = self.world.lock();
        records
            .listeners
            .retain(|signals| !signals.is(&self.signals));
    }
}

impl Memory {
    fn new(world: &Arc<World>, can: Capabilities, env: &Env) -> Arc<Self> {
        // Each client has its own waiters and timers; the records are shared.
        let signals = WakeChannels::new(env.timers.clone(), |_| {});
        world.lock().listeners.push(signals.clone());
        Arc::new(Self {
            world: Arc::clone(world),
            semaphores: Semaphores {
                world: Arc::clone(world),
                signals: signals.clone(),
                timers: env.timers.clone(),
            },
            signals,
            timers: env.timers.clone(),
            lease: env.lease,
            can,
        })
    }

    /// Whether a waiter of this kind has an entry in the queue.
    fn is_queued(&self, kind: LockKind) -> bool {
        self.can.queues || kind.is_queued()
    }

    /// The channel on which a ticket is woken. Waiters with an entry in the queue have a channel each, because the
    /// queue decides which one is next.
    fn channel<'a>(&self, ticket: &'a Ticket) -> &'a str {
        if self.is_queued(ticket.kind) {
            ticket.owner.text()
        } else {
            ticket.name.as_str()
        }
    }

    fn decide(&self, ask: &AttemptRequest) -> Result<Attempt> {
        let Ticket { kind, name, owner } = &ask.ticket;
        if let LockKind::Permits(count) = *kind {
            return self.semaphores.take(ask, count);
        }
        // Waiters without an entry in the queue always arm. A waiter with an entry arms only if it waits. We arm before
        // we lock the records; otherwise a release between the two would be missed.
        let waits = !ask.patience.is_zero();
        let queued = self.is_queued(*kind);
        let arms = self.can.wakes_for(*kind) && ask.armed_by.is_none() && (waits || !queued);
        let wake = arms.then(|| self.signals.arm(self.channel(&ask.ticket)));
        let now = self.timers.now();
        let mut records = self.world.lock();
        records.refuse_withdrawn(owner)?;
        records.refuse_semaphore(name)?;
        records.refuse_latch(name)?;
        upgrade::check_reader(&mut records, ask, now)?;
        // A retry of a ticket that holds the lock: extend its lease, keep its token.
        let held = records.queue(name, now).and_then(|queue| {
            let place = queue.held_by(owner)?;
            place.ends = place.ends.max(now + ask.lease);
            place.token
        });
        if let Some(token) = held {
            return Ok(counter::granted(token, 0));
        }
        if let Some(writer) = &ask.downgrade_of {
            return downgrade::join(&mut records, ask, writer, now);
        }
        // A running lock-delay blocks every kind. Waiters keep their entries meanwhile.
        let way = upgrade::in_the_way(&mut records, ask, now);
        let first_end = way.or_else(|| records.barred(name, now));
        // Before the token is drawn: the name has no entry yet, so its counter would be forgotten.
        records.make_room(now);
        let (ends, token) = match first_end {
            None => (now + ask.lease, Some(records.tokens.next(name, ask.spare))),
            Some(_) => (now + self.lease * STATE_TTL_LEASES, None),
        };
        if token.is_some() || queued && waits {
            let queue = records.locks.entry(name.clone()).or_default();
            queue.put(QueuedHold {
                kind: *kind,
                owner: owner.clone(),
                ends,
                token,
                upgrade_of: ask.upgrade_of.clone(),
                delay: ask.delay,
            });
        }
        let queue = records.queue(name, now);
        let ahead = queue.and_then(|queue| queue.ahead_of(owner));
        drop(records);
        Ok(match token {
            Some(token) => counter::granted(token, ask.spare),
            None => Attempt::held_behind(wake, first_end.map(|end| end.since(now)), ahead),
        })
    }

    fn end(&self, ticket: &Ticket) -> Released {
        if ticket.kind.is_permits() {
            return self.semaphores.give_back(ticket);
        }
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
        if renewal.ticket.kind.is_permits() {
            return self.semaphores.renew(renewal);
        }
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
        let mut waiting = records.watchers(name);
        if let Some(semaphore) = records.semaphores.get(name) {
            semaphore.show(&mut snapshot, now);
        }
        snapshot.latch = records.latches.get(name).copied().map(u64::from);
        snapshot.token = records.tokens.get(name).map(FencingToken::new);
        if let Some(queue) = records.queue(name, now) {
            waiting += queue.waiters().count();
            let fair = queue.waiters().filter(|place| !place.kind.is_read_write());
            let fair = fair.map(|place| place.owner.text().to_owned());
            snapshot.queue = fair.take(100).collect();
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
        self.can
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            sequencers: self.can.sequencers.then_some(self as _),
            token_counter: self.can.raises_tokens.then_some(self as _),
            marks: self.can.marks.then_some(self as _),
            permit_counter: self
                .can
                .has(LockKind::Permits(1))
                .then_some(&self.semaphores as _),
            counts: self.can.counts.then_some(self as _),
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
        records.make_room(now);
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

impl TokenCounter for Memory {
    fn raise<'a>(&'a self, name: &'a Name, newest: u64) -> BoxFuture<'a, Result<u64>> {
        ready(Ok(self.world.lock().tokens.raise(name, newest)))
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
    fn force_release<'a>(
        &'a self,
        name: &'a Name,
        seen: Option<&'a Snapshot>,
    ) -> BoxFuture<'a, Result<bool>> {
        if let Some(held) = self.semaphores.force(name, seen) {
            return ready(Ok(held));
        }
        let now = self.timers.now();
        let mut records = self.world.lock();
        if seen.is_some_and(|seen| !records.is_held_as(name, seen, now)) {
            return ready(Ok(false));
        }
        let held = records.queue(name, now).is_some_and(LockQueue::force);
        let held = records.barred(name, now).is_some() || held;
        records.barred.remove(name);
        let left = held.then(|| records.left(name, now));
        let told = left.unwrap_or_default();
        drop(records);
        tell(&told);
        ready(Ok(held))
    }

    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        ready(Ok(self.look(name)))
    }

    fn list<'a>(
        &'a self,
        pattern: &'a str,
        _after: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Page>> {
        let now = self.timers.now();
        let names = self.world.lock().held(now, pattern);
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

#[cfg(test)]
mod tests;
