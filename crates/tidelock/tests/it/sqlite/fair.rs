//! The fair lock: its hand-over, and waiters of other processes that die or freeze.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tempfile::TempDir;
use tidelock::{Client, Guard};
use tokio::task::JoinHandle;

use super::child::Other;

const LEASE: Duration = Duration::from_secs(30);
/// How long a grant lasts that its owner has not confirmed, and how long a process counts as alive after a beat.
const ALIVE: Duration = Duration::from_secs(6);
/// The time between two beats.
const BEAT: Duration = Duration::from_secs(2);
const NAME: &str = "turns";

/// A file, its client, and a raw connection to it.
struct Ground {
    _folder: TempDir,
    file: PathBuf,
    client: Client,
    raw: Connection,
}

impl Ground {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("locks.db");
        let client = super::client(&file, LEASE).await;
        let raw = Connection::open(&file).unwrap();
        raw.busy_timeout(LEASE).unwrap();
        Self {
            _folder: folder,
            file,
            client,
            raw,
        }
    }

    fn queue(&self) -> Vec<String> {
        queue(&self.raw)
    }

    fn owner(&self) -> Option<String> {
        let mut owner = self.raw.prepare("SELECT owner FROM locks").unwrap();
        let mut rows = owner.query([]).unwrap();
        rows.next().unwrap().map(|row| row.get(0).unwrap())
    }

    async fn acquire(&self) -> Guard {
        self.client.fair_lock(NAME).acquire().await.unwrap()
    }

    /// Starts a waiter, and returns when the queue has this many.
    async fn wait(&self, count: usize) -> JoinHandle<tidelock::Result<Guard>> {
        let waiting = tokio::spawn(self.client.fair_lock(NAME).acquire());
        self.until_the_queue_has(count).await;
        waiting
    }

    async fn until_the_queue_has(&self, count: usize) {
        let begun = Instant::now();
        while self.queue().len() != count {
            assert!(begun.elapsed() < LEASE, "{:?}", self.queue());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Stops a process outside of a write transaction. Inside of one it would keep everybody else from writing.
    fn stop(&self, other: &Other) {
        self.raw.execute_batch("BEGIN IMMEDIATE").unwrap();
        other.stop();
        self.raw.execute_batch("ROLLBACK").unwrap();
    }

    /// A process with so many waiters.
    async fn process(&self, waiters: usize) -> Other {
        let before = self.queue().len();
        let count = u32::try_from(waiters).unwrap();
        let other = Other::start("wait in order", &self.file, count);
        self.until_the_queue_has(before + waiters).await;
        other
    }
}

/// The owners that wait. Empty if there were never any.
fn queue(raw: &Connection) -> Vec<String> {
    let Ok(mut owners) = raw.prepare("SELECT owner FROM waiters ORDER BY place") else {
        return Vec::new();
    };
    let owners = owners.query_map([], |row| row.get(0)).unwrap();
    owners.map(Result::unwrap).collect()
}

async fn within(limit: Duration, waiting: JoinHandle<tidelock::Result<Guard>>) -> Guard {
    let waited = tokio::time::timeout(limit, waiting).await;
    waited.expect("in time").unwrap().unwrap()
}

/// The waiter's process is stopped, so only the release can have made the grant.
#[tokio::test]
async fn a_release_grants_the_lock_to_the_next_waiter_in_the_same_transaction() {
    let ground = Ground::new().await;
    let guard = ground.acquire().await;
    let mut other = ground.process(1).await;
    let owner = ground.queue().remove(0);
    ground.stop(&other);
    guard.release().await.unwrap();
    assert_eq!(ground.owner(), Some(owner));
    assert!(ground.queue().is_empty());
    other.go_on();
    assert_eq!(other.hear(), "in");
    other.finish();
    assert_eq!(ground.owner(), None);
}

#[tokio::test]
async fn t49_twenty_five_waiters_that_were_killed_are_removed() {
    let ground = Ground::new().await;
    let guard = ground.acquire().await;
    let mut other = ground.process(25).await;
    let live = ground.wait(26).await;
    other.kill();
    let released = Instant::now();
    guard.release().await.unwrap();
    let guard = within(ALIVE + BEAT * 2, live).await;
    println!("passed over in {:?}", released.elapsed());
    assert!(ground.queue().is_empty(), "they are removed");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn t49_twenty_five_frozen_waiters_cost_one_grant_and_come_back() {
    let ground = Ground::new().await;
    let guard = ground.acquire().await;
    let mut other = ground.process(25).await;
    let live = ground.wait(26).await;
    ground.stop(&other);
    let released = Instant::now();
    guard.release().await.unwrap();
    let guard = within(ALIVE + BEAT * 2, live).await;
    let took = released.elapsed();
    println!("passed over in {took:?}");
    assert!(took + BEAT > ALIVE, "{took:?}: the first one had its turn");
    let last = ground.wait(1).await;
    other.go_on();
    ground.until_the_queue_has(26).await;
    guard.release().await.unwrap();
    for _ in 0..25 {
        assert_eq!(other.hear(), "in");
    }
    other.finish();
    within(ALIVE, last).await.release().await.unwrap();
}

/// A killed waiter behind the head is removed while the lock is held.
#[tokio::test]
async fn dead_waiters_of_a_held_lock_are_removed() {
    let ground = Ground::new().await;
    let guard = ground.acquire().await;
    let mut other = ground.process(3).await;
    let live = ground.wait(4).await;
    let killed = Instant::now();
    other.kill();
    ground.until_the_queue_has(1).await;
    let took = killed.elapsed();
    assert!(took < ALIVE + BEAT * 2, "{took:?}");
    assert!(!live.is_finished());
    guard.release().await.unwrap();
    within(BEAT, live).await.release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_that_was_thrown_out_gets_the_first_place_again() {
    let ground = Ground::new().await;
    let guard = ground.acquire().await;
    let first = ground.wait(1).await;
    let owner = ground.queue().remove(0);
    let second = ground.wait(2).await;
    let throw_out = "DELETE FROM waiters WHERE owner = ?1";
    assert_eq!(ground.raw.execute(throw_out, [&owner]).unwrap(), 1);
    ground.until_the_queue_has(2).await;
    assert_eq!(ground.queue().first(), Some(&owner));
    guard.release().await.unwrap();
    let guard = within(BEAT, first).await;
    assert!(!second.is_finished());
    guard.release().await.unwrap();
    within(BEAT, second).await.release().await.unwrap();
}

/// An older tidelock knows no queue. Its locks and the fair lock exclude each other, and its release is noticed.
#[tokio::test]
async fn a_client_that_knows_no_queue_is_excluded_and_followed() {
    let ground = Ground::new().await;
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'waiters'";
    let tables = || -> i64 { ground.raw.query_row(tables, [], |row| row.get(0)).unwrap() };
    let guard = ground.acquire().await;
    assert_eq!(tables(), 0, "only a waiter makes the table");
    let rename = "UPDATE locks SET owner = 'old:1', revision = revision + 1";
    assert_eq!(ground.raw.execute(rename, []).unwrap(), 1);
    drop(guard);
    let waiting = ground.wait(1).await;
    assert_eq!(tables(), 1);
    assert_eq!(ground.owner().as_deref(), Some("old:1"));
    let released = Instant::now();
    ground.raw.execute("DELETE FROM locks", []).unwrap();
    within(BEAT, waiting).await.release().await.unwrap();
    println!("noticed in {:?}", released.elapsed());
}

/// A release of a lock without a queue, under the same name, hands over to the fair queue, and the other way round.
#[tokio::test]
async fn locks_with_and_without_a_queue_wake_each_other() {
    let ground = Ground::new().await;
    let plain = ground.client.lock(NAME);
    for _ in 0..20 {
        let guard = plain.acquire().await.unwrap();
        let waiting = ground.wait(1).await;
        let owner = ground.queue().remove(0);
        guard.release().await.unwrap();
        assert_eq!(ground.owner(), Some(owner));
        let guard = within(BEAT, waiting).await;
        let waiting = tokio::spawn(plain.acquire());
        tokio::time::sleep(Duration::from_millis(5)).await;
        guard.release().await.unwrap();
        within(BEAT, waiting).await.release().await.unwrap();
    }
}

#[tokio::test]
async fn waiters_go_on_in_a_file_that_replaced_theirs() {
    let ground = Ground::new().await;
    let guard = ground.acquire().await;
    let first = ground.wait(1).await;
    let second = ground.wait(2).await;
    drop(ground.raw);
    for end in ["", "-wal", "-shm", "-lock"] {
        let path = format!("{}{end}", ground.file.display());
        std::fs::remove_file(path).unwrap();
    }
    guard.lost().await;
    // In the new file they have the first places in any order.
    let both = [first, second].map(async |waiting| {
        let guard = within(LEASE / 3, waiting).await;
        guard.release().await.unwrap();
    });
    futures_util::future::join_all(both).await;
}

#[tokio::test]
async fn the_end_of_the_holders_lease_is_noticed_in_time() {
    let ground = Ground::new().await;
    let short = Duration::from_secs(1);
    let once = tidelock::AcquireOptions::new().expires_after(short);
    let lock = ground.client.fair_lock(NAME);
    let held = lock.acquire_with(once).await.unwrap();
    let waiting = ground.wait(1).await;
    let begun = Instant::now();
    within(short * 2, waiting).await.release().await.unwrap();
    assert!(begun.elapsed() < short * 3 / 2, "{:?}", begun.elapsed());
    drop(held);
}

/// The number of write transactions that the log of the file has: each ends with a frame that has the size of the file.
fn commits(file: &Path) -> usize {
    let log = std::fs::read(format!("{}-wal", file.display())).unwrap();
    let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().unwrap());
    let frame = 24 + usize::try_from(number(8)).unwrap();
    let frames = (32..log.len()).step_by(frame);
    // The salts of the header tell the frames from those of an older log.
    let whole = frames.filter(|at| log[at + 8..at + 16] == log[16..24]);
    whole.filter(|at| number(at + 4) != 0).count()
}

/// A free fair lock costs one write and one, as a lock without a queue does. A waiter writes its place, and a turn costs
/// a write that confirms the grant and one that releases the lock. Looks at the queue write nothing.
#[tokio::test]
async fn a_turn_of_a_fair_lock_costs_two_writes() {
    let ground = Ground::new().await;
    let other = super::client(&ground.file, LEASE).await.fair_lock(NAME);
    ground.acquire().await.release().await.unwrap();
    // A beat may come at any moment, so the fewest writes of several turns count.
    let mut fewest = [usize::MAX; 4];
    for _ in 0..5 {
        let mut before = commits(&ground.file);
        let mut spent = || {
            let now = commits(&ground.file);
            now - std::mem::replace(&mut before, now)
        };
        let held = other.acquire().await.unwrap();
        let acquired = spent();
        let waiting = ground.wait(1).await;
        let queued = spent();
        held.release().await.unwrap();
        let guard = within(BEAT, waiting).await;
        let handed_over = spent();
        guard.release().await.unwrap();
        let turn = [acquired, queued, handed_over, spent()];
        for (fewest, spent) in fewest.iter_mut().zip(turn) {
            *fewest = (*fewest).min(spent);
        }
    }
    // The hand-over: the release of the holder before, and the confirmation.
    assert_eq!(fewest, [1, 1, 2, 1]);
}

/// The part of a child: so many waiters, which have the lock one after the other.
pub(crate) async fn wait_in_order(file: &Path, waiters: u32, say: fn(&str)) {
    let client = super::client(file, LEASE).await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..waiters {
        let acquire = client.fair_lock(NAME).acquire();
        waiting.spawn(async move {
            let guard = acquire.await.unwrap();
            say("in");
            guard.release().await.unwrap();
        });
    }
    waiting.join_all().await;
}
