//! Read-write locks: their table, what a release lets in, and holders and waiters that die, freeze or hear nothing.

use std::process::Command;
use std::time::{Duration, Instant};

use real_servers::secs;
use testkit::java::{HammerReport, WordFile};
use testkit::process::Spawned;
use testkit::proxy::{Mode as Pass, Proxy, Way};
use testkit::servers::MariaDb;
use tidelock::{AcquireOptions, Client, ErrorKind, Guard, Lock, LostReason, Mode};
use tokio::task::JoinHandle;

use super::session::Session;

const LEASE: Duration = Duration::from_secs(30);
/// The lease of a process that is killed or frozen while it holds a side.
const SHORT: Duration = Duration::from_secs(6);
const NAME: &str = "prices";
const WAITING: &str = "SELECT (SELECT COUNT(*) FROM tidelock_sides WHERE held_as IS NULL) \
    + (SELECT COUNT(*) FROM tidelock_waiters)";
const HOLDING: &str = "SELECT COUNT(*) FROM tidelock_sides WHERE held_as IS NOT NULL";
const OWNER: &str = "SELECT owner FROM tidelock_locks";

/// A server, a client, and the lock.
struct Ground {
    server: MariaDb,
    client: Client,
}

impl Ground {
    async fn new() -> Self {
        let server = MariaDb::start().unwrap();
        let client = client(&server.url()).await;
        Self { server, client }
    }

    fn read(&self) -> Lock {
        self.client.read_write_lock(NAME).read()
    }

    fn write(&self) -> Lock {
        self.client.read_write_lock(NAME).write()
    }

    fn query(&self, statement: &str) -> String {
        self.server.query(statement).unwrap()
    }

    async fn until(&self, statement: &str, answer: &str) {
        let begun = Instant::now();
        loop {
            let now = self.query(statement);
            if now == answer {
                return;
            }
            assert!(begun.elapsed() < LEASE, "{statement}: {now}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn until_wait(&self, count: u32) {
        self.until(WAITING, &count.to_string()).await;
    }

    /// Starts a waiter, and returns when so many wait.
    async fn wait(&self, side: &Lock, count: u32) -> JoinHandle<tidelock::Result<Guard>> {
        let waiting = tokio::spawn(side.acquire());
        self.until_wait(count).await;
        waiting
    }

    /// Another process, which acquires one side of the lock.
    fn process(&self, side: &str) -> Spawned {
        self.process_that(&format!("acquire {NAME} {side}"))
    }

    /// Another process, with its first command.
    fn process_that(&self, what: &str) -> Spawned {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peer"));
        command
            .arg(self.server.url())
            .arg(SHORT.as_millis().to_string());
        let mut peer = Spawned::start(command).unwrap();
        peer.wait_line("ready", LEASE).unwrap();
        peer.write_line(what).unwrap();
        peer
    }

    fn holder(&self, side: &str) -> Spawned {
        let mut peer = self.process(side);
        peer.wait_line("acquired", LEASE).unwrap();
        peer
    }
}

async fn client(url: &str) -> Client {
    let builder = Client::builder().lease(LEASE).publish_process_info(false);
    builder.connect(url).await.unwrap()
}

async fn within(limit: Duration, waiting: JoinHandle<tidelock::Result<Guard>>) -> Guard {
    let waited = tokio::time::timeout(limit, waiting).await;
    waited.expect("in time").unwrap().unwrap()
}

/// The requests of the readers are held, so only the release can have let them in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_lets_all_readers_in_that_are_next_in_the_same_transaction() {
    let ground = Ground::new().await;
    let proxy = Proxy::start(ground.server.addr()).unwrap();
    let far = client(&ground.server.url_at(proxy.addr(), "tide")).await;
    let far = far.read_write_lock(NAME).read();
    let writer = ground.write().fenced().acquire().await.unwrap();
    let mut readers = Vec::new();
    for count in 1..=3 {
        readers.push(ground.wait(&far, count).await);
    }
    let next = ground.wait(&ground.write(), 4).await;
    proxy.set_both(Pass::Hold);
    let token = writer.token().get();
    writer.release().await.unwrap();
    assert_eq!(ground.query(HOLDING), "3");
    ground.until_wait(1).await;
    let short = "SELECT MAX(ends) < UNIX_TIMESTAMP(NOW(6)) * 1000000 + 6000000 FROM tidelock_sides";
    assert_eq!(ground.query(short), "1", "not confirmed yet");
    // Each has a token of its own, and the row of the lock has the newest one.
    let tokens = format!(
        "SELECT COUNT(DISTINCT token) = 3 AND MIN(token) > {token} AND MAX(token) = (SELECT token FROM tidelock_locks) \
         FROM tidelock_sides WHERE held_as IS NOT NULL"
    );
    assert_eq!(ground.query(&tokens), "1");
    proxy.set_both(Pass::Pass);
    for reader in readers {
        within(LEASE / 3, reader).await.release().await.unwrap();
    }
    within(LEASE / 3, next).await.release().await.unwrap();
    assert_eq!(ground.query(OWNER), "");
}

/// T50: the hold of a killed reader ends with its lease, however long another one reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t50_a_reader_that_was_killed_costs_a_writer_the_rest_of_its_lease() {
    let ground = Ground::new().await;
    let mut dies = ground.holder("read");
    let reads = ground.read().acquire().await.unwrap();
    let writer = ground.wait(&ground.write(), 1).await;
    // A renewal that comes after this look only lengthens the lease.
    let left = "SELECT CAST(GREATEST(MIN(ends) / 1000 - UNIX_TIMESTAMP(NOW(6)) * 1000, 0) AS INTEGER) \
        FROM tidelock_sides WHERE held_as IS NOT NULL";
    let killed = Instant::now();
    let left = Duration::from_millis(ground.query(left).parse().unwrap());
    dies.kill().unwrap();
    reads.release().await.unwrap();
    let writer = within(LEASE / 2, writer).await;
    let took = killed.elapsed();
    println!("the writer entered after {took:?} of {left:?}");
    assert!(took >= left * 9 / 10, "{took:?} of {left:?}");
    assert_eq!(ground.query(HOLDING), "1", "the dead are removed");
    writer.release().await.unwrap();
}

/// T50: a waiting writer of a killed process keeps no reader out for longer than its process counts as alive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t50_a_waiting_writer_that_was_killed_lets_the_readers_behind_it_pass() {
    let ground = Ground::new().await;
    let reads = ground.read().acquire().await.unwrap();
    let mut dies = ground.process("write");
    ground.until_wait(1).await;
    let behind = ground.wait(&ground.read(), 2).await;
    dies.kill().unwrap();
    let behind = within(LEASE / 2, behind).await;
    assert!(reads.is_held());
    behind.release().await.unwrap();
    reads.release().await.unwrap();
    let writer = ground.write().try_acquire().await.unwrap();
    assert!(writer.is_some(), "nobody is left");
}

/// T50: a frozen reader is told that it has lost its hold, and the writer does not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t50_a_reader_that_froze_is_told_and_does_not_come_back() {
    let ground = Ground::new().await;
    let mut frozen = ground.holder("read");
    frozen.freeze().unwrap();
    let writer = ground.wait(&ground.write(), 1).await;
    let writer = within(LEASE / 2, writer).await;
    frozen.thaw().unwrap();
    frozen.wait_line("lost", LEASE).unwrap();
    assert!(writer.is_held());
    assert_eq!(ground.query(HOLDING), "1");
    writer.release().await.unwrap();
    frozen.kill().unwrap();
}

/// Readers and writers of two processes: no writer overlaps with another holder, and tokens grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_of_several_processes_never_meet() {
    let ground = Ground::new().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("word");
    let word = WordFile::create(&path).unwrap();
    let processes = [(); 2].map(|()| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hammer"));
        command.args([&*ground.server.url(), "sides", NAME, "60", "2"]);
        command.arg(&path).arg("200");
        Spawned::start(command).unwrap()
    });
    for mut process in processes {
        let line = process.wait_line("acquisitions", LEASE * 3).unwrap();
        let report: HammerReport = serde_json::from_str(&line[line.find('{').unwrap()..]).unwrap();
        assert_eq!((report.overlaps, report.token_faults), (0, 0), "{report:?}");
    }
    // Every third hold is a writer's, and no update was lost.
    assert_eq!(word.counter().unwrap(), 80);
}

/// Fair locks and read-write locks of one name have one order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fair_waiters_and_sides_have_one_order() {
    let ground = Ground::new().await;
    let first = ground.write().acquire().await.unwrap();
    let fair = ground.client.fair_lock(NAME);
    let one = ground.wait(&ground.read(), 1).await;
    let two = ground.wait(&fair, 2).await;
    let three = ground.wait(&ground.read(), 3).await;
    let four = ground.wait(&fair, 4).await;
    assert!(fair.try_acquire().await.unwrap().is_none());
    first.release().await.unwrap();
    let mut rest = [one, two, three, four].into_iter();
    let mut guard = within(LEASE / 3, rest.next().unwrap()).await;
    for (left, next) in rest.enumerate() {
        assert_eq!(ground.query(WAITING), (3 - left).to_string());
        assert!(ground.read().try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
        guard = within(LEASE / 3, next).await;
    }
    guard.release().await.unwrap();
}

/// A lock without sides, which an older tidelock has too, and the sides of its name exclude each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_knows_no_sides_is_excluded_and_followed() {
    let ground = Ground::new().await;
    let plain = ground.client.lock(NAME);
    let guard = plain.acquire().await.unwrap();
    let reader = ground.wait(&ground.read(), 1).await;
    guard.release().await.unwrap();
    let reader = within(secs(4), reader).await;
    assert!(plain.try_acquire().await.unwrap().is_none());
    let other = ground.read().acquire().await.unwrap();
    reader.release().await.unwrap();
    assert!(plain.try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn(plain.acquire());
    other.release().await.unwrap();
    within(secs(4), waiting).await.release().await.unwrap();
}

/// One renewal has several readers of one name with different leases. The row of the lock lasts as long as the longest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_row_of_a_lock_lasts_as_long_as_the_longest_lease() {
    let ground = Ground::new().await;
    let lease = |seconds| AcquireOptions::new().lease(Duration::from_secs(seconds));
    let long = ground.read().acquire_with(lease(60)).await.unwrap();
    let short = ground.read().acquire_with(lease(9)).await.unwrap();
    ground.query("UPDATE tidelock_locks SET expires = UNIX_TIMESTAMP(NOW(6)) * 1000000 + 8000000");
    ground.query("UPDATE tidelock_sides SET ends = UNIX_TIMESTAMP(NOW(6)) * 1000000 + 8000000");
    let lasts = "SELECT expires > UNIX_TIMESTAMP(NOW(6)) * 1000000 + 40000000 FROM tidelock_locks";
    long.extend(Duration::from_secs(60)).await.unwrap();
    assert_eq!(ground.query(lasts), "1");
    // The next renewal of the short one, after three seconds, changes nothing for the long one.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(ground.query(lasts), "1");
    assert!(short.is_held());
    short.release().await.unwrap();
    assert_eq!(ground.query(lasts), "1");
    long.release().await.unwrap();
    assert_eq!(ground.query(OWNER), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sides_are_shown_and_listed() {
    let ground = Ground::new().await;
    let reads = ground.read().acquire().await.unwrap();
    let writer = ground.wait(&ground.write(), 1).await;
    let seen = ground.client.lock(NAME).inspect().await.unwrap();
    assert_eq!(seen.waiters, Some(1));
    assert_eq!(seen.holders[0].mode, Mode::Read);
    assert_eq!(seen.holders[0].owner, reads.owner_id());
    assert_eq!(ground.client.list("*").await.unwrap(), [NAME]);
    reads.release().await.unwrap();
    let writer = within(LEASE / 3, writer).await;
    let seen = ground.read().inspect().await.unwrap();
    assert_eq!(seen.holders[0].mode, Mode::Write);
    writer.release().await.unwrap();
    assert!(ground.client.list("*").await.unwrap().is_empty());
}

/// A fence in a writer's transaction keeps out the readers that are next and its own downgrade, but no release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_of_a_writer_keeps_readers_out_and_no_release() {
    let ground = Ground::new().await;
    let mut session = Session::open(&ground.server).unwrap();
    let sides = ground.client.read_write_lock(NAME);
    let guard = sides.write().fenced().acquire().await.unwrap();
    let token = guard.token();
    let waiting = tokio::spawn(sides.read().fenced().acquire());
    ground.until_wait(1).await;
    session.begin(&guard).await.unwrap();
    let downgrade = tokio::spawn(sides.downgrade(guard));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!downgrade.is_finished() && !waiting.is_finished());
    session.ask("COMMIT; SELECT 'done'").await.unwrap();
    let reader = tokio::time::timeout(LEASE / 3, downgrade).await.unwrap();
    let reader = reader.unwrap().unwrap();
    assert!(reader.token() > token);
    let beside = tokio::time::timeout(LEASE / 3, waiting).await.unwrap();
    let beside = beside.unwrap().unwrap();
    // Another reader has a newer token, and takes nothing from this one.
    let error = reader.sql_fence().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    beside.release().await.unwrap();
    reader.release().await.unwrap();
    let guard = sides.write().fenced().acquire().await.unwrap();
    let waiting = tokio::spawn(sides.read().fenced().acquire());
    ground.until_wait(1).await;
    session.begin(&guard).await.unwrap();
    let released = tokio::time::timeout(LEASE / 3, guard.release()).await;
    released.unwrap().unwrap();
    ground.until(OWNER, "").await;
    assert!(!waiting.is_finished());
    session.ask("COMMIT; SELECT 'done'").await.unwrap();
    let reader = tokio::time::timeout(LEASE / 3, waiting).await.unwrap();
    reader.unwrap().unwrap().release().await.unwrap();
}

/// T10: the reply of the server to the downgrade is lost. Afterwards one reader holds the lock, or nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_a_downgrade_whose_replies_were_swallowed_leaves_one_reader() {
    let ground = Ground::new().await;
    let proxy = Proxy::start(ground.server.addr()).unwrap();
    let far = client(&ground.server.url_at(proxy.addr(), "tide")).await;
    let sides = far.read_write_lock(NAME);
    let writer = sides.write().acquire().await.unwrap();
    proxy.set(Way::ToClient, Pass::Drop);
    let downgrade = tokio::spawn(sides.downgrade(writer));
    ground.until(HOLDING, "2").await;
    proxy.set(Way::ToClient, Pass::Pass);
    proxy.cut();
    let outcome = tokio::time::timeout(LEASE / 2, downgrade).await.unwrap();
    match outcome.unwrap() {
        Ok(reader) => {
            ground.until(HOLDING, "1").await;
            let beside = ground.read().try_acquire().await.unwrap();
            beside.unwrap().release().await.unwrap();
            reader.release().await.unwrap();
        }
        Err(error) => assert!(error.outcome_unknown(), "{error}"),
    }
    ground.until(HOLDING, "0").await;
}

/// The table is dropped, or the database is one of an older tidelock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_for_a_side_go_on_after_their_rows_are_gone() {
    let ground = Ground::new().await;
    let builder = Client::builder().lease(SHORT).publish_process_info(false);
    let other = builder.connect(&ground.server.url()).await.unwrap();
    let lost = other.read_write_lock(NAME).write().acquire().await.unwrap();
    let waiting = ground.wait(&ground.read(), 1).await;
    ground.query("DROP TABLE tidelock_sides");
    let reason = tokio::time::timeout(LEASE / 2, lost.lost()).await.unwrap();
    assert_eq!(reason, LostReason::Taken);
    within(LEASE / 2, waiting).await.release().await.unwrap();
    ground.until(HOLDING, "0").await;
}

/// T50: the place of an upgrade whose process was killed keeps no reader out for longer than that process counts as alive,
/// and its upgradeable hold ends with its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t50_an_upgrade_that_was_killed_lets_readers_and_the_next_one_in() {
    let ground = Ground::new().await;
    let reads = ground.read().acquire().await.unwrap();
    let mut dies = ground.process_that(&format!("upgrade {NAME}"));
    dies.wait_line("reads", LEASE).unwrap();
    ground.until_wait(1).await;
    let behind = ground.wait(&ground.read(), 2).await;
    dies.kill().unwrap();
    let behind = within(LEASE / 2, behind).await;
    assert!(reads.is_held());
    let sides = ground.client.read_write_lock(NAME);
    let next = within(LEASE / 2, tokio::spawn(sides.upgradeable_read().acquire())).await;
    behind.release().await.unwrap();
    reads.release().await.unwrap();
    sides.upgrade(&next).await.unwrap().release().await.unwrap();
    next.release().await.unwrap();
    let writer = ground.write().try_acquire().await.unwrap();
    assert!(writer.is_some(), "nobody is left");
}

/// Readers and upgradeable readers of two processes. An upgradeable reader finds what it has read when it writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_upgradeable_reader_of_any_process_has_read_still_holds_when_it_writes() {
    let ground = Ground::new().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("word");
    let word = WordFile::create(&path).unwrap();
    let processes = [(); 2].map(|()| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hammer"));
        command.args([&*ground.server.url(), "upgrades", NAME, "60", "2"]);
        command.arg(&path).arg("200");
        Spawned::start(command).unwrap()
    });
    for mut process in processes {
        let line = process.wait_line("acquisitions", LEASE * 3).unwrap();
        let report: HammerReport = serde_json::from_str(&line[line.find('{').unwrap()..]).unwrap();
        assert_eq!((report.overlaps, report.token_faults), (0, 0), "{report:?}");
    }
    // Every third hold writes, and no update was lost.
    assert_eq!(word.counter().unwrap(), 80);
}

/// T10: the replies to the upgrade are lost. Afterwards its writer holds the lock beside the reader, or nobody does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_an_upgrade_whose_replies_were_swallowed_leaves_one_writer_or_none() {
    let ground = Ground::new().await;
    let proxy = Proxy::start(ground.server.addr()).unwrap();
    let far = client(&ground.server.url_at(proxy.addr(), "tide")).await;
    let sides = far.read_write_lock(NAME);
    let reader = sides.upgradeable_read().acquire().await.unwrap();
    proxy.set(Way::ToClient, Pass::Drop);
    let upgrade = tokio::spawn(sides.upgrade(&reader));
    ground.until(HOLDING, "2").await;
    proxy.set(Way::ToClient, Pass::Pass);
    proxy.cut();
    let outcome = tokio::time::timeout(LEASE / 2, upgrade).await.unwrap();
    match outcome.unwrap() {
        Ok(writer) => {
            assert!(ground.read().try_acquire().await.unwrap().is_none());
            writer.release().await.unwrap();
        }
        Err(error) => assert!(error.outcome_unknown(), "{error}"),
    }
    ground.until(HOLDING, "1").await;
    let beside = ground.read().try_acquire().await.unwrap();
    beside.unwrap().release().await.unwrap();
    reader.release().await.unwrap();
    ground.until(HOLDING, "0").await;
}

/// A tidelock that knows no upgradeable readers finds the rows of writers, so it keeps out more than it must, and lets in
/// nobody beside them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgradeable_reader_has_the_row_of_a_writer() {
    let ground = Ground::new().await;
    let sides = ground.client.read_write_lock(NAME);
    let held = sides.upgradeable_read().acquire().await.unwrap();
    let writer = sides.upgrade(&held).await.unwrap();
    let rows = "SELECT GROUP_CONCAT(owner ORDER BY token SEPARATOR '|') FROM tidelock_sides WHERE shares = 0";
    let owners = format!("{}|{}", held.owner_id(), writer.owner_id());
    assert_eq!(ground.query(rows), owners);
    assert!(held.owner_id().ends_with(":upgradeable"));
    writer.release().await.unwrap();
    held.release().await.unwrap();
}
