//! T67: files that belong to a lock file are removed or replaced while a lock in it is held.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tidelock::{Client, LostReason};

use super::child::Other;

/// The lease of the clients in this process. Child processes in the role `hold long` have a lease of two seconds too.
const LEASE: Duration = Duration::from_secs(2);

fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// A client that connects now, and gives up soon if it cannot open the file.
async fn newcomer(file: &Path) -> tidelock::Result<Client> {
    Client::builder()
        .lease(LEASE)
        .response_timeout(LEASE / 6)
        .connect(&super::url(file))
        .await
}

/// Tries to acquire the lock in a tight loop, each time as a new client. True: it was granted.
async fn gets_in(file: &Path, name: &str) -> bool {
    match newcomer(file).await {
        Ok(client) => matches!(client.lock(name).try_acquire().await, Ok(Some(_))),
        Err(_) => false,
    }
}

/// An operation on the files, with the path of the lock file.
type Deed = fn(&Path);

const REMOVED: [(&str, Deed); 7] = [
    ("-wal", |file| rm(file, &["-wal"])),
    ("-shm", |file| rm(file, &["-shm"])),
    ("-lock", |file| rm(file, &["-lock"])),
    ("-wal and -shm", |file| rm(file, &["-wal", "-shm"])),
    ("all three", |file| rm(file, &["-wal", "-shm", "-lock"])),
    ("replaced by copies", |file| {
        for ending in ["-wal", "-shm"] {
            let (from, to) = (beside(file, ending), beside(file, "-copy"));
            // Another process may just have removed it.
            if std::fs::copy(&from, &to).is_ok() {
                std::fs::rename(&to, &from).unwrap();
            }
        }
    }),
    ("replaced by empty ones", |file| {
        for ending in ["-wal", "-shm"] {
            std::fs::write(beside(file, "-new"), "").unwrap();
            std::fs::rename(beside(file, "-new"), beside(file, ending)).unwrap();
        }
    }),
];

fn rm(file: &Path, endings: &[&str]) {
    for ending in endings {
        // The file may be missing: after an earlier operation no process may have created it again yet.
        let _ = std::fs::remove_file(beside(file, ending));
    }
}

/// The child process that performs the operation.
pub(crate) fn remove(what: &str, file: &Path) {
    let found = REMOVED.iter().find(|(name, _)| *name == what);
    found.expect("a known deed").1(file);
}

/// Runs the same check after each of the operations, all of them concurrently.
async fn after_each<F: Future<Output = ()> + Send + 'static>(
    test: impl Fn(&'static str, Deed) -> F,
) {
    let tests: Vec<_> = REMOVED
        .iter()
        .map(|(what, deed)| tokio::spawn(test(what, *deed)))
        .collect();
    for test in tests {
        test.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t67_nobody_gets_in_beside_a_holder_whose_log_was_removed() {
    after_each(|what, deed| async move {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("locks.db");
        let mut holder = Other::start("hold long", &file, 1);
        holder.hear();
        deed(&file);
        // The attempts cover the time right after the operation, the end of the lease by the log, and the time after
        // that.
        let until = Instant::now() + LEASE * 3 / 2;
        while Instant::now() < until {
            let granted = gets_in(&file, "ledger").await;
            assert!(!granted || !holder.still_holds(), "{what}: two holders");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(holder.state(), "held", "{what}");
        holder.kill();
        let client = super::client(&file, LEASE).await;
        drop(client.lock("ledger").acquire().await.unwrap());
    })
    .await;
}

/// Each process must leave the old files before any process can use new ones. That includes idle processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t67_all_who_had_the_file_open_go_on_with_what_they_hold() {
    after_each(|what, _| async move {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("locks.db");
        let mut other = Other::start("hold long", &file, 1);
        other.hear();
        let client = super::client(&file, LEASE).await;
        let held = client.lock("mine").acquire().await.unwrap();
        let idle = super::client(&file, LEASE).await;
        // Another process does this: if this process opened the files, the close would drop the locks that SQLite has
        // on them.
        let mut doer = Other::start(what, &file, 1);
        assert_eq!(doer.hear(), "done");
        tokio::time::sleep(LEASE * 3 / 2).await;
        assert!(held.is_held(), "{what}: {}", held.lost().await);
        assert_eq!(other.state(), "held", "{what}");
        for name in ["mine", "ledger"] {
            let seen = idle.lock(name).inspect().await.unwrap();
            assert!(seen.is_locked(), "{what}: {name}");
        }
        held.release().await.unwrap();
        let taken = idle.lock("mine").try_acquire().await.unwrap();
        assert!(taken.is_some(), "{what}");
    })
    .await;
}

/// Four processes take turns all the time, and each holder detects if another process is inside too.
#[test]
fn t67_processes_take_turns_while_their_log_is_removed_again_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    std::fs::write(file.with_extension("word"), "0").unwrap();
    let all: Vec<Other> = (0..4)
        .map(|_| Other::start("hammer for a while", &file, 0))
        .collect();
    for (_, deed) in REMOVED {
        std::thread::sleep(Duration::from_millis(700));
        deed(&file);
    }
    let rounds: u64 = all.into_iter().map(Other::rounds).sum();
    let count = std::fs::read_to_string(file.with_extension("word")).unwrap();
    assert_eq!(count, rounds.to_string());
}

/// A restore: the log is removed, and an old copy is written into the file itself.
#[tokio::test]
async fn t67_a_restored_file_is_used_by_nobody_beside_the_holder() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    super::client(&file, LEASE)
        .await
        .close(Duration::from_secs(1))
        .await;
    std::fs::copy(&file, beside(&file, "-backup")).unwrap();
    let mut holder = Other::start("hold", &file, 1);
    holder.hear();
    // Another process does this, as an operator would: if this process closed the file, it would drop our own locks on
    // it.
    let restore = format!(
        "rm '{0}-wal' '{0}-shm' && cat '{0}-backup' > '{0}'",
        file.display()
    );
    let done = std::process::Command::new("sh")
        .args(["-c", &restore])
        .status();
    assert!(done.unwrap().success());
    let until = Instant::now() + LEASE * 2;
    while Instant::now() < until {
        let granted = gets_in(&file, "ledger").await;
        assert!(!granted || !holder.still_holds(), "a second holder");
    }
}

#[tokio::test]
async fn t67_a_file_that_is_replaced_is_told_before_the_lease_would_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let client = super::client(&file, LEASE).await;
    let held = client.lock("stock").acquire().await.unwrap();
    let replaced = Instant::now();
    for ending in ["", "-wal", "-shm", "-lock"] {
        let _ = std::fs::remove_file(beside(&file, ending));
    }
    assert_eq!(held.lost().await, LostReason::Taken);
    assert!(replaced.elapsed() < LEASE, "{:?}", replaced.elapsed());
}

/// The log cannot be moved into the old file while a tool reads an older state of it, so the holder keeps the old file
/// open. It must not renew there, because others have the lock in the new file.
#[tokio::test]
async fn t67_a_file_that_is_replaced_under_a_tool_that_reads_it_is_told_within_the_lease() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let client = super::client(&file, LEASE).await;
    let held = client.lock("stock").acquire().await.unwrap();
    let tool = rusqlite::Connection::open(&file).unwrap();
    tool.execute_batch("BEGIN").unwrap();
    let count = "SELECT count(*) FROM locks";
    let _: i64 = tool.query_row(count, [], |row| row.get(0)).unwrap();
    let other = client.lock("other").acquire().await.unwrap();
    other.release().await.unwrap();
    let replaced = Instant::now();
    rm(&file, &["", "-wal", "-shm", "-lock"]);
    let newcomer = super::client(&file, LEASE).await;
    let theirs = newcomer.lock("stock").acquire().await.unwrap();
    let told = tokio::time::timeout(LEASE * 2, held.lost()).await;
    told.expect("it is told");
    let after = replaced.elapsed();
    assert!(after < LEASE * 3 / 2, "{after:?}");
    assert!(theirs.is_held());
    let error = client.lock("stock").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), tidelock::ErrorKind::Unavailable, "{error}");
    // Without the reader, the client goes on in the new file.
    drop(tool);
    assert!(client.lock("stock").try_acquire().await.unwrap().is_none());
}

/// The command line tool exits without moving the log into the file, and so does a killed process.
#[tokio::test]
async fn t67_tokens_grow_when_a_log_was_removed_that_nobody_had_open() {
    for (what, deed) in REMOVED {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("locks.db");
        let mut last = None;
        for round in 0..2 {
            let mut holder = Other::start("hold", &file, 5);
            for _ in 0..5 {
                let token = Some(holder.hear().parse::<u64>().unwrap());
                assert!(token > last, "{what}: {token:?} after {last:?}");
                last = token;
            }
            holder.kill();
            if round == 0 {
                deed(&file);
            }
        }
    }
}
