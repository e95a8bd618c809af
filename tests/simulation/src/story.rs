//! The story of one seed: its clients, the faults that hit them, and the checks at the end.

use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fastrand::Rng;
use tidelock::store::{Env, Store};
use tidelock::testing::{AnyLock, Chaos, Faults, Plug};
use tidelock::{Client, HandOff, RedLock};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{advance, sleep, timeout};

use crate::actor::Actor;
use crate::arrivals::Arrivals;
use crate::broken;
use crate::referee::Referee;
use crate::{Failure, Outcome};

/// A bug that is put into the store, to verify that the referee detects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Every attempt is granted.
    LetsEverybodyIn,
    /// A withdrawal leaves no tombstone: a request that arrives after it takes effect.
    ForgetsWithdrawals,
    /// A lease ends sooner than the client was told.
    EndsEarly,
    /// A release frees the lock regardless of the owner.
    FreesForAnybody,
    /// A renewal is confirmed regardless of the owner.
    ConfirmsEverything,
    /// A fair lock is granted to any waiter that asks when it is free.
    ForgetsTheOrder,
    /// A slot that was marked as done has no mark.
    ForgetsMarks,
    /// Nobody sees the successor that a leader has named.
    ForgetsSuccessors,
    /// Marks do not expire: candidates that have left are listed for ever. That is no violation, and must harm nobody.
    KeepsMarks,
}

/// How many leases a holder may continue after its lock was freed by force. It learns of that at its next renewal. If
/// its renewals do not get through, it stops at the end of the longest lease that anything was extended to.
const FORCED: u32 = 2;

/// What all clients of a story use, if the seed does not decide it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Subject {
    /// Elections
    Elections,
    /// Jobs that run once per slot
    Jobs,
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

/// The participants of a story.
struct Cast {
    lease: Duration,
    /// Whether each lock lives in one store only.
    single: bool,
    /// The story is without faults.
    is_calm: bool,
    clients: Vec<(Client, Plug)>,
    /// For each client, its locks and their names.
    locks: Vec<Vec<(String, AnyLock)>>,
    /// The order of the fair locks.
    arrivals: Arrivals,
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

async fn cast(plan: &Plan, dice: &mut Rng) -> tidelock::Result<Cast> {
    // Each story gets its own store, also when the same seed runs in parallel.
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    let world = TOLD.fetch_add(1, Ordering::Relaxed);
    let lease = Duration::from_secs(dice.u64(3..=30));
    // 0: a majority of three stores; 1: all of two stores; otherwise one store: from 10 on with fair locks, from 14 on with
    // elections, of which half have no faults, from 16 on with jobs that run once per slot.
    let shape = match plan.only {
        None => dice.u8(..18),
        Some(Subject::Elections) => dice.u8(14..16),
        Some(Subject::Jobs) => dice.u8(16..18),
    };
    let is_calm = matches!(shape, 14..16) && dice.bool();
    let stores: u8 = match shape {
        0 => 3,
        1 => 2,
        _ => 1,
    };
    let (mut clients, mut locks) = (Vec::new(), Vec::new());
    let arrivals = Arrivals::default();
    for number in 0..dice.usize(2..=4) {
        let mut parts = Vec::new();
        for store in 0..stores {
            let url = format!("memory:story {world} {store}");
            let faults = if is_calm {
                Faults::none()
            } else {
                faults(dice, lease, stores)
            };
            let store = Behind {
                flaw: plan.flaw,
                faults,
                arrivals: arrivals.clone(),
            };
            parts.push(client(url, store, lease, dice).await?);
        }
        let names = ["till", "ledger"];
        locks.push(match shape {
            0 => {
                let servers = parts.iter().map(|(client, _)| client.clone());
                let set = RedLock::builder(servers).restart_guard(false).build()?;
                names
                    .map(|name| (name.to_owned(), set.lock(name).into()))
                    .to_vec()
            }
            1 => {
                let each = parts.iter().map(|(client, _)| client.lock("till"));
                vec![("till".to_owned(), parts[0].0.multi_lock(each)?.into())]
            }
            2..5 => {
                let simple = |name: &str| (name.to_owned(), parts[0].0.lock(name).into());
                names.map(simple).to_vec()
            }
            10..12 => {
                let fair = |name: &str| (name.to_owned(), parts[0].0.fair_lock(name).into());
                names.map(fair).to_vec()
            }
            12..14 => {
                let fair = |name: &str| parts[0].0.fair_lock(name).fenced().into();
                names.map(|name| (name.to_owned(), fair(name))).to_vec()
            }
            14..16 => {
                let priority = dice.i32(0..3);
                let client = &parts[0].0;
                let election = |name: &str| {
                    let election = client.election(name).identity(number.to_string());
                    let lock = client.lock(name).fenced();
                    AnyLock::Election(election.priority(priority), lock)
                };
                names.map(|name| (name.to_owned(), election(name))).to_vec()
            }
            16.. => {
                let job = |name: &str| AnyLock::job(&parts[0].0, name, lease * 3);
                names.map(|name| (name.to_owned(), job(name))).to_vec()
            }
            _ => {
                let fenced = |name: &str| (name.to_owned(), parts[0].0.lock(name).fenced().into());
                names.map(fenced).to_vec()
            }
        });
        clients.extend(parts);
    }
    Ok(Cast {
        lease,
        single: stores == 1,
        is_calm,
        clients,
        locks,
        arrivals,
    })
}

/// What lies between a client and its store.
struct Behind {
    flaw: Option<Flaw>,
    faults: Faults,
    arrivals: Arrivals,
}

/// A client of one store, and the plug that cuts it off.
async fn client(
    url: String,
    behind: Behind,
    lease: Duration,
    dice: &mut Rng,
) -> tidelock::Result<(Client, Plug)> {
    let plug = Plug::default();
    let hand = plug.clone();
    let open = async move |env: &Env| -> tidelock::Result<Store> {
        let store = tidelock::testing::open(&url, env).await?;
        let store = broken::with(store, behind.flaw);
        let store = behind.arrivals.watch(store, lease);
        Ok(Chaos::wrap(store, env, behind.faults, hand))
    };
    // From no hand-off at all to more hand-offs than there are waiters.
    let hand_off = HandOff::default()
        .times([0, 3, 1000][dice.usize(..3)])
        .within(lease.mul_f64(dice.f64() * 2.0));
    let builder = Client::builder()
        .simulated_time()
        .lease(lease)
        .hand_off(hand_off)
        .response_timeout(lease / 5)
        .publish_process_info(false);
    Ok((builder.connect_to(open).await?, plug))
}

fn faults(dice: &mut Rng, lease: Duration, stores: u8) -> Faults {
    let most = 12 / stores;
    let mut faults = Faults::of_seed(dice.u64(..));
    faults.refused = dice.u8(..=most);
    faults.muted = dice.u8(..=most);
    faults.late = dice.u8(..=most);
    faults.delay = lease.mul_f64(dice.f64() / 20.0);
    faults
}

async fn perform(cast: &Cast, dice: &mut Rng, referee: &Rc<Referee>) {
    let mut actors = JoinSet::new();
    for (client, locks) in cast.locks.iter().enumerate() {
        for task in 0..dice.usize(1..=4) {
            let actor = Actor {
                who: format!("{client}.{task}"),
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
            6 => {
                let locks = &cast.locks[dice.usize(..cast.locks.len())];
                let (name, lock) = &locks[dice.usize(..locks.len())];
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
    for (name, lock) in cast.locks.iter().flatten().filter(|_| cast.single) {
        match lock.inspect().await {
            Ok(seen) if seen.queue.is_empty() => {}
            left => referee.blame(format!("nobody is left, and {name} has a queue: {left:?}")),
        }
    }
}
