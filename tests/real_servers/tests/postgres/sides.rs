//! Read-write locks: their table, what a release lets in, and holders and waiters that die, freeze or hear nothing.

use std::process::Command;
use std::time::{Duration, Instant};

use real_servers::secs;
use testkit::java::{HammerReport, WordFile};
use testkit::process::Spawned;
use testkit::proxy::{Mode as Pass, Proxy, Way};
use testkit::servers::PostgresServer;
use tidelock::{AcquireOptions, Client, ErrorKind, Guard, Lock, LostReason, Mode, Severity};
use tokio::task::JoinHandle;
use tokio_postgres::NoTls;

use super::{grants, server, soon, until};

const LEASE: Duration = Duration::from_secs(30);
/// The lease of a process that is killed or frozen while it holds a side.
const SHORT: Duration = Duration::from_secs(6);
const NAME: &str = "prices";
const THERE: &str = "SELECT to_regclass('tidelock_locks_sides') IS NOT NULL";
const WAITING: &str = "SELECT (SELECT count(*) FROM tidelock_locks_sides WHERE held_as IS NULL) \
    + (SELECT count(*) FROM tidelock_locks_waiters)";
const HOLDING: &str = "SELECT count(*) FROM tidelock_locks_sides WHERE held_as IS NOT NULL";
const OWNER: &str = "SELECT coalesce(owner, 'nobody') FROM tidelock_locks";

/// A server, a client, and the lock.
struct Ground {
    server: PostgresServer,
    client: Client,
}

impl Ground {
    async fn new() -> Self {
        let server = server();
        let client = client(&server.url()).await;
        Self { server, client }
    }

    fn read(&self) -> Lock {
        self.client.read_write_lock(NAME).read()
    }

    fn write(&self) -> Lock {
        self.client.read_write_lock(NAME).write()
    }

    fn number(&self, statement: &str) -> u32 {
        self.server.query(statement).unwrap().parse().unwrap()
    }

    async fn until_wait(&self, count: u32) {
        until(&self.server, THERE, "t").await;
        until(&self.server, WAITING, &count.to_string()).await;
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
    let far = client(&ground.server.url_at(proxy.addr())).await;
    let far = far.read_write_lock(NAME).read();
    let writer = ground.write().acquire().await.unwrap();
    let mut readers = Vec::new();
    for count in 1..=3 {
        readers.push(ground.wait(&far, count).await);
    }
    let next = ground.wait(&ground.write(), 4).await;
    proxy.set_both(Pass::Hold);
    writer.release().await.unwrap();
    assert_eq!((ground.number(HOLDING), ground.number(WAITING)), (3, 1));
    let short =
        "SELECT max(ends) < clock_timestamp() + interval '6 seconds' FROM tidelock_locks_sides";
    assert_eq!(
        ground.server.query(short).unwrap(),
        "t",
        "not confirmed yet"
    );
    proxy.set_both(Pass::Pass);
    for reader in readers {
        within(LEASE / 3, reader).await.release().await.unwrap();
    }
    within(LEASE / 3, next).await.release().await.unwrap();
    assert_eq!(ground.server.query(OWNER).unwrap(), "nobody");
}

/// The server commits one notification after the other. A commit that waits for a replica, or for a slow disk, holds up the
/// grant of a lock that is free, and the grant must not give up meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_commit_of_another_notification_refuses_nobody() {
    let ground = Ground::new().await;
    for setting in [
        "ALTER SYSTEM SET synchronous_commit = 'local'",
        "ALTER SYSTEM SET synchronous_standby_names = 'nobody'",
        "SELECT pg_reload_conf()",
    ] {
        ground.server.query(setting).unwrap();
    }
    until(&ground.server, "SHOW synchronous_standby_names", "nobody").await;
    let made = ground.read().acquire().await.unwrap();
    made.release().await.unwrap();
    let (mut slow, connection) = tokio_postgres::connect(&ground.server.url(), NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let commits = tokio::spawn(async move {
        let transaction = slow.transaction().await.unwrap();
        let notifies =
            "SET LOCAL synchronous_commit = on; CREATE TABLE slow (); NOTIFY somebody, 'else'";
        transaction.batch_execute(notifies).await.unwrap();
        transaction.commit().await.unwrap();
    });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    until(&ground.server, waits, "1").await;
    let read = ground.read();
    let tried = tokio::spawn(async move { read.try_acquire().await });
    // Five times as long as a grant waits for a fence.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let ends = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    assert_eq!(ground.server.query(ends).unwrap(), "t");
    commits.await.unwrap();
    let held = soon("the grant", tried).await.unwrap().unwrap();
    held.expect("the lock was free").release().await.unwrap();
}

/// A table of the queue is missing, and a transaction of another process uses the other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_table_is_made_beside_an_open_transaction() {
    let ground = Ground::new().await;
    let made = ground.read().acquire().await.unwrap();
    made.release().await.unwrap();
    let (mut user, connection) = tokio_postgres::connect(&ground.server.url(), NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    ground
        .server
        .query("DROP TABLE tidelock_locks_waiters")
        .unwrap();
    let transaction = user.transaction().await.unwrap();
    let statement = "LOCK TABLE tidelock_locks_sides IN ROW EXCLUSIVE MODE";
    transaction.batch_execute(statement).await.unwrap();
    let held = ground
        .read()
        .acquire_with(AcquireOptions::new().wait(secs(2)));
    held.await.unwrap().release().await.unwrap();
    transaction.commit().await.unwrap();
}

/// T50: the hold of a killed reader ends with its lease, however long another one reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t50_a_reader_that_was_killed_costs_a_writer_the_rest_of_its_lease() {
    let ground = Ground::new().await;
    let mut dies = ground.holder("read");
    let reads = ground.read().acquire().await.unwrap();
    let writer = ground.wait(&ground.write(), 1).await;
    let killed = Instant::now();
    dies.kill().unwrap();
    reads.release().await.unwrap();
    let writer = within(LEASE / 2, writer).await;
    let took = killed.elapsed();
    println!("the writer entered after {took:?}");
    // It was renewed at most a third of its lease ago, or a little more on a busy machine.
    assert!(took > SHORT / 3, "{took:?}");
    assert_eq!(ground.number(HOLDING), 1, "the dead are removed");
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
    assert_eq!(ground.number(HOLDING), 1);
    writer.release().await.unwrap();
    frozen.kill().unwrap();
}

/// T50: processes that read without a pause keep no writer out: it enters when those that were inside have left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t50_a_writer_waits_for_one_generation_of_readers() {
    let ground = Ground::new().await;
    let mut readers = [(); 2].map(|()| ground.holder("read"));
    for reader in &mut readers {
        for _ in 0..3 {
            reader
                .write_line(&format!("hammer {NAME} 1000000 read"))
                .unwrap();
        }
        reader.write_line(&format!("release {NAME}")).unwrap();
        reader.wait_line("released", LEASE).unwrap();
    }
    for _ in 0..5 {
        let writer = tokio::time::timeout(LEASE / 2, ground.write().acquire()).await;
        let writer = writer.expect("it is not starved").unwrap();
        assert_eq!(ground.number(HOLDING), 1);
        writer.release().await.unwrap();
    }
    for mut reader in readers {
        reader.kill().unwrap();
    }
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
    for next in rest {
        assert!(!next.is_finished());
        guard.release().await.unwrap();
        guard = within(LEASE / 3, next).await;
    }
    guard.release().await.unwrap();
    assert_eq!((ground.number(HOLDING), ground.number(WAITING)), (0, 0));
}

/// A lock of the same name has the place of a writer, and a release on either side wakes the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_and_the_sides_of_one_name_wake_each_other() {
    let ground = Ground::new().await;
    let plain = ground.client.lock(NAME);
    for side in [ground.read(), ground.write()] {
        let guard = plain.acquire().await.unwrap();
        assert!(side.try_acquire().await.unwrap().is_none());
        let waiting = ground.wait(&side, 1).await;
        guard.release().await.unwrap();
        let guard = within(LEASE / 3, waiting).await;
        assert!(plain.try_acquire().await.unwrap().is_none());
        let waiting = tokio::spawn(plain.acquire());
        tokio::time::sleep(Duration::from_millis(50)).await;
        guard.release().await.unwrap();
        within(LEASE / 3, waiting).await.release().await.unwrap();
    }
}

/// An older tidelock knows no sides. It sees one holder, which excludes its locks, and can break it: then all readers are
/// told, and readers that come later do not bring the lost holds back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_knows_no_sides_is_excluded_and_what_it_breaks_is_told() {
    let ground = Ground::new().await;
    let builder = Client::builder().lease(SHORT).publish_process_info(false);
    let other = builder.connect(&ground.server.url()).await.unwrap();
    let read = other.read_write_lock(NAME).read();
    let lost = [read.acquire().await.unwrap(), read.acquire().await.unwrap()];
    assert_eq!(ground.number("SELECT count(*) FROM tidelock_locks"), 1);
    // The statement of a forced release, which older versions have too.
    let broken = "UPDATE tidelock_locks SET owner = NULL, expires = clock_timestamp()";
    ground.server.query(broken).unwrap();
    let later = ground.read().acquire().await.unwrap();
    for guard in lost {
        let reason = tokio::time::timeout(LEASE / 3, guard.lost()).await;
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
    assert_eq!(ground.server.query(OWNER).unwrap(), "nobody");
}

/// The row that stands for all readers lasts as long as the longest of their leases, and not longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_row_stands_for_all_readers() {
    let ground = Ground::new().await;
    let builder = Client::builder().lease(SHORT).publish_process_info(false);
    let other = builder.connect(&ground.server.url()).await.unwrap();
    let short = other.read_write_lock(NAME).read().acquire().await.unwrap();
    let ends = "SELECT expires > clock_timestamp() + interval '10 seconds' FROM tidelock_locks";
    assert_eq!(ground.server.query(ends).unwrap(), "f");
    let long = ground.read().acquire().await.unwrap();
    assert_eq!(ground.server.query(ends).unwrap(), "t");
    assert_eq!(ground.number("SELECT count(*) FROM tidelock_locks"), 1);
    assert!(ground.server.query(OWNER).unwrap().ends_with(":sides"));
    long.release().await.unwrap();
    assert_eq!(ground.server.query(ends).unwrap(), "f");
    assert!(short.is_held());
    assert!(
        ground
            .client
            .lock(NAME)
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    short.release().await.unwrap();
    assert_eq!(ground.server.query(OWNER).unwrap(), "nobody");
}

/// The names of read-write locks are listed, and their holders are shown with their modes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_sides_are_listed_and_shown_with_their_modes() {
    let ground = Ground::new().await;
    let reads = ground.read().acquire().await.unwrap();
    let writer = ground.wait(&ground.write(), 1).await;
    assert_eq!(ground.client.list("*").await.unwrap(), [NAME]);
    let seen = ground.read().inspect().await.unwrap();
    assert_eq!(seen.waiters, Some(1));
    assert_eq!(seen.holders[0].mode, Mode::Read);
    assert_eq!(seen.holders[0].owner, reads.owner_id());
    reads.release().await.unwrap();
    let writer = within(LEASE / 3, writer).await;
    let seen = ground.read().inspect().await.unwrap();
    assert_eq!(seen.holders[0].mode, Mode::Write);
    writer.release().await.unwrap();
    assert!(ground.client.list("*").await.unwrap().is_empty());
}

/// A fence in a writer's transaction keeps out the readers that are next, but no release, and no waiter that leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_of_a_writer_keeps_readers_out_and_no_release() {
    let ground = Ground::new().await;
    let (mut session, connection) = tokio_postgres::connect(&ground.server.url(), NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let sides = ground.client.read_write_lock(NAME);
    let guard = sides.write().fenced().acquire().await.unwrap();
    let token = guard.token();
    let reader = tokio::spawn(sides.read().fenced().acquire());
    ground.until_wait(1).await;
    let leaves = ground.wait(&ground.write(), 2).await;
    let fence = guard.sql_fence().unwrap();
    let transaction = session.transaction().await.unwrap();
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&fence.name, &fence.token];
    transaction
        .execute(&fence.statement, &params)
        .await
        .unwrap();
    tokio::time::timeout(LEASE / 3, guard.release())
        .await
        .unwrap()
        .unwrap();
    leaves.abort();
    ground.until_wait(1).await;
    // One that comes meanwhile gets its place behind the reader.
    let writer = ground.wait(&ground.write(), 2).await;
    assert!(!reader.is_finished());
    transaction.commit().await.unwrap();
    let reader = soon("its turn", reader).await.unwrap().unwrap();
    assert!(reader.token() > token && !writer.is_finished());
    // Another reader has a newer token, and takes nothing from this one.
    let error = reader.sql_fence().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    reader.release().await.unwrap();
    within(secs(2), writer).await.release().await.unwrap();
}

/// The reply of the server to the downgrade is lost. Afterwards one reader holds the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_a_downgrade_whose_replies_were_swallowed_leaves_one_reader() {
    let ground = Ground::new().await;
    let proxy = Proxy::start(ground.server.addr()).unwrap();
    let far = client(&ground.server.url_at(proxy.addr())).await;
    let sides = far.read_write_lock(NAME);
    let writer = sides.write().acquire().await.unwrap();
    proxy.set(Way::ToClient, Pass::Drop);
    let downgrade = tokio::spawn(sides.downgrade(writer));
    until(&ground.server, HOLDING, "2").await;
    proxy.set(Way::ToClient, Pass::Pass);
    proxy.cut();
    let outcome = tokio::time::timeout(LEASE / 2, downgrade)
        .await
        .unwrap()
        .unwrap();
    match outcome {
        Ok(reader) => {
            until(&ground.server, HOLDING, "1").await;
            assert!(ground.read().try_acquire().await.unwrap().is_some());
            reader.release().await.unwrap();
        }
        Err(error) => assert!(error.outcome_unknown(), "{error}"),
    }
    until(&ground.server, HOLDING, "0").await;
}

/// The table is dropped, or the database is replaced by an empty one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_for_a_side_go_on_after_their_rows_are_gone() {
    let ground = Ground::new().await;
    let builder = Client::builder().lease(SHORT).publish_process_info(false);
    let other = builder.connect(&ground.server.url()).await.unwrap();
    let lost = other.read_write_lock(NAME).write().acquire().await.unwrap();
    let waiting = ground.wait(&ground.read(), 1).await;
    ground
        .server
        .query("DROP TABLE tidelock_locks_sides")
        .unwrap();
    let reason = tokio::time::timeout(LEASE / 2, lost.lost()).await.unwrap();
    assert_eq!(reason, LostReason::Taken);
    within(LEASE / 2, waiting).await.release().await.unwrap();
    until(&ground.server, THERE, "t").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t27_a_user_who_may_not_make_the_table_of_sides_is_told_how() {
    let ground = Ground::new().await;
    let rights = super::clerk(&grants(None));
    ground.server.query(&rights).unwrap();
    let clerk = client(&ground.server.url().replace("postgres@", "clerk@")).await;
    let side = clerk.read_write_lock(NAME).read();
    let error = side.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    let said = error.to_string();
    let make = "CREATE TABLE IF NOT EXISTS tidelock_locks_sides";
    assert!(said.contains(make), "{said}");
    // What the error asks for is enough.
    ground
        .read()
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let fair = grants(Some("fair and read-write locks"));
    ground.server.query(&fair).unwrap();
    let findings = clerk.diagnose().await.unwrap();
    let finding = findings
        .iter()
        .find(|one| one.subject == "fair and read-write locks");
    assert_eq!(finding.unwrap().severity, Severity::Good);
    let guard = side.acquire().await.unwrap();
    assert_eq!(
        guard.owner_id(),
        side.inspect().await.unwrap().holders[0].owner
    );
    let writer = ground.wait(&clerk.read_write_lock(NAME).write(), 1).await;
    guard.release().await.unwrap();
    within(LEASE / 3, writer).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_locks_have_no_sides() {
    let server = server();
    let client = client(&format!("{}?locks=session", server.url())).await;
    let error = client
        .read_write_lock(NAME)
        .read()
        .acquire()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
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
    let far = client(&ground.server.url_at(proxy.addr())).await;
    let sides = far.read_write_lock(NAME);
    let reader = sides.upgradeable_read().acquire().await.unwrap();
    proxy.set(Way::ToClient, Pass::Drop);
    let upgrade = tokio::spawn(sides.upgrade(&reader));
    until(&ground.server, HOLDING, "2").await;
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
    until(&ground.server, HOLDING, "1").await;
    let beside = ground.read().try_acquire().await.unwrap();
    beside.unwrap().release().await.unwrap();
    reader.release().await.unwrap();
    until(&ground.server, HOLDING, "0").await;
}

/// A tidelock that knows no upgradeable readers finds the rows of writers, so it keeps out more than it must, and lets in
/// nobody beside them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgradeable_reader_has_the_row_of_a_writer() {
    let ground = Ground::new().await;
    let sides = ground.client.read_write_lock(NAME);
    let held = sides.upgradeable_read().acquire().await.unwrap();
    let writer = sides.upgrade(&held).await.unwrap();
    let rows =
        "SELECT string_agg(owner, '|' ORDER BY token) FROM tidelock_locks_sides WHERE NOT reads";
    let owners = format!("{}|{}", held.owner_id(), writer.owner_id());
    assert_eq!(ground.server.query(rows).unwrap(), owners);
    assert!(held.owner_id().ends_with(":upgradeable"));
    writer.release().await.unwrap();
    held.release().await.unwrap();
}
