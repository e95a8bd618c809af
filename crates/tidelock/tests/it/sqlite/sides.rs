//! Read-write locks: waiters and holders of other processes that die, and clients that know no sides.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tempfile::TempDir;
use tidelock::{AcquireOptions, Client, ErrorKind, Guard, Lock, LostReason, Mode};
use tokio::task::JoinHandle;

use super::child::Other;

const LEASE: Duration = Duration::from_secs(30);
/// The lease of a process that is killed while it holds a side.
const SHORT: Duration = Duration::from_secs(6);
/// How long a process counts as alive after a beat.
const ALIVE: Duration = Duration::from_secs(6);
/// The time between two beats.
const BEAT: Duration = Duration::from_secs(2);
const NAME: &str = "prices";

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

    fn read(&self) -> Lock {
        self.client.read_write_lock(NAME).read()
    }

    fn write(&self) -> Lock {
        self.client.read_write_lock(NAME).write()
    }

    fn waiting(&self) -> u32 {
        let sql = "SELECT count(*) FROM sides WHERE held_as IS NULL";
        self.raw.query_row(sql, [], |row| row.get(0)).unwrap_or(0)
    }

    fn holding(&self) -> u32 {
        let sql = "SELECT count(*) FROM sides WHERE held_as IS NOT NULL";
        self.raw.query_row(sql, [], |row| row.get(0)).unwrap_or(0)
    }

    async fn until_wait(&self, count: u32) {
        let begun = Instant::now();
        while self.waiting() != count {
            assert!(begun.elapsed() < LEASE, "{} wait", self.waiting());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Starts a waiter, and returns when so many wait.
    async fn wait(&self, side: &Lock, count: u32) -> JoinHandle<tidelock::Result<Guard>> {
        let waiting = tokio::spawn(side.acquire());
        self.until_wait(count).await;
        waiting
    }

    /// Stops a process outside of a write transaction. Inside of one it would keep everybody else from writing.
    fn stop(&self, other: &Other) {
        self.raw.execute_batch("BEGIN IMMEDIATE").unwrap();
        other.stop();
        self.raw.execute_batch("ROLLBACK").unwrap();
    }
}

async fn within(limit: Duration, waiting: JoinHandle<tidelock::Result<Guard>>) -> Guard {
    let waited = tokio::time::timeout(limit, waiting).await;
    waited.expect("in time").unwrap().unwrap()
}

/// The process of the readers is stopped, so only the release can have let them in.
#[tokio::test]
async fn a_release_lets_all_readers_in_that_are_next_in_the_same_transaction() {
    let ground = Ground::new().await;
    let writer = ground.write().acquire().await.unwrap();
    let mut readers = Other::start("read", &ground.file, 3);
    ground.until_wait(3).await;
    let next = ground.wait(&ground.write(), 4).await;
    ground.stop(&readers);
    writer.release().await.unwrap();
    assert_eq!((ground.holding(), ground.waiting()), (3, 1));
    readers.go_on();
    for _ in 0..3 {
        assert_eq!(readers.hear(), "in");
    }
    assert!(!next.is_finished());
    readers.kill();
    drop(next);
}

/// T50: the holds of a killed reader end with their leases, however long another one reads.
#[tokio::test]
async fn t50_a_reader_that_was_killed_costs_a_writer_the_rest_of_its_lease() {
    let ground = Ground::new().await;
    let mut dies = Other::start("read", &ground.file, 2);
    for _ in 0..2 {
        assert_eq!(dies.hear(), "in");
    }
    let reads = ground.read().acquire().await.unwrap();
    let writer = ground.wait(&ground.write(), 1).await;
    let killed = Instant::now();
    dies.kill();
    reads.release().await.unwrap();
    let writer = within(SHORT + BEAT, writer).await;
    let took = killed.elapsed();
    println!("the writer entered after {took:?}");
    // It was renewed at most a third of its lease ago.
    assert!(took > SHORT / 2, "{took:?}");
    assert_eq!(ground.holding(), 1, "the dead are removed");
    writer.release().await.unwrap();
}

/// T50: a waiting writer of a killed process keeps no reader out for longer than its process counts as alive.
#[tokio::test]
async fn t50_a_waiting_writer_that_was_killed_lets_the_readers_behind_it_pass() {
    let ground = Ground::new().await;
    let reads = ground.read().acquire().await.unwrap();
    let mut dies = Other::start("write", &ground.file, 5);
    ground.until_wait(5).await;
    let behind = ground.wait(&ground.read(), 6).await;
    dies.kill();
    let behind = within(ALIVE + BEAT * 2, behind).await;
    assert!(reads.is_held());
    behind.release().await.unwrap();
    reads.release().await.unwrap();
    let writer = ground.write().try_acquire().await.unwrap();
    assert!(writer.is_some(), "nobody is left");
}

/// T50: the place of an upgrade whose process was killed keeps no reader out for longer than that process counts as alive,
/// and its upgradeable hold ends with its lease.
#[tokio::test]
async fn t50_an_upgrade_that_was_killed_lets_readers_and_the_next_one_in() {
    let ground = Ground::new().await;
    let reads = ground.read().acquire().await.unwrap();
    let mut dies = Other::start("upgrade", &ground.file, 1);
    assert_eq!(dies.hear(), "in");
    ground.until_wait(1).await;
    let behind = ground.wait(&ground.read(), 2).await;
    dies.kill();
    let behind = within(ALIVE + BEAT * 2, behind).await;
    assert!(reads.is_held());
    let sides = ground.client.read_write_lock(NAME);
    let next = within(
        SHORT + BEAT,
        tokio::spawn(sides.upgradeable_read().acquire()),
    )
    .await;
    behind.release().await.unwrap();
    reads.release().await.unwrap();
    sides.upgrade(&next).await.unwrap().release().await.unwrap();
    next.release().await.unwrap();
    let writer = ground.write().try_acquire().await.unwrap();
    assert!(writer.is_some(), "nobody is left");
}

/// A tidelock that knows no upgradeable readers finds the rows of writers, so it keeps out more than it must, and lets in
/// nobody beside them.
#[tokio::test]
async fn an_upgradeable_reader_has_the_row_of_a_writer() {
    let ground = Ground::new().await;
    let sides = ground.client.read_write_lock(NAME);
    let held = sides.upgradeable_read().acquire().await.unwrap();
    let writer = sides.upgrade(&held).await.unwrap();
    let sql = "SELECT group_concat(owner, '|') FROM (SELECT owner FROM sides WHERE reads = 0 ORDER BY token)";
    let owners: String = ground.raw.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(owners, format!("{}|{}", held.owner_id(), writer.owner_id()));
    assert!(held.owner_id().ends_with(":upgradeable"));
    writer.release().await.unwrap();
    held.release().await.unwrap();
}

/// The files are removed while an upgrade waits for a reader. The next client finds a free lock in new files and writes, so the
/// upgrade is never granted: it is lost, and both readers are told.
#[tokio::test]
async fn an_upgrade_that_waits_is_lost_with_the_data_of_its_store() {
    let ground = Ground::new().await;
    let (client, other) = (
        super::client(&ground.file, SHORT).await,
        super::client(&ground.file, SHORT).await,
    );
    let mine = client.read_write_lock(NAME);
    let held = mine.upgradeable_read().acquire().await.unwrap();
    let reader = other.read_write_lock(NAME).read().acquire().await.unwrap();
    let upgrade = tokio::spawn(mine.upgrade(&held));
    ground.until_wait(1).await;
    drop((ground.raw, ground.client));
    for end in ["", "-wal", "-shm", "-lock"] {
        let path = format!("{}{end}", ground.file.display());
        std::fs::remove_file(path).unwrap();
    }
    let newcomer = super::client(&ground.file, SHORT).await;
    let next = tokio::spawn(newcomer.read_write_lock(NAME).write().acquire());
    let next = within(SHORT, next).await;
    let ended = tokio::time::timeout(SHORT, upgrade).await.unwrap();
    let error = ended.unwrap().expect_err("two writers");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    for guard in [held, reader] {
        tokio::time::timeout(SHORT, guard.lost()).await.unwrap();
        let error = guard.release().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    }
    assert!(next.is_held());
    assert!(mine.read().try_acquire().await.unwrap().is_none());
    next.release().await.unwrap();
    let held = mine.upgradeable_read().acquire().await.unwrap();
    mine.upgrade(&held).await.unwrap().release().await.unwrap();
    held.release().await.unwrap();
}

/// T50: processes that read without a pause keep no writer out: it enters when those that were inside have left.
#[tokio::test]
async fn t50_a_writer_waits_for_one_generation_of_readers() {
    let ground = Ground::new().await;
    let mut readers = [(); 2].map(|()| Other::start("read on and on", &ground.file, 4));
    for reader in &mut readers {
        assert_eq!(reader.hear(), "in");
    }
    for _ in 0..5 {
        let writer = tokio::time::timeout(LEASE / 3, ground.write().acquire()).await;
        let writer = writer.expect("it is not starved").unwrap();
        assert_eq!(ground.holding(), 1);
        writer.release().await.unwrap();
    }
    readers.iter_mut().for_each(Other::kill);
}

/// Readers, writers and upgradeable readers of four processes. A writer changes two files; no reader and no writer sees them
/// differ, and an upgradeable reader finds what it has read when it writes.
#[tokio::test]
async fn readers_and_writers_of_several_processes_never_meet() {
    let ground = Ground::new().await;
    for end in ["one", "two"] {
        std::fs::write(ground.file.with_extension(end), "0").unwrap();
    }
    let all = [(); 4].map(|()| Other::start("sides", &ground.file, 30));
    all.into_iter().for_each(Other::finish);
    let sum = std::fs::read_to_string(ground.file.with_extension("one")).unwrap();
    assert_eq!(sum, "80", "two of three write");
}

/// A lock of the same name has the place of a writer, and a release on either side wakes the other.
#[tokio::test]
async fn a_lock_and_the_sides_of_one_name_wake_each_other() {
    let ground = Ground::new().await;
    let plain = ground.client.lock(NAME);
    for side in [ground.read(), ground.write()] {
        for _ in 0..5 {
            let guard = plain.acquire().await.unwrap();
            assert!(side.try_acquire().await.unwrap().is_none());
            let waiting = ground.wait(&side, 1).await;
            guard.release().await.unwrap();
            assert_eq!(ground.holding(), 1, "the release has let it in");
            let guard = within(BEAT, waiting).await;
            assert!(plain.try_acquire().await.unwrap().is_none());
            let waiting = tokio::spawn(plain.acquire());
            tokio::time::sleep(Duration::from_millis(5)).await;
            guard.release().await.unwrap();
            within(BEAT, waiting).await.release().await.unwrap();
        }
    }
}

/// An older tidelock knows no sides. It sees one holder, which excludes its locks, and can break it: then all readers are
/// told, and readers that come later do not bring the lost holds back.
#[tokio::test]
async fn a_client_that_knows_no_sides_is_excluded_and_what_it_breaks_is_told() {
    let ground = Ground::new().await;
    let client = super::client(&ground.file, SHORT).await;
    let read = client.read_write_lock(NAME).read();
    let lost = [read.acquire().await.unwrap(), read.acquire().await.unwrap()];
    let rows = "SELECT count(*) FROM locks";
    let rows = || -> i64 { ground.raw.query_row(rows, [], |row| row.get(0)).unwrap() };
    assert_eq!(rows(), 1);
    assert_eq!(ground.raw.execute("DELETE FROM locks", []).unwrap(), 1);
    let later = ground.read().acquire().await.unwrap();
    for guard in lost {
        let reason = tokio::time::timeout(SHORT / 2, guard.lost()).await;
        assert_eq!(reason.expect("at the next renewal"), LostReason::Taken);
    }
    let seen = read.inspect().await.unwrap();
    let holders: Vec<_> = seen
        .holders
        .iter()
        .map(|one| (&one.owner, one.mode))
        .collect();
    assert_eq!(holders, [(&later.owner_id(), Mode::Read)]);
    assert!(later.is_held());
    later.release().await.unwrap();
    assert_eq!(rows(), 0);
}

/// The names of read-write locks are listed, and a forced release ends both sides.
#[tokio::test]
async fn held_sides_are_listed_and_shown_with_their_modes() {
    let ground = Ground::new().await;
    let reads = ground.read().acquire().await.unwrap();
    let writer = ground.wait(&ground.write(), 1).await;
    let names = ground.client.list("*").await.unwrap();
    assert_eq!(names, [NAME]);
    let seen = ground.read().inspect().await.unwrap();
    assert_eq!(seen.waiters, Some(1));
    assert_eq!(seen.holders[0].mode, Mode::Read);
    reads.release().await.unwrap();
    let writer = within(BEAT, writer).await;
    let seen = ground.read().inspect().await.unwrap();
    assert_eq!(seen.holders[0].mode, Mode::Write);
    writer.release().await.unwrap();
    assert!(ground.client.list("*").await.unwrap().is_empty());
}

/// The part of a child: so many tasks that hold one side until the child is killed, or that take it again and again, or
/// that read upgradeably and ask for the upgrade.
pub(crate) async fn hold_sides(what: &str, file: &Path, count: u32, say: fn(&str)) {
    let client = super::client(file, SHORT).await;
    let sides = client.read_write_lock(NAME);
    let side = match what {
        "write" => sides.write(),
        "upgrade" => sides.upgradeable_read(),
        _ => sides.read(),
    };
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..count {
        let (side, sides) = (side.clone(), sides.clone());
        let (keeps_it, upgrades) = (what != "read on and on", what == "upgrade");
        all.spawn(async move {
            let mut guard = side.acquire().await.unwrap();
            say("in");
            if upgrades {
                let _writer = sides.upgrade(&guard).await.unwrap();
                say("writes");
            }
            if keeps_it {
                std::future::pending::<()>().await;
            }
            loop {
                tokio::time::sleep(Duration::from_millis(2)).await;
                guard.release().await.unwrap();
                guard = side.acquire().await.unwrap();
            }
        });
    }
    all.join_all().await;
}

/// The part of a child: a reader, a writer and an upgradeable reader in turns. Writers make a sum in two files.
pub(crate) async fn sides(file: &Path, rounds: u32) {
    let client = super::client(file, LEASE).await;
    let sides = client.read_write_lock(NAME);
    let [one, two] = ["one", "two"].map(|end| file.with_extension(end));
    let sum = |file: &Path| -> u32 { std::fs::read_to_string(file).unwrap().parse().unwrap() };
    for round in 0..rounds {
        let (writes, upgrades) = (round % 3 == 0, round % 3 == 1);
        let side = match round % 3 {
            0 => sides.write(),
            1 => sides.upgradeable_read(),
            _ => sides.read(),
        };
        let patient = AcquireOptions::new().wait(LEASE);
        let guard = side.acquire_with(patient.clone()).await.unwrap();
        let before = sum(&one);
        tokio::task::yield_now().await;
        assert_eq!(sum(&two), before, "a writer is inside");
        let promoted = if upgrades {
            Some(sides.upgrade_with(&guard, patient).await.unwrap())
        } else {
            None
        };
        if writes || upgrades {
            assert_eq!(sum(&one), before, "another writer was inside");
            std::fs::write(&one, (before + 1).to_string()).unwrap();
            tokio::task::yield_now().await;
            std::fs::write(&two, (before + 1).to_string()).unwrap();
        }
        if let Some(writer) = promoted {
            writer.release().await.unwrap();
        }
        guard.release().await.unwrap();
    }
}
