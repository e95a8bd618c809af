//! File faults: T58 of the fault catalogue, and similar ones.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tidelock::{AcquireOptions, Client, ErrorKind, LostReason};

use super::child::Other;

const LEASE: Duration = Duration::from_millis(900);
const RESPONSE: Duration = Duration::from_millis(300);

async fn impatient(file: &Path) -> Client {
    let builder = Client::builder().lease(LEASE).response_timeout(RESPONSE);
    builder.connect(&super::url(file)).await.unwrap()
}

#[tokio::test]
async fn t58_a_process_stopped_inside_a_transaction_keeps_all_out_until_it_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let client = impatient(&file).await;
    let held = client.lock("a").acquire().await.unwrap();
    let mut other = Other::start("stop", &file, 0);
    assert_eq!(other.hear(), "inside");

    let began = Instant::now();
    let error = client.lock("b").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(began.elapsed() < LEASE, "{:?}", began.elapsed());
    // Inspecting a lock still works meanwhile.
    assert!(client.lock("a").inspect().await.unwrap().is_locked());
    assert!(!client.lock("b").inspect().await.unwrap().is_locked());
    // No renewal succeeds, so the holder learns of the loss in time.
    assert_eq!(held.lost().await, LostReason::Expired);
    assert!(began.elapsed() < LEASE, "{:?}", began.elapsed());

    other.kill();
    let guard = client.lock("a").acquire().await.unwrap();
    // The killed process had begun a write. The write is not in the file.
    assert!(!client.lock("half").inspect().await.unwrap().is_locked());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn t58_a_tool_that_reads_for_long_disturbs_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let client = impatient(&file).await;
    let held = client.lock("a").acquire().await.unwrap();
    let tool = Connection::open(&file).unwrap();
    tool.execute_batch("BEGIN; SELECT count(*) FROM locks")
        .unwrap();
    let _: i64 = tool
        .query_row("SELECT count(*) FROM locks", [], |row| row.get(0))
        .unwrap();
    let end = Instant::now() + LEASE * 2;
    while Instant::now() < end {
        client
            .lock("b")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    assert!(held.is_held());
    held.release().await.unwrap();
}

/// SQLite stores a text in a column of numbers. Somebody who wants to end a lease by hand may write one.
#[tokio::test]
async fn a_row_that_cannot_be_read_costs_no_other_lock() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let (client, other) = (impatient(&file).await, impatient(&file).await);
    let broken = client.lock("a").acquire().await.unwrap();
    let held = client.lock("b").acquire().await.unwrap();
    let tool = Connection::open(&file).unwrap();
    let set = "UPDATE locks SET ends = datetime('now') WHERE name = 'a'";
    assert_eq!(tool.execute(set, []).unwrap(), 1);
    let error = other.lock("a").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    assert!(error.to_string().contains("another program"), "{error}");
    assert_eq!(other.list("*").limit(10).await.unwrap(), ["a", "b"]);
    assert_eq!(broken.lost().await, LostReason::Expired);
    tokio::time::sleep(LEASE * 2).await;
    assert!(held.is_held());
    held.release().await.unwrap();
    other.lock("a").force_release().await.unwrap();
    let next = other.lock("a").acquire().await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn t58_killed_at_any_moment_a_process_leaves_a_whole_file_and_growing_tokens() {
    const ROUNDS: u64 = 6;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let lease = Duration::from_secs(2); // that of the others
    let client = super::client(&file, lease).await;
    let lock = client.lock("ledger").fenced();
    let mut last = 0;
    for round in 0..ROUNDS {
        let mut others = [
            Other::start("hold long", &file, u32::MAX),
            Other::start("hold long", &file, u32::MAX),
        ];
        others[0].hear();
        tokio::time::sleep(Duration::from_micros(3_000 + round * 3_400)).await;
        for other in &mut others {
            other.kill();
            for token in other.rest() {
                last = last.max(token.parse::<u64>().unwrap());
            }
        }
        let killed = Instant::now();
        let guard = lock.acquire().await.unwrap();
        assert!(killed.elapsed() < lease * 2, "{:?}", killed.elapsed());
        let token: u64 = guard.token().to_string().parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
        guard.release().await.unwrap();
    }
    let tool = Connection::open(&file).unwrap();
    let whole: String = tool
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(whole, "ok");
}

/// Plays this role with a file on a small disk, in a namespace in which it may mount one.
#[cfg(target_os = "linux")]
fn on_a_small_disk(role: &str) {
    let folder = tempfile::tempdir().unwrap();
    let own = ["--user", "--map-root-user", "--mount"];
    let able = std::process::Command::new("unshare")
        .args(own)
        .arg("true")
        .status();
    if !able.is_ok_and(|status| status.success()) {
        let why = "this machine does not allow `unshare --user --mount`";
        assert!(std::env::var_os("TIDELOCK_REQUIRE").is_none(), "{why}");
        eprintln!("LEFT OUT: {why}");
        return;
    }
    let script = format!(
        "mount -t tmpfs -o size=4m none '{}' && exec \"$0\" \"$@\"",
        folder.path().display()
    );
    let mut command = vec!["unshare"];
    command.extend(own);
    command.extend(["sh", "-c", script.as_str()]);
    Other::start_in(&command, role, &folder.path().join("locks.db"), 0).finish();
}

/// Fills the disk with a file, and returns its path.
fn fill(beside: &Path) -> PathBuf {
    let filler = beside.with_extension("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    let error = std::io::copy(&mut std::io::repeat(7), &mut file).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    filler
}

#[cfg(target_os = "linux")]
#[test]
fn t58_on_a_full_disk_nothing_is_granted_and_what_is_held_can_be_released() {
    on_a_small_disk("full");
}

/// The child's part of the test above.
pub(crate) async fn fill_the_disk(file: &Path) {
    let client = impatient(file).await;
    let held = client.lock("held").acquire().await.unwrap();
    let other = client.lock("other").acquire().await.unwrap();
    let filler = fill(file);
    // The log has preallocated space for a while. Then the disk is full.
    let mut guards = Vec::new();
    let refused = loop {
        let name = format!("{}{}", "x".repeat(500), guards.len());
        match client.lock(&name).try_acquire().await {
            Ok(guard) => guards.push(guard.unwrap()),
            Err(error) => break error,
        }
        assert!(guards.len() < 10_000);
    };
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(format!("{refused}").contains("full"), "{refused}");
    // Existing holds last beyond their lease, and can be released.
    tokio::time::sleep(LEASE * 2).await;
    assert!(held.is_held(), "{:?}", held.lost().await);
    held.release().await.unwrap();
    assert!(!client.lock("held").inspect().await.unwrap().is_locked());
    std::fs::remove_file(filler).unwrap();
    client
        .lock("again")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    other.release().await.unwrap();
}

/// A refused attempt stores when it saw a row of another clock, which only later processes need. The room that a full disk has
/// left in the file is for renewals and releases.
#[cfg(target_os = "linux")]
#[test]
fn on_a_full_disk_refused_attempts_leave_the_room_to_what_is_held() {
    on_a_small_disk("refused on a full disk");
}

/// The child's part of the test above.
pub(crate) async fn be_refused_on_a_full_disk(file: &Path) {
    let lease = LEASE * 2;
    let client = super::client(file, lease).await;
    let held = client.lock("held").acquire().await.unwrap();
    let tool = Connection::open(file).unwrap();
    // A row from the machine's previous boot, with a lease of an hour.
    let row = "INSERT INTO locks (name, owner, revision, lease, ends, domain, token, since) VALUES ('a', 'x:1', 1, 3600000000000, 5, 'another boot+0.0', 1, 0)";
    tool.execute(row, []).unwrap();
    let is_stored = || {
        let table = "SELECT count(*) FROM sqlite_schema WHERE name = 'sights'";
        let count = tool.query_row(table, [], |row| row.get::<_, i64>(0));
        count.unwrap() > 0
    };
    let refused = async || {
        let guard = client.lock("a").try_acquire().await.unwrap();
        assert!(guard.is_none(), "the lease of that row has not ended");
    };
    let filler = fill(file);
    let end = Instant::now() + lease * 2;
    while Instant::now() < end {
        refused().await;
        assert!(!is_stored(), "it has taken room that a renewal may need");
        tokio::time::sleep(lease / 40).await;
    }
    assert!(held.is_held(), "{:?}", held.lost().await);
    held.release().await.unwrap();
    std::fs::remove_file(filler).unwrap();
    let end = Instant::now() + lease * 10;
    while !is_stored() {
        assert!(Instant::now() < end, "there is room again");
        refused().await;
        tokio::time::sleep(lease / 40).await;
    }
}

#[tokio::test]
async fn a_row_of_another_clock_is_taken_only_after_it_has_stood_still_for_a_lease() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let client = super::client(&file, LEASE).await;
    let tool = Connection::open(&file).unwrap();
    // A row from the machine's previous boot, whose lease seems to have ended long ago.
    let row = "REPLACE INTO locks (name, owner, revision, lease, ends, domain, token, since) VALUES ('a', 'x:1', ?1, 900000000, 5, 'another boot+0.0', 1, 0)";
    tool.execute(row, [1]).unwrap();
    assert!(client.lock("a").try_acquire().await.unwrap().is_none());
    // Its owner renews it after two thirds of the lease: the waiter must start its wait again.
    tokio::time::sleep(LEASE * 2 / 3).await;
    tool.execute(row, [2]).unwrap();
    let renewed = Instant::now();
    let guard = client.lock("a").acquire().await.unwrap();
    let waited = renewed.elapsed();
    assert!(waited >= LEASE && waited < LEASE * 2, "{waited:?}");
    guard.release().await.unwrap();
}

/// Each client is a command that tries once, as one of cron. It ends long before the lease, and the next one begins with
/// nothing in its memory.
#[tokio::test]
async fn a_row_of_another_clock_is_taken_by_clients_that_only_try() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    drop(super::client(&file, LEASE).await);
    let tool = Connection::open(&file).unwrap();
    let row = "INSERT INTO locks (name, owner, revision, lease, ends, domain, token, since) VALUES ('a', 'x:1', 1, 900000000, 5, 'another boot+0.0', 1, 0)";
    tool.execute(row, []).unwrap();
    let begun = Instant::now();
    loop {
        let client = super::client(&file, LEASE).await;
        let guard = client.lock("a").try_acquire().await.unwrap();
        let waited = begun.elapsed();
        if guard.is_some() {
            assert!(waited >= LEASE, "{waited:?}");
            break;
        }
        assert!(waited < LEASE * 6, "it is never taken");
        client.close(Duration::ZERO).await;
        tokio::time::sleep(LEASE / 3).await;
    }
}

#[tokio::test]
async fn files_of_a_newer_tidelock_and_of_other_programs_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let newer = folder.path().join("newer.db");
    drop(super::client(&newer, LEASE).await);
    Connection::open(&newer)
        .unwrap()
        .execute_batch("PRAGMA user_version = 99")
        .unwrap();
    let error = Client::connect(&super::url(&newer)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");

    let foreign = folder.path().join("shop.db");
    Connection::open(&foreign)
        .unwrap()
        .execute_batch("CREATE TABLE goods (id)")
        .unwrap();
    let before = std::fs::read(&foreign).unwrap();
    let error = Client::connect(&super::url(&foreign)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    assert_eq!(std::fs::read(&foreign).unwrap(), before);
}

#[tokio::test]
async fn an_attempt_out_of_time_behind_a_busy_file_leaves_no_lock() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let client = impatient(&file).await;
    let tool = Connection::open(&file).unwrap();
    tool.execute_batch("BEGIN IMMEDIATE").unwrap();
    let wait = AcquireOptions::new().wait(Duration::from_millis(100));
    client.lock("a").acquire_with(wait).await.unwrap_err();
    tool.execute_batch("COMMIT").unwrap();
    // The next request waits behind the abandoned attempt on the same connection.
    tokio::time::sleep(RESPONSE).await;
    let guard = client.lock("a").try_acquire().await.unwrap();
    assert!(guard.is_some(), "the abandoned attempt has left a lock");
}
