use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use futures_util::FutureExt;

use super::*;
use crate::engine::runtime::sync::Mutex;
use crate::error::{Error, ErrorKind};
use crate::store::{Clock, LockKind, ReplicaAck, Ticket};
use crate::types::OwnerMint;

fn look(ahead: u32, left: Duration) -> QueueLook {
    QueueLook {
        ahead,
        left,
        ..QueueLook::default()
    }
}

/// The looks per second of processes that have waited for a while, one behind the other.
fn looks_per_second(crowd: u32) -> f64 {
    let each = (0..crowd).map(|ahead| {
        let (mut pace, shown) = (LookState::default(), look(ahead, Duration::from_secs(60)));
        let pauses = (0..100).map(|_| pace.pause(&shown, false));
        1.0 / pauses.last().unwrap().as_secs_f64()
    });
    each.sum()
}

#[test]
fn a_crowd_costs_little_more_than_its_head() {
    let head = looks_per_second(1);
    assert!((15.0..25.0).contains(&head), "{head}");
    let hundred = looks_per_second(100);
    assert!(hundred < head * 7.0, "{hundred}");
}

#[test]
fn the_head_looks_when_the_lease_ends() {
    let mut pace = LookState::default();
    let left = Duration::from_millis(3);
    assert_eq!(pace.pause(&look(0, left), false), Duration::from_millis(4));
    assert!(pace.pause(&look(0, Duration::ZERO), false) > left);
    assert!(pace.pause(&look(5, left), false) > left * 2);
    assert!(pace.pause(&look(COUNTED, left), false) > BEAT / 2);
    assert_eq!(pace.pause(&look(0, Duration::ZERO), true), BEAT);
    assert_eq!(pace.pause(&look(0, left), true), Duration::from_millis(4));
}

#[test]
fn a_grant_that_nobody_confirms_ends_with_the_process_that_it_was_for() {
    let short = ALIVE / 2;
    assert_eq!(unconfirmed(short), short);
    assert_eq!(unconfirmed(ALIVE * 5), ALIVE);
}

#[test]
fn a_snapshot_counts_all_waiters_and_names_the_first() {
    let mut snapshot = Snapshot::free("till");
    show_queue(&mut snapshot, Vec::new());
    assert_eq!((snapshot.waiters, snapshot.queue.len()), (None, 0));
    let queue: Vec<String> = (0..SHOWN + 50).map(|n| format!("c:{n}")).collect();
    show_queue(&mut snapshot, queue.clone());
    assert_eq!(snapshot.waiters, Some(150));
    assert_eq!(snapshot.queue, queue[..SHOWN]);
}

/// A table that answers as the test says.
#[derive(Clone, Default)]
struct ScriptedTable(Arc<ScriptedLooks>);

#[derive(Default)]
struct ScriptedLooks {
    /// The waiters that have a place.
    waiting: Mutex<HashSet<String>>,
    ahead: AtomicU32,
    fails: AtomicBool,
    /// The client of each look, and whether it showed that the process is alive.
    looks: Mutex<Vec<(String, bool)>>,
}

impl QueueTable for ScriptedTable {
    fn look(
        &self,
        _name: &Name,
        client: &str,
        beat: bool,
    ) -> impl Future<Output = Result<QueueLook>> + Send {
        self.0.looks.lock().push((client.to_owned(), beat));
        let answer = if self.0.fails.load(Ordering::SeqCst) {
            Err(Error::new(ErrorKind::Unavailable))
        } else {
            Ok(QueueLook {
                waiting: self.0.waiting.lock().clone(),
                ahead: self.0.ahead.load(Ordering::SeqCst),
                left: MINUTE,
            })
        };
        std::future::ready(answer)
    }
}

const MINUTE: Duration = Duration::from_secs(60);
/// Long enough for what happens at once.
const MOMENT: Duration = Duration::from_millis(2);

/// A process that waits for one lock, in simulated time.
struct WaitingProcess {
    waiters: Arc<FairWaiters<ScriptedTable>>,
    table: ScriptedTable,
    timers: Timers,
    mint: OwnerMint,
}

impl WaitingProcess {
    fn new() -> Self {
        let clock = Clock::Simulated;
        let (background, _) = Background::start(clock).unwrap();
        let timers = Timers::new(clock);
        background.spawn(timers.clone().drive());
        let table = ScriptedTable::default();
        let signals = WakeChannels::new(timers.clone(), |_| {});
        Self {
            waiters: FairWaiters::new(table.clone(), signals, &timers, &background),
            table,
            timers,
            mint: OwnerMint::new(),
        }
    }

    fn ask(&self, patience: Duration) -> AttemptRequest {
        let ticket = Ticket {
            kind: LockKind::Fair,
            name: Name::new("till").unwrap(),
            owner: self.mint.fresh(),
        };
        AttemptRequest {
            patience,
            ..AttemptRequest::once(ticket, MINUTE, ReplicaAck::Off)
        }
    }

    /// A waiter that was refused and has a place.
    fn waiter(&self) -> AttemptRequest {
        let ask = self.ask(MINUTE);
        let owner = ask.ticket.owner.text().to_owned();
        self.table.0.waiting.lock().insert(owner);
        self.waiters.was_refused(&ask);
        ask
    }

    /// Whether each look since the last call showed that the process is alive.
    fn beats(&self) -> Vec<bool> {
        let looks = std::mem::take(&mut *self.table.0.looks.lock());
        looks.into_iter().map(|(_, beat)| beat).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_was_refused_is_looked_for_at_once_and_woken_if_it_has_no_place() {
    let process = WaitingProcess::new();
    let (placed, granted) = (process.waiter(), process.ask(MINUTE));
    let mut wakes = [&placed, &granted].map(|ask| process.waiters.arm(ask).unwrap());
    process.waiters.was_refused(&granted);
    process.timers.after(MOMENT).await;
    let woken = wakes
        .each_mut()
        .map(|wake| wake.woken().now_or_never().is_some());
    assert_eq!(woken, [false, true]);
    let looks = process.table.0.looks.lock().clone();
    let client = process.mint.client().as_str().to_owned();
    // Its row is new, and shows that the process is alive.
    assert_eq!(looks, [(client, false)]);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_does_not_wait_has_no_place() {
    let process = WaitingProcess::new();
    let at_once = process.ask(Duration::ZERO);
    assert!(process.waiters.arm(&at_once).is_none());
    process.waiters.was_refused(&at_once);
    process.timers.after(BEAT * 2).await;
    assert!(process.beats().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_head_of_a_queue_looks_often_and_beats_seldom() {
    let process = WaitingProcess::new();
    process.waiter();
    process.timers.after(BEAT * 5).await;
    let looks = process.beats();
    assert!(looks.len() > 100, "the head looks often: {}", looks.len());
    let beats = looks.iter().filter(|beat| **beat).count();
    assert!((4..=5).contains(&beats), "{beats}");
}

#[tokio::test(start_paused = true)]
async fn a_look_without_an_answer_is_repeated_soon_and_shows_nobody_alive() {
    let process = WaitingProcess::new();
    process.table.0.fails.store(true, Ordering::SeqCst);
    process.waiter();
    process.timers.after(BEAT + BEAT / 8).await;
    assert_eq!(process.beats(), [false, false, false, false, true]);
    process.table.0.fails.store(false, Ordering::SeqCst);
    process.timers.after(BEAT / 2).await;
    let looks = process.beats();
    assert_eq!(looks[..2], [true, false], "the beat is made up for");
}

#[tokio::test(start_paused = true)]
async fn nobody_looks_when_nobody_waits_any_more() {
    for closes in [true, false] {
        let process = WaitingProcess::new();
        let Ticket { name, owner, .. } = process.waiter().ticket;
        process.timers.after(BEAT).await;
        assert!(!process.beats().is_empty());
        if closes {
            process.waiters.close();
        } else {
            process.waiters.leave(&name, &owner);
        }
        process.timers.after(BEAT * 2).await;
        assert!(process.beats().len() <= 1, "closed: {closes}");
    }
}

/// A transaction of this process may free a lock, and grant it to a waiter of the same process.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_this_process_was_told_of_is_woken_without_a_look() {
    let process = WaitingProcess::new();
    let waiter = process.waiter();
    let mut wake = process.waiters.arm(&waiter).unwrap();
    process.waiters.wake(waiter.ticket.owner.text());
    assert!(wake.woken().now_or_never().is_some());
}

#[cfg(feature = "postgres")]
#[tokio::test(start_paused = true)]
async fn a_lock_that_was_left_free_is_looked_at_at_once() {
    let process = WaitingProcess::new();
    // Its own looks come seldom.
    process.table.0.ahead.store(COUNTED, Ordering::SeqCst);
    process.waiter();
    process.timers.after(BEAT / 4).await;
    assert_eq!(process.beats().len(), 1);
    process.waiters.look_now("another");
    process.timers.after(MOMENT).await;
    assert!(process.beats().is_empty());
    process.waiters.look_now("till");
    process.timers.after(MOMENT).await;
    assert_eq!(process.beats().len(), 1);
}
