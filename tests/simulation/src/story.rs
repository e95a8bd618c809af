//! The story of one seed: its clients, the faults that hit them, and the checks at the end.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{advance, sleep, timeout};

use crate::actor::{Actor, StoryLock};
use crate::cast::{Cast, cast};
use crate::counter::{self, Counter};
use crate::member::{self, Member};
use crate::referee::Referee;
use crate::share::Share;
use crate::{Failure, Flaw, Outcome};

/// How many leases a holder may continue after its lock was freed by force. It learns of that at its next renewal. If
/// its renewals do not get through, it stops at the end of the longest lease that anything was extended to.
const FORCED: u32 = 2;

/// What all clients of a story use, if the seed does not decide it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Subject {
    /// Locks with one holder at a time, also fair ones, and sets of them
    Locks,
    /// Elections
    Elections,
    /// Jobs that run once per slot
    Jobs,
    /// Permits of semaphores
    Permits,
    /// Read-write locks
    Sides,
    /// Barriers
    Barriers,
    /// Counting semaphores and latches
    Counts,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Locks => "locks",
            Self::Elections => "elections",
            Self::Jobs => "jobs",
            Self::Permits => "permits",
            Self::Sides => "sides",
            Self::Barriers => "barriers",
            Self::Counts => "counts",
        })
    }
}

/// Selects the story.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    /// Determines everything that happens.
    pub seed: u64,
    /// `None`: the store is correct.
    pub flaw: Option<Flaw>,
    /// `None`: the seed decides what the story is about.
    pub only: Option<Subject>,
}

pub(crate) fn play(plan: &Plan) -> Result<(Outcome, Vec<String>), Failure> {
    let Plan { seed, only, .. } = *plan;
    let failed = |why: String| Failure {
        seed,
        only,
        why,
        log: Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| failed(error.to_string()))?;
    tidelock::testing::seed_chance(seed);
    let (outcome, log, verdict) = LocalSet::new().block_on(&runtime, tell(plan));
    match verdict {
        None => Ok((outcome, log)),
        Some(why) => Err(Failure {
            seed,
            only,
            why,
            log,
        }),
    }
}

async fn tell(plan: &Plan) -> (Outcome, Vec<String>, Option<String>) {
    let mut dice = Rng::with_seed(plan.seed);
    let referee = Rc::new(Referee::new());
    match cast(plan, &mut dice).await {
        Ok(cast) => perform(&cast, &mut dice, &referee).await,
        Err(error) => referee.blame(format!("the story could not begin: {error}")),
    }
    Rc::into_inner(referee).map_or_else(
        || {
            let why = "somebody still acts after the end".to_owned();
            (Outcome::default(), Vec::new(), Some(why))
        },
        Referee::finish,
    )
}

async fn perform(cast: &Cast, dice: &mut Rng, referee: &Rc<Referee>) {
    let mut actors = JoinSet::new();
    // A member sends many more requests than a task that wants a lock.
    let most = if cast.barriers.is_empty() { 4 } else { 2 };
    for (client, locks) in cast.locks.iter().enumerate() {
        for task in 0..dice.usize(1..=most) {
            let who = format!("{client}.{task}");
            if let Some(barrier) = cast.barriers.get(client) {
                let member = Member {
                    who,
                    client: cast.clients[client].0.id().to_owned(),
                    barrier: barrier.clone(),
                    size: cast.size,
                    rounds: dice.usize(2..=5),
                    lease: cast.lease,
                    dice: dice.fork(),
                    referee: Rc::clone(referee),
                };
                actors.spawn_local(member.live());
                continue;
            }
            if let Some((seats, gate)) = cast.counts.get(client) {
                let counter = Counter {
                    who,
                    seats: seats.clone(),
                    gate: gate.clone(),
                    rounds: dice.usize(2..=8),
                    lease: cast.lease,
                    dice: dice.fork(),
                    referee: Rc::clone(referee),
                };
                actors.spawn_local(counter.live());
                continue;
            }
            let actor = Actor {
                who,
                client,
                clients: cast.locks.len(),
                is_calm: cast.is_calm,
                locks: locks.clone(),
                rounds: dice.usize(2..=8),
                lease: cast.lease,
                dice: dice.fork(),
                referee: Rc::clone(referee),
            };
            actors.spawn_local(actor.live());
        }
    }
    let mut fate = Box::pin(befall(cast, dice.fork(), referee));
    let all = async {
        while let Some(end) = actors.join_next().await {
            if let Err(error) = end {
                referee.blame(format!("somebody died of it: {error}"));
            }
        }
    };
    // A hold lasts a few leases at most, and a lock that nobody releases is free after one lease.
    let patience = cast.lease * 2000;
    tokio::select! {
        biased;
        done = timeout(patience, all) => {
            if done.is_err() {
                referee.blame(format!("somebody still waits after {patience:?}"));
            }
        }
        () = &mut fate, if !cast.is_calm => {}
    }
    drop(fate);
    actors.shutdown().await;
    if let Some(why) = cast.arrivals.overtaken() {
        referee.blame(why);
    }
    tidy(cast, referee).await;
}

/// Causes faults until it is dropped.
async fn befall(cast: &Cast, mut dice: Rng, referee: &Referee) {
    loop {
        sleep(cast.lease.mul_f64(dice.f64() * 2.0)).await;
        match dice.u8(..10) {
            0..3 => {
                // Some are cut off for longer than a waiter keeps its place, like a process that was killed.
                let most = if dice.u8(..4) == 0 { 5.0 } else { 1.5 };
                let (number, length) = (
                    dice.usize(..cast.clients.len()),
                    cast.lease.mul_f64(dice.f64() * most),
                );
                referee.note(format_args!("connection {number} is cut for {length:?}"));
                let (_, plug) = &cast.clients[number];
                plug.pull();
                sleep(length).await;
                plug.put_back();
            }
            3..5 => {
                let length = cast.lease.mul_f64(dice.f64() * 1.5);
                referee.note(format_args!("everything freezes for {length:?}"));
                advance(length).await;
            }
            5 => {
                let (_, plug) = &cast.clients[dice.usize(..cast.clients.len())];
                plug.lose_replies(dice.u64(1..4));
            }
            6 if cast.counts.is_empty() => {
                let locks = &cast.locks[dice.usize(..cast.locks.len())];
                let StoryLock { name, lock, .. } = &locks[dice.usize(..locks.len())];
                referee.begins_to_force(name);
                let forced = lock.force_release().await;
                referee.forced(name, cast.lease * FORCED, &forced);
            }
            _ => {}
        }
    }
}

/// Verifies that nothing is held after all tasks have left. If the network let the clients release their locks, this
/// must be true before a lease has passed; in any case, it must be true once all leases have ended.
async fn tidy(cast: &Cast, referee: &Referee) {
    for (_, plug) in &cast.clients {
        plug.put_back();
    }
    if !cast.barriers.is_empty() {
        let ids = cast
            .clients
            .iter()
            .map(|(client, _)| client.id().to_owned());
        let ids: Vec<String> = ids.collect();
        member::opens(&cast.barriers, &ids, cast.size, cast.lease, referee).await;
        referee.all_members_told();
    }
    let idle = async {
        while !cast.clients.iter().all(|(client, _)| client.is_idle()) {
            sleep(cast.lease / 100).await;
        }
    };
    // A set may still have to release a lock on one of its stores. That can take as long as a lease and does not count
    // as background work of the client, so we check a single store only.
    if timeout(cast.lease / 2, idle).await.is_ok() && cast.single {
        // By then, the last request has arrived that was in flight when its caller left.
        sleep(cast.lease / 4).await;
        nothing_is_held(cast, referee).await;
    }
    // Longer than the longest lease that anything was extended to.
    sleep(cast.lease * 8 + Duration::from_secs(120)).await;
    nothing_is_held(cast, referee).await;
    if let Some((seats, gate)) = cast.counts.first() {
        counter::sums(seats, gate, cast.lease, referee).await;
    }
    for (number, (client, _)) in cast.clients.iter().enumerate() {
        if !client.is_idle() {
            referee.blame(format!("client {number} still has something to do"));
        }
        if client.close(Duration::ZERO).await > 0 {
            referee.blame(format!("client {number} still held something"));
        }
    }
}

async fn nothing_is_held(cast: &Cast, referee: &Referee) {
    for (client, _) in &cast.clients {
        match client.list("*").limit(10).await {
            Ok(held) if held.is_empty() => {}
            left => {
                referee.blame(format!("nobody is left, and something is held: {left:?}"));
            }
        }
    }
    for one in cast.locks.iter().flatten().filter(|_| cast.single) {
        let (name, seen) = (&one.name, one.lock.inspect().await);
        match &seen {
            Ok(seen) if seen.queue.is_empty() => {}
            left => referee.blame(format!("nobody is left, and {name} has a queue: {left:?}")),
        }
        let Share::Permits { total, .. } = one.share else {
            continue;
        };
        let count = seen.ok().and_then(|seen| seen.permits);
        if count.as_ref().map(|count| count.available) != Some(total.into()) {
            referee.blame(format!(
                "nobody is left, and {name} has {count:?} of {total} permits"
            ));
        }
    }
}
