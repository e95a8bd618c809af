//! T74: processes that wait for one name in the kernel's lock queue.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::time::{Duration, Instant};

use super::child::Other;

/// A lease of ten seconds: an event within a second did not wait for a lease to expire.
const LEASE: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(1);

/// Starts processes that wait for the lock, one after the other. Each prints when it has the lock.
fn waiting(role: &str, many: usize, file: &Path) -> Vec<Other> {
    let start = |ahead| {
        let mut other = Other::start(role, file, 1);
        assert_eq!(other.hear(), "waiting");
        other.until_it_queues(file, ahead);
        other
    };
    (0..many).map(start).collect()
}

#[tokio::test]
async fn t74_a_release_wakes_the_process_that_waits_longest_and_no_crowd() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let client = super::client(&file, LEASE).await;
    let held = client.lock("held").acquire().await.unwrap();
    let all = waiting("queue up and keep it", 5, &file);
    let before: Vec<u64> = all.iter().map(Other::wake_ups).collect();
    held.release().await.unwrap();
    let holder = loop {
        let seen = client.lock("held").inspect().await.unwrap();
        if let Some(holder) = seen.holders.first() {
            break holder.client.as_ref().unwrap().pid;
        }
    };
    // The second process gets the lock only if the first is late, because the machine is busy.
    let place = all.iter().position(|other| other.pid() == holder);
    assert!(matches!(place, Some(0 | 1)), "it is number {place:?}");
    // The next processes move up to the head of the queue. No other process is woken.
    tokio::time::sleep(SOON).await;
    for last in 3..5 {
        assert_eq!(all[last].wake_ups(), before[last], "number {last}");
    }
}

#[tokio::test]
async fn t74_waiters_that_are_killed_keep_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let client = super::client(&file, LEASE).await;
    let held = client.lock("held").acquire().await.unwrap();
    let mut all = waiting("queue up", 4, &file);
    all[0].kill();
    all[2].kill();
    held.release().await.unwrap();
    let released = Instant::now();
    assert_eq!(all[1].hear(), "got it");
    assert_eq!(all[3].hear(), "got it");
    assert!(released.elapsed() < SOON, "{:?}", released.elapsed());
}

#[tokio::test]
async fn t74_waiters_that_are_stopped_keep_nobody_out() {
    // The first process, both processes at the head, and one of those that sleep in the kernel.
    for stopped in [&[0][..], &[0, 1], &[2]] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("locks.db");
        let client = super::client(&file, LEASE).await;
        let held = client.lock("held").acquire().await.unwrap();
        let begun = Instant::now();
        let mut all = waiting("queue up", 4, &file);
        for &one in stopped {
            all[one].stop();
        }
        held.release().await.unwrap();
        let waited = begun.elapsed();
        let released = Instant::now();
        let mut heard = Vec::new();
        for (n, other) in all.iter_mut().enumerate() {
            if !stopped.contains(&n) {
                assert_eq!(other.hear(), "got it");
                heard.push((n, released.elapsed()));
            }
        }
        // With both processes at the head stopped, the others check every second, which is a tenth of the lease. After
        // a check in vain they pause for half of the time that they have waited.
        let bound = SOON * 4 + waited * 2;
        assert!(
            released.elapsed() < bound,
            "{stopped:?} stopped, after {waited:?}: {heard:?}"
        );
        for &one in stopped {
            all[one].go_on();
            assert_eq!(all[one].hear(), "got it");
        }
    }
}

/// The waiters' processes are never idle, because they also wait for a fair lock. They must check for stopped processes
/// nevertheless: they ask again by themselves only after a lease of ten seconds.
#[tokio::test]
async fn t74_busy_waiters_pass_processes_that_are_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let client = super::client(&file, LEASE * 6).await;
    let held = client.lock("held").acquire().await.unwrap();
    let _other = client.fair_lock("other").acquire().await.unwrap();
    let raw = rusqlite::Connection::open(&file).unwrap();
    raw.busy_timeout(LEASE).unwrap();
    let begun = Instant::now();
    let mut all = waiting("queue up while busy", 4, &file);
    for other in &all[..2] {
        // Inside of a write transaction a stopped process would keep everybody else from writing.
        raw.execute_batch("BEGIN IMMEDIATE").unwrap();
        other.stop();
        raw.execute_batch("ROLLBACK").unwrap();
    }
    held.release().await.unwrap();
    let (waited, released) = (begun.elapsed(), Instant::now());
    for other in &mut all[2..] {
        assert_eq!(other.hear(), "got it");
    }
    let bound = LEASE / 2 + waited * 2;
    let took = released.elapsed();
    assert!(took < bound, "{took:?} after {waited:?}");
}

/// A process has opened the file only in part. No other process may open it, but their requests do not fail before
/// their timeout.
#[tokio::test]
async fn t74_a_process_that_is_stopped_while_it_opens_the_file_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    drop(super::client(&file, LEASE).await);
    let gate = std::fs::File::options()
        .write(true)
        .open(folder.path().join("locks.db-lock"))
        .unwrap();
    gate.lock().unwrap();
    let builder = tidelock::Client::builder().response_timeout(SOON / 5);
    let client = builder.connect(&super::url(&file)).await.unwrap();
    let error = client.lock("a").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), tidelock::ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("opening"), "{error}");
    let lock = client.lock("a");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    tokio::time::sleep(SOON / 2).await;
    assert!(!waiter.is_finished());
    gate.unlock().unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}
