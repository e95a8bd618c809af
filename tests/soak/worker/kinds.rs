//! What the tasks do: one round of each kind.

mod counts;
mod sides;

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use tidelock::once::{Once, Slot};
use tidelock::{Client, ErrorKind, Lock};

use crate::World;
use crate::hold::{Held, acquire, briefly, part_with};
use crate::record::{Kind, MARKS_STAY, Mode, PERMITS, Record, What};

/// How many tasks of a process do each of them.
pub(crate) const TASKS: [(Kind, u64); 16] = [
    (Kind::Lock, 3),
    (Kind::Fenced, 3),
    (Kind::Plain, 1),
    (Kind::Fair, 2),
    (Kind::Spin, 2),
    (Kind::Multi, 1),
    (Kind::Read, 3),
    (Kind::Write, 1),
    (Kind::Upgradeable, 1),
    (Kind::Permits, 3),
    (Kind::Counted, 1),
    (Kind::Latch, 3),
    (Kind::Barrier, 3),
    (Kind::Election, 1),
    (Kind::Once, 1),
    (Kind::Long, 1),
];

/// The length of a job's slot, and for how long its mark is kept.
const SLOT: Duration = Duration::from_millis(200);
const KEEP: Duration = Duration::from_secs(MARKS_STAY);

/// The interval at which a long hold tells that it still stands.
const LOOK: Duration = Duration::from_millis(200);

/// The name of a lock in the store.
pub(crate) fn name(kind: Kind, number: u16) -> String {
    format!("{}-{number}", kind.group())
}

/// Gives the semaphores their permits. Only the first call of all processes has an effect.
pub(crate) async fn prepare(world: &World) -> Result<()> {
    let Some(client) = world.store.one() else {
        return Ok(());
    };
    for number in 0..Kind::Permits.names() {
        let semaphore = client.semaphore(&name(Kind::Permits, number));
        until_set(|| semaphore.set_permits_if_new(PERMITS)).await?;
    }
    let counted = client.counting_semaphore(&name(Kind::Counted, 0));
    until_set(|| counted.set_permits_if_new(PERMITS)).await
}

/// Repeats the call while the store is late: without a number, those who want permits wait without end.
async fn until_set<F: Future<Output = tidelock::Result<bool>>>(set: impl Fn() -> F) -> Result<()> {
    loop {
        match set().await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
            Err(error) if error.is_retryable() || error.outcome_unknown() => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// False: this process cannot have such locks, so the store need not be asked.
pub(crate) fn is_possible(world: &World, kind: Kind) -> bool {
    match kind {
        Kind::Lock | Kind::Fenced | Kind::Long => true,
        Kind::Upgradeable if cfg!(not(feature = "upgrades")) => false,
        Kind::Barrier if cfg!(not(feature = "barriers")) => false,
        _ => world.store.one().is_some(),
    }
}

/// One round. Fails with `Unsupported` if the store has no such thing.
pub(crate) async fn round(world: &World, kind: Kind, rng: &mut Rng) -> Result<()> {
    let number = rng.u16(..kind.names());
    let called = name(kind, number);
    if kind == Kind::Lock {
        return alone(world, kind, number, &world.store.lock(&called), rng).await;
    }
    if kind == Kind::Long {
        return long(world, number, &world.store.lock(&called), rng).await;
    }
    if kind == Kind::Fenced {
        let fenced = world.store.lock(&called).fenced();
        return alone(world, kind, number, &fenced, rng).await;
    }
    let Some(client) = world.store.one() else {
        return Ok(());
    };
    match kind {
        Kind::Lock | Kind::Long | Kind::Fenced => Ok(()),
        Kind::Plain => alone(world, kind, number, &client.plain_lock(&called), rng).await,
        Kind::Fair if rng.bool() => {
            alone(world, kind, number, &client.fair_lock(&called), rng).await
        }
        Kind::Fair => {
            let fenced = client.fair_lock(&called).fenced();
            alone(world, kind, number, &fenced, rng).await
        }
        Kind::Spin if rng.bool() => {
            alone(world, kind, number, &client.spin_lock(&called), rng).await
        }
        Kind::Spin => {
            let fenced = client.spin_lock(&called).fenced();
            alone(world, kind, number, &fenced, rng).await
        }
        Kind::Multi => multi(world, client, rng).await,
        Kind::Read => sides::read(world, client, number, rng).await,
        Kind::Write => sides::write(world, client, number, rng).await,
        Kind::Upgradeable => sides::upgradeable(world, client, number, rng).await,
        Kind::Permits => counts::permits(world, client, number, rng).await,
        Kind::Counted => counts::counted(world, client, rng).await,
        Kind::Latch => counts::latch(world, client).await,
        Kind::Barrier => counts::barrier(world, client, rng).await,
        Kind::Election => election(world, client, rng).await,
        Kind::Once => once(world, client, rng).await,
    }
}

/// A lock with one holder.
async fn alone<G: Held>(
    world: &World,
    kind: Kind,
    number: u16,
    lock: &Lock<G>,
    rng: &mut Rng,
) -> Result<()> {
    world.bad.enter(world, kind, number).await?;
    let Some(guard) = acquire(world, kind, lock, rng).await? else {
        return Ok(());
    };
    let token = world.bad.token(guard.number());
    let claim = world.bench.claim(kind, number, Mode::Alone, 1).token(token);
    claim.enter(guard.hold())?;
    briefly(rng).await;
    claim.leave(guard.hold())?;
    part_with(guard, rng).await;
    Ok(())
}

/// Holds for up to one and a half leases, so the client has to renew.
async fn long(world: &World, number: u16, lock: &Lock, rng: &mut Rng) -> Result<()> {
    let Some(guard) = acquire(world, Kind::Long, lock, rng).await? else {
        return Ok(());
    };
    let claim = world.bench.claim(Kind::Long, number, Mode::Alone, 1);
    claim.enter(&guard)?;
    let end = tokio::time::Instant::now() + world.lease.mul_f64(rng.f64() * 1.5);
    let mut lost = guard.lost();
    while tokio::time::Instant::now() < end && !world.stopping() {
        tokio::select! {
            _ = &mut lost => break,
            () = tokio::time::sleep(LOOK) => claim.keep(&guard)?,
        }
    }
    claim.leave(&guard)?;
    part_with(guard, rng).await;
    Ok(())
}

/// Two of the names that others lock one by one.
async fn multi(world: &World, client: &Client, rng: &mut Rng) -> Result<()> {
    let first = rng.u16(..Kind::Multi.names());
    let second = (first + 1) % Kind::Multi.names();
    let parts = [first, second].map(|number| client.lock(&name(Kind::Multi, number)));
    let both = client.multi_lock(&parts)?;
    let Some(guard) = acquire(world, Kind::Multi, &both, rng).await? else {
        return Ok(());
    };
    let claim = |number| world.bench.claim(Kind::Multi, number, Mode::Alone, 1);
    let claims = [claim(first), claim(second).part()];
    for claim in &claims {
        claim.enter(&guard)?;
    }
    briefly(rng).await;
    for claim in &claims {
        claim.leave(&guard)?;
    }
    part_with(guard, rng).await;
    Ok(())
}

/// Leads for a moment. The terms must grow, as tokens do.
async fn election(world: &World, client: &Client, rng: &mut Rng) -> Result<()> {
    let election = client.election(&name(Kind::Election, 0));
    let moment = Duration::from_micros(rng.u64(..20_000));
    let campaign = election.campaign();
    let leadership = if rng.u8(..50) == 0 {
        match tokio::time::timeout(moment, campaign).await {
            Ok(won) => won?,
            Err(_) => return world.bench.tell(Record::new(What::Drops, Kind::Election)),
        }
    } else {
        campaign.await?
    };
    let claim = world.bench.claim(Kind::Election, 0, Mode::Alone, 1);
    let claim = claim.token(leadership.term());
    claim.enter(leadership.guard())?;
    briefly(rng).await;
    claim.leave(leadership.guard())?;
    if rng.u8(..4) == 0 {
        drop(leadership);
    } else {
        // An error means that the leadership was lost, which the claim has told already.
        drop(leadership.resign().await);
    }
    Ok(())
}

/// Runs the job of the present slot, unless another process has.
async fn once(world: &World, client: &Client, rng: &mut Rng) -> Result<()> {
    let job = client.once(&name(Kind::Once, 0));
    let job = job.slot(Slot::every(SLOT)).keep(KEEP);
    // What happened is told inside the job: outside, the lock may be somebody else's.
    let mut told = None;
    let ran = job
        .run(async |run| {
            let claim = world.bench.claim(Kind::Once, 0, Mode::Alone, 1);
            let claim = claim.token(run.token().get()).mark(number_of(run.slot()));
            told = Some(claim);
            // The lock is held while this future runs; it was granted less than a lease ago, and is renewed.
            claim.enter_for(crate::record::now(), world.lease / 2)?;
            briefly(rng).await;
            claim.say(What::Leaves)
        })
        .await;
    match (ran, told) {
        (Ok(Once::Ran(())), Some(claim)) => claim.say(What::Succeeds),
        (Ok(Once::Failed(error)), _) => Err(error),
        (Ok(_), _) => {
            // The slot has been run. The next one begins soon.
            tokio::time::sleep(SLOT / 4).await;
            Ok(())
        }
        (Err(error), claim) => {
            if let Some(claim) = claim {
                claim.say(What::Fails)?;
            }
            Err(error.into())
        }
    }
}

/// The same number for the same slot in every process and build (FNV-1a).
fn number_of(slot: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    slot.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}
