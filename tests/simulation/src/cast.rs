//! The clients of a story, the faults between each client and its store, and the objects that the clients use.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fastrand::Rng;
use tidelock::store::{Env, Store};
use tidelock::testing::{AnyLock, Chaos, Faults, Plug};
use tidelock::{Barrier, Client, CountingSemaphore, HandOff, Latch, RedLock};

use crate::actor::StoryLock;
use crate::arrivals::Arrivals;
use crate::broken::{self, Flaw};
use crate::counter::{GATE, SEATS};
use crate::share::Share;
use crate::story::{Plan, Subject};

/// The permits of each semaphore.
const TOTAL: u16 = 3;

/// The name of the barrier.
const BARRIER: &str = "solver";

/// The participants of a story.
pub(crate) struct Cast {
    pub(crate) lease: Duration,
    /// Whether each lock lives in one store only.
    pub(crate) single: bool,
    /// The story is without faults.
    pub(crate) is_calm: bool,
    pub(crate) clients: Vec<(Client, Plug)>,
    /// For each client, its locks. An operator frees them by force now and then.
    pub(crate) locks: Vec<Vec<StoryLock>>,
    /// For each client, the barrier that its tasks enter. Empty if the story is about something else.
    pub(crate) barriers: Vec<Barrier>,
    /// How many members the barrier has.
    pub(crate) size: usize,
    /// For each client, the numbers that its tasks change. Empty if the story is about something else.
    pub(crate) counts: Vec<(CountingSemaphore, Latch)>,
    /// The order of the fair locks.
    pub(crate) arrivals: Arrivals,
}

/// 0: a majority of three stores; 1: all of two stores; otherwise one store: 2 to 4 have locks of three kinds, from 5 on fenced
/// ones, from 10 on fair ones, from 14 on elections, of which half have no faults, from 16 on jobs that run once per slot, from
/// 18 on permits, from 20 on read-write locks; 22: a counting semaphore and a latch, 23: a barrier.
fn shape(only: Option<Subject>, dice: &mut Rng) -> u8 {
    match only {
        None => dice.u8(..24),
        Some(Subject::Locks) => dice.u8(..14),
        Some(Subject::Elections) => dice.u8(14..16),
        Some(Subject::Jobs) => dice.u8(16..18),
        Some(Subject::Permits) => dice.u8(18..20),
        Some(Subject::Sides) => dice.u8(20..22),
        Some(Subject::Counts) => 22,
        Some(Subject::Barriers) => 23,
    }
}

pub(crate) async fn cast(plan: &Plan, dice: &mut Rng) -> tidelock::Result<Cast> {
    // Each story gets its own store, also when the same seed runs in parallel.
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    let world = TOLD.fetch_add(1, Ordering::Relaxed);
    let lease = Duration::from_secs(dice.u64(3..=30));
    let shape = shape(plan.only, dice);
    let is_calm = matches!(shape, 14..16) && dice.bool();
    let stores: u8 = match shape {
        0 => 3,
        1 => 2,
        _ => 1,
    };
    let size = dice.u32(2..=3);
    let mut cast = Cast {
        lease,
        single: stores == 1,
        is_calm,
        clients: Vec::new(),
        locks: Vec::new(),
        barriers: Vec::new(),
        size: size as usize,
        counts: Vec::new(),
        arrivals: Arrivals::default(),
    };
    for number in 0..dice.usize(2..=4) {
        let mut parts = Vec::new();
        for store in 0..stores {
            let url = format!("memory:story {world} {store}");
            let mut faults = if is_calm {
                Faults::none()
            } else {
                faults(dice, lease, stores)
            };
            if shape == 23 {
                // A step at a barrier has several requests, and takes at most a lease.
                faults.delay /= 4;
            }
            let store = Behind {
                flaw: plan.flaw,
                faults,
                arrivals: cast.arrivals.clone(),
            };
            parts.push(client(url, store, lease, dice).await?);
        }
        let client = &parts[0].0;
        cast.locks.push(match shape {
            0 => {
                let servers = parts.iter().map(|(client, _)| client.clone());
                let set = RedLock::builder(servers).restart_guard(false).build()?;
                two(|name| set.lock(name))
            }
            1 => {
                let each = parts.iter().map(|(client, _)| client.lock("till"));
                vec![StoryLock::alone("till", client.multi_lock(each)?)]
            }
            18..20 => permits(client).await?,
            20..22 => sides(client, shape == 21),
            22 => {
                cast.counts.push(counts(client, plan.flaw).await?);
                Vec::new()
            }
            23.. => {
                cast.barriers.push(client.barrier(BARRIER, size));
                vec![StoryLock::alone(BARRIER, client.lock(BARRIER))]
            }
            _ => of_one_store(client, shape, number, lease, dice),
        });
        cast.clients.extend(parts);
    }
    Ok(cast)
}

/// Two locks of one kind. More of them would seldom be wanted by two at once.
fn two<L: Into<AnyLock>>(mut lock: impl FnMut(&str) -> L) -> Vec<StoryLock> {
    ["till", "ledger"]
        .map(|name| StoryLock::alone(name, lock(name)))
        .to_vec()
}

/// Locks with one holder at a time. `number`: that of the client.
fn of_one_store(
    client: &Client,
    shape: u8,
    number: usize,
    lease: Duration,
    dice: &mut Rng,
) -> Vec<StoryLock> {
    match shape {
        2 => two(|name| client.lock(name)),
        3 => two(|name| client.spin_lock(name)),
        4 => two(|name| client.lock(name).non_reentrant()),
        10..12 => two(|name| client.fair_lock(name)),
        12..14 => two(|name| client.fair_lock(name).fenced()),
        14..16 => {
            let priority = dice.i32(0..3);
            two(|name| {
                let election = client.election(name).identity(number.to_string());
                let lock = client.lock(name).fenced();
                AnyLock::Election(election.priority(priority), lock)
            })
        }
        16.. => two(|name| AnyLock::job(client, name, lease * 3)),
        _ => two(|name| client.lock(name).fenced()),
    }
}

/// One to all permits of two semaphores.
async fn permits(client: &Client) -> tidelock::Result<Vec<StoryLock>> {
    let mut locks = Vec::new();
    for name in ["render", "encode"] {
        let semaphore = client.semaphore(name);
        semaphore.set_permits_if_new(TOTAL.into()).await?;
        for count in 1..=TOTAL {
            let share = Share::Permits {
                count: count.into(),
                total: TOTAL.into(),
            };
            locks.push(StoryLock::new(name, semaphore.permits(count), share));
        }
    }
    Ok(locks)
}

/// A counting semaphore and a latch. With a flaw the first has a permit too many, and the second opens too soon.
async fn counts(
    client: &Client,
    flaw: Option<Flaw>,
) -> tidelock::Result<(CountingSemaphore, Latch)> {
    let more = u32::from(flaw == Some(Flaw::CountsOnePermit));
    let (seats, gate) = (client.counting_semaphore("seats"), client.latch("gate"));
    insist(async || seats.set_permits_if_new(SEATS + more).await).await?;
    insist(async || gate.set_count_if_new(GATE - more).await).await?;
    Ok((seats, gate))
}

/// Repeats a change that had no answer. If it has taken effect, the repetition changes nothing.
async fn insist(change: impl AsyncFn() -> tidelock::Result<bool>) -> tidelock::Result<bool> {
    loop {
        match change().await {
            Err(error) if error.is_retryable() || error.outcome_unknown() => {}
            answer => return answer,
        }
    }
}

/// Two readers for each writer.
fn sides(client: &Client, fenced: bool) -> Vec<StoryLock> {
    let mut locks = Vec::new();
    for name in ["prices", "stock"] {
        let sides = client.read_write_lock(name);
        for (side, share) in [
            (sides.read(), Share::Reads),
            (sides.read(), Share::Reads),
            (sides.write(), Share::Writes),
        ] {
            locks.push(StoryLock::new(name, AnyLock::new(side, fenced), share));
        }
    }
    locks
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
