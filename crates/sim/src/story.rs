//! One seed's world: its clients, what befalls them, and what must be true at the end.

use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fastrand::Rng;
use tidelock::backend::{Env, Store};
use tidelock::testing::{Chaos, Faults, Plug};
use tidelock::{Client, HandOff, Lock, RedLock};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{advance, sleep, timeout};

use crate::actor::Actor;
use crate::broken;
use crate::referee::Referee;
use crate::{Failure, Outcome};

/// A bug that is put into the store, to see it caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Everybody gets the lock.
    LetsEverybodyIn,
    /// A withdrawal leaves nothing behind: a request that arrives after it takes effect.
    ForgetsWithdrawals,
    /// A lease ends sooner than it was given for.
    EndsEarly,
    /// Releasing frees the lock, whoever holds it.
    FreesForAnybody,
    /// A renewal is confirmed, whoever holds the lock.
    ConfirmsEverything,
}

/// How many leases a holder may go on after its lock was taken by force: it hears of it at its next renewal, and where
/// that does not get through, it stops when the longest is over that anything was extended to.
const FORCED: u32 = 2;

/// Which story is to be played.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// `None`: the store is as it should be.
    pub flaw: Option<Flaw>,
}

/// What a story is made of.
struct Cast {
    lease: Duration,
    /// Locks live in one store.
    single: bool,
    clients: Vec<(Client, Plug)>,
    /// By name, for each client.
    locks: Vec<Vec<(String, Lock)>>,
}

pub(crate) fn play(plan: &Plan) -> Result<(Outcome, Vec<String>), Failure> {
    let Plan { seed, .. } = *plan;
    let failed = |why: String| Failure {
        seed,
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
        Some(why) => Err(Failure { seed, why, log }),
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
    // A world of its own, also when the same story is told elsewhere at this moment.
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    let world = TOLD.fetch_add(1, Ordering::Relaxed);
    let lease = Duration::from_secs(dice.u64(3..=30));
    // A majority of three, all of two, or one.
    let shape = dice.u8(..10);
    let stores: u8 = match shape {
        0 => 3,
        1 => 2,
        _ => 1,
    };
    let (mut clients, mut locks) = (Vec::new(), Vec::new());
    for _ in 0..dice.usize(2..=4) {
        let mut parts = Vec::new();
        for store in 0..stores {
            let plug = Plug::default();
            let faults = faults(dice, lease, stores);
            let url = format!("memory:story {world} {store}");
            let (hand, flaw) = (plug.clone(), plan.flaw);
            let open = async move |env: &Env| -> tidelock::Result<Store> {
                let store = tidelock::testing::open(&url, env).await?;
                let store = broken::with(store, flaw);
                Ok(Chaos::wrap(store, env, faults, hand))
            };
            // From none at all to more than anybody waits for.
            let hand_off = HandOff::default()
                .times([0, 3, 1000][dice.usize(..3)])
                .within(lease.mul_f64(dice.f64() * 2.0));
            let builder = Client::builder()
                .simulated_time()
                .lease(lease)
                .hand_off(hand_off)
                .response_timeout(lease / 5)
                .details(false);
            parts.push((builder.connect_to(open).await?, plug));
        }
        let names = ["till", "ledger"];
        locks.push(match shape {
            0 => {
                let servers = parts.iter().map(|(client, _)| client.clone());
                let set = RedLock::builder(servers).restart_guard(false).build()?;
                names.map(|name| (name.to_owned(), set.lock(name))).to_vec()
            }
            1 => {
                let each = parts.iter().map(|(client, _)| client.lock("till"));
                vec![("till".to_owned(), parts[0].0.multi_lock(each)?)]
            }
            2..5 => {
                let simple = |name: &str| (name.to_owned(), parts[0].0.lock(name));
                names.map(simple).to_vec()
            }
            _ => {
                let fenced = |name: &str| (name.to_owned(), parts[0].0.fenced_lock(name));
                names.map(fenced).to_vec()
            }
        });
        clients.extend(parts);
    }
    Ok(Cast {
        lease,
        single: stores == 1,
        clients,
        locks,
    })
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
    // Each hold lasts a few leases at most, and a lock that nobody gives back is free after one.
    let patience = cast.lease * 2000;
    tokio::select! {
        biased;
        done = timeout(patience, all) => {
            if done.is_err() {
                referee.blame(format!("somebody still waits after {patience:?}"));
            }
        }
        () = &mut fate => {}
    }
    drop(fate);
    actors.shutdown().await;
    tidy(cast, referee).await;
}

/// What befalls the clients, for ever.
async fn befall(cast: &Cast, mut dice: Rng, referee: &Referee) {
    loop {
        sleep(cast.lease.mul_f64(dice.f64() * 2.0)).await;
        match dice.u8(..10) {
            0..3 => {
                let (number, length) = (
                    dice.usize(..cast.clients.len()),
                    cast.lease.mul_f64(dice.f64() * 1.5),
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
                let forced = lock.force_release().await;
                referee.forced(name, cast.lease * FORCED, &forced);
            }
            _ => {}
        }
    }
}

/// When all have left, nothing is left: neither for as long as a lease, where the network let them say so, nor for ever.
async fn tidy(cast: &Cast, referee: &Referee) {
    for (_, plug) in &cast.clients {
        plug.put_back();
    }
    let idle = async {
        while !cast.clients.iter().all(|(client, _)| client.is_idle()) {
            sleep(cast.lease / 100).await;
        }
    };
    // What a set of stores still owes to one of them is not the client's business: it may take as long as a lease.
    if timeout(cast.lease / 2, idle).await.is_ok() && cast.single {
        // The latest that a request arrives which was on its way when its caller had gone.
        sleep(cast.lease / 4).await;
        nothing_is_held(cast, referee).await;
    }
    // The longest that anything was extended to.
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
        match client.list("*", 10).await {
            Ok(held) if held.is_empty() => {}
            left => {
                referee.blame(format!("nobody is left, and something is held: {left:?}"));
            }
        }
    }
}
