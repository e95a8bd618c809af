//! The fair lock: its table, its hand-over, and waiters that die or freeze.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anyhow::Result;
use real_servers::leavers::waits_among_leavers;
use real_servers::secs;
use testkit::proxy::{Mode, Proxy};
use testkit::servers::MariaDb;
use tidelock::{AcquireOptions, Client, ErrorKind, Guard, Severity};
use tokio::task::JoinHandle;

use super::session::Session;
use super::{a_statement_waits, rights};

const LEASE: Duration = Duration::from_secs(30);
/// How long a grant lasts that its owner has not confirmed, and how long a process counts as alive after a beat.
const ALIVE: Duration = Duration::from_secs(6);
/// The time between two beats.
const BEAT: Duration = Duration::from_secs(2);

/// A limit for what the next poll finds. The waiters poll, the first of a queue at least every 64 ms, and a beat tells them nothing
/// more.
fn at_once() -> Duration {
    secs(2)
}

/// Tests that change nothing but their own locks share one server, because a new one takes seconds to initialize.
static SERVER: LazyLock<MariaDb> = LazyLock::new(|| MariaDb::start().expect("a server starts"));

async fn client(url: &str) -> Client {
    let builder = Client::builder().lease(LEASE).publish_process_info(false);
    builder.connect(url).await.unwrap()
}

/// A lock of one name on a server.
struct Turns {
    server: &'static MariaDb,
    name: &'static str,
}

impl Turns {
    fn new(name: &'static str) -> Self {
        let server = &SERVER;
        Self { server, name }
    }

    /// On a server of its own.
    fn alone(name: &'static str) -> Self {
        let server = Box::leak(Box::new(MariaDb::start().unwrap()));
        Self { server, name }
    }

    async fn client(&self) -> Client {
        client(&self.server.url()).await
    }

    /// A client whose connections go through a proxy.
    async fn through(&self, proxy: &Proxy) -> Client {
        client(&self.server.url_at(proxy.addr(), "tide")).await
    }

    fn query(&self, statement: &str) -> String {
        let id = format!("UNHEX(SHA2('{}', 256))", self.name);
        self.server.query(&statement.replace("ID", &id)).unwrap()
    }

    fn queue(&self) -> Vec<String> {
        let owners = self.query("SELECT owner FROM tidelock_waiters WHERE id = ID ORDER BY place");
        owners.lines().map(str::to_owned).collect()
    }

    fn owner(&self) -> String {
        self.query("SELECT owner FROM tidelock_locks WHERE id = ID")
    }

    async fn until_the_queue_has(&self, count: usize) {
        let begun = Instant::now();
        while self.queue().len() != count {
            assert!(begun.elapsed() < LEASE, "{:?}", self.queue());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn acquire(&self, client: &Client) -> Guard {
        client.fair_lock(self.name).acquire().await.unwrap()
    }

    /// Starts a waiter, and returns when the queue has this many.
    async fn wait(&self, client: &Client, count: usize) -> JoinHandle<tidelock::Result<Guard>> {
        let waiting = tokio::spawn(client.fair_lock(self.name).acquire());
        self.until_the_queue_has(count).await;
        waiting
    }
}

async fn within(limit: Duration, waiting: JoinHandle<tidelock::Result<Guard>>) -> Guard {
    let waited = tokio::time::timeout(limit, waiting).await;
    waited.expect("in time").unwrap().unwrap()
}

/// The waiter's requests are held, so only the release can have made the grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_grants_the_lock_to_the_next_waiter_in_the_same_transaction() {
    let turns = Turns::new("granted");
    let proxy = Proxy::start(turns.server.addr()).unwrap();
    let (a, b) = (turns.client().await, turns.through(&proxy).await);
    let guard = turns.acquire(&a).await;
    let waiting = turns.wait(&b, 1).await;
    let owner = turns.queue().remove(0);
    proxy.set_both(Mode::Hold);
    guard.release().await.unwrap();
    assert_eq!(turns.owner(), owner);
    assert!(turns.queue().is_empty());
    let short =
        "SELECT expires < (UNIX_TIMESTAMP(NOW(6)) + 6) * 1000000 FROM tidelock_locks WHERE id = ID";
    assert_eq!(turns.query(short), "1", "not confirmed yet");
    proxy.set_both(Mode::Pass);
    within(at_once(), waiting).await.release().await.unwrap();
    assert_eq!(turns.owner(), "");
}

/// Nobody is told of these turns but by a look at the queue, which is much sooner than the next beat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_several_clients_notice_their_turns() {
    let turns = Turns::new("noticed");
    let (a, b) = (turns.client().await, turns.client().await);
    let mut guard = turns.acquire(&a).await;
    let mut waiting = Vec::new();
    for count in 1..=6 {
        let next = if count % 2 == 0 { &a } else { &b };
        waiting.push(turns.wait(next, count).await);
    }
    let mut took = Vec::new();
    for next in waiting {
        let released = Instant::now();
        guard.release().await.unwrap();
        guard = within(LEASE / 3, next).await;
        took.push(released.elapsed());
    }
    took.sort_unstable();
    println!("turns in {took:?}");
    // A busy machine may delay some of the turns.
    assert!(took[took.len() / 2] < BEAT / 2, "{took:?}");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t49_twenty_five_waiters_that_were_killed_are_removed() {
    let turns = Turns::new("killed");
    let proxy = Proxy::start(turns.server.addr()).unwrap();
    let (a, c) = (turns.client().await, turns.client().await);
    let b = turns.through(&proxy).await;
    let guard = turns.acquire(&a).await;
    let dead: Vec<_> = (0..25)
        .map(|_| tokio::spawn(b.fair_lock(turns.name).acquire()))
        .collect();
    turns.until_the_queue_has(25).await;
    let live = turns.wait(&c, 26).await;
    proxy.refuse(true);
    proxy.cut();
    let released = Instant::now();
    guard.release().await.unwrap();
    let guard = within(ALIVE + BEAT * 2, live).await;
    println!("passed over in {:?}", released.elapsed());
    assert!(turns.queue().is_empty(), "they are removed");
    guard.release().await.unwrap();
    dead.iter().for_each(JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t49_twenty_five_frozen_waiters_cost_one_grant_and_come_back() {
    let turns = Turns::new("frozen");
    let proxy = Proxy::start(turns.server.addr()).unwrap();
    let (a, c) = (turns.client().await, turns.client().await);
    let b = turns.through(&proxy).await;
    let guard = turns.acquire(&a).await;
    let mut frozen = Vec::new();
    for _ in 0..25 {
        let acquire = b.fair_lock(turns.name).acquire();
        frozen.push(tokio::spawn(async move { acquire.await?.release().await }));
    }
    turns.until_the_queue_has(25).await;
    let live = turns.wait(&c, 26).await;
    proxy.set_both(Mode::Hold);
    let released = Instant::now();
    guard.release().await.unwrap();
    let guard = within(ALIVE + BEAT * 2, live).await;
    let took = released.elapsed();
    println!("passed over in {took:?}");
    assert!(took + BEAT > ALIVE, "{took:?}: the first one had its turn");
    proxy.set_both(Mode::Pass);
    turns.until_the_queue_has(25).await;
    guard.release().await.unwrap();
    for waiting in frozen {
        let turn = tokio::time::timeout(LEASE, waiting).await;
        turn.expect("its turn").unwrap().unwrap();
    }
}

/// A fence is open for longer than a process counts as alive, and the lock is free. Other clients wait for the lock without a
/// queue meanwhile. Their attempts keep no beat from the row of the lock, and a waiter that comes gets its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_that_stays_open_keeps_the_order_of_the_waiters() -> Result<()> {
    const OTHERS: usize = 4;
    let turns = Turns::alone("fenced");
    let (a, b, c) = (
        turns.client().await,
        turns.client().await,
        turns.client().await,
    );
    let mut session = Session::open(turns.server)?;
    let guard = a.fair_lock(turns.name).fenced().acquire().await?;
    let first = turns.wait(&b, 1).await;
    let second = turns.wait(&c, 2).await;
    assert_eq!(session.begin(&guard).await?, u64::MAX.to_string());
    guard.release().await?;
    let mut others = Vec::new();
    for _ in 0..OTHERS {
        let (other, name) = (turns.client().await, turns.name);
        others.push(tokio::spawn(
            async move { other.lock(name).acquire().await },
        ));
    }
    let third = turns.wait(&a, 3).await;
    let order = turns.queue();
    let begun = Instant::now();
    while begun.elapsed() < ALIVE + BEAT * 2 {
        assert_eq!(turns.queue(), order, "after {:?}", begun.elapsed());
        tokio::time::sleep(BEAT / 20).await;
    }
    let alive = "SELECT COUNT(*) FROM tidelock_waiters WHERE id = ID AND alive > UNIX_TIMESTAMP(NOW(6)) * 1000000";
    assert_eq!(turns.query(alive), "3");
    for other in others {
        assert!(!other.is_finished(), "the lock counts as held");
        other.abort();
        drop(other.await);
    }
    session.ask("COMMIT; SELECT 'done'").await?;
    for (waiting, owner) in [first, second, third].into_iter().zip(order) {
        let next = within(LEASE / 3, waiting).await;
        assert_eq!(next.owner_id(), owner);
        next.release().await?;
    }
    Ok(())
}

/// The tickets that the row of the lock remembers, in bytes.
const REMEMBERED: &str =
    "SELECT LENGTH(withdrawn) + LENGTH(before_that) FROM tidelock_locks WHERE id = ID";

/// Each change of the row writes what it remembers once more. All requests of these waits are answered, so nothing can
/// arrive late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_ends_makes_the_row_of_the_lock_no_longer() {
    let turns = Turns::new("left");
    // A wait that ends blames the server if a request has been without an answer for a quarter of the response timeout.
    let b = Client::builder()
        .lease(LEASE)
        .response_timeout(secs(20))
        .publish_process_info(false);
    let (a, b) = (
        turns.client().await,
        b.connect(&turns.server.url()).await.unwrap(),
    );
    let guard = turns.acquire(&a).await;
    for _ in 0..2 {
        let short = || AcquireOptions::new().wait(secs(3));
        let (fair, side) = (b.fair_lock(turns.name), b.read_write_lock(turns.name));
        let fair = fair.acquire_with(short()).await.map(drop);
        let side = side.write().acquire_with(short()).await.map(drop);
        for error in [fair.unwrap_err(), side.unwrap_err()] {
            assert!(error.is_timeout(), "{error}");
        }
    }
    turns.until_the_queue_has(0).await;
    let begun = Instant::now();
    while turns.query("SELECT COUNT(*) FROM tidelock_sides WHERE id = ID") != "0" {
        assert!(begun.elapsed() < LEASE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(turns.query(REMEMBERED), "0");
    guard.release().await.unwrap();
}

/// A request that got no answer may still arrive. So the row remembers its ticket, and nobody gets the lock for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_whose_request_got_no_answer_is_remembered_in_the_row() {
    let turns = Turns::new("unanswered");
    let proxy = Proxy::start(turns.server.addr()).unwrap();
    let a = turns.client().await;
    let b = Client::builder()
        .lease(LEASE)
        .response_timeout(BEAT / 2)
        .publish_process_info(false)
        .connect(&turns.server.url_at(proxy.addr(), "tide"))
        .await
        .unwrap();
    let guard = turns.acquire(&a).await;
    proxy.set_both(Mode::Hold);
    let longer = AcquireOptions::new().wait(BEAT);
    let waited = b.fair_lock(turns.name).acquire_with(longer).await;
    waited.map(drop).unwrap_err();
    proxy.set_both(Mode::Pass);
    let begun = Instant::now();
    while turns.query(REMEMBERED) == "0" {
        assert!(begun.elapsed() < LEASE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    turns.until_the_queue_has(0).await;
    assert_eq!(guard.owner_id(), turns.owner());
    guard.release().await.unwrap();
    assert_eq!(turns.owner(), "");
}

/// An older tidelock knows no queue, and its database has no table of the waiters. Its locks and the fair lock exclude
/// each other, and its release is noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_knows_no_queue_is_excluded_and_followed() {
    let turns = Turns::alone("stock");
    let a = turns.client().await;
    let plain = a.lock(turns.name);
    turns.query("DROP TABLE tidelock_waiters");
    let guard = plain.acquire().await.unwrap();
    assert!(plain.inspect().await.unwrap().is_locked());
    let waiting = tokio::spawn(a.fair_lock(turns.name).acquire());
    let there =
        "SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'tidelock_waiters'";
    let begun = Instant::now();
    while turns.query(there) != "1" {
        assert!(begun.elapsed() < LEASE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    turns.until_the_queue_has(1).await;
    let owner = turns.queue().remove(0);
    // The statement of a lock without a queue, which older versions have too.
    guard.release().await.unwrap();
    let guard = within(at_once(), waiting).await;
    assert_eq!(guard.owner_id(), owner);
    assert!(plain.try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn(plain.acquire());
    guard.release().await.unwrap();
    within(at_once(), waiting).await.release().await.unwrap();
}

/// Rows are removed by hand, or the tables are dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_go_on_after_their_rows_are_gone() {
    let turns = Turns::alone("stock");
    let (a, b) = (turns.client().await, turns.client().await);
    let guard = turns.acquire(&a).await;
    let first = turns.wait(&b, 1).await;
    let owner = turns.queue().remove(0);
    let second = turns.wait(&a, 2).await;
    turns.query(&format!(
        "DELETE FROM tidelock_waiters WHERE owner = '{owner}'"
    ));
    turns.until_the_queue_has(2).await;
    assert_eq!(turns.queue().first(), Some(&owner), "the first place again");
    turns.query("DROP TABLE tidelock_waiters");
    let begun = Instant::now();
    while turns
        .server
        .query("SELECT 1 FROM tidelock_waiters")
        .is_err()
    {
        assert!(begun.elapsed() < LEASE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    turns.until_the_queue_has(2).await;
    guard.release().await.unwrap();
    let both = [first, second].map(async |waiting| {
        let guard = within(LEASE / 3, waiting).await;
        guard.release().await.unwrap();
    });
    futures_util::future::join_all(both).await;
}

/// A user's transaction keeps the row of a waiter, and then wants that of the lock: one of the two is rolled back. The
/// user's transaction has changed more, so it is the release, which is sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_a_deadlock_rolls_back_is_repeated() -> Result<()> {
    let turns = Turns::alone("stock");
    let (a, b) = (turns.client().await, turns.client().await);
    let guard = turns.acquire(&a).await;
    let waiting = turns.wait(&b, 1).await;
    let mut session = Session::open(turns.server)?;
    let heavy = "CREATE TABLE heavy (n INT PRIMARY KEY); START TRANSACTION; INSERT INTO heavy SELECT seq FROM seq_1_to_1000; \
        UPDATE tidelock_waiters SET lease = lease + 1; SELECT 'kept'";
    assert_eq!(session.ask(heavy).await?, "kept");
    let releasing = tokio::spawn(guard.release());
    a_statement_waits(turns.server).await?;
    assert!(!releasing.is_finished());
    let lock = "SELECT COUNT(*) FROM tidelock_locks FOR UPDATE; COMMIT";
    assert_eq!(session.ask(lock).await?, "1", "the release was rolled back");
    releasing.await??;
    within(at_once(), waiting).await.release().await?;
    Ok(())
}

/// The largest token has no successor, so the release cannot grant the lock. It frees it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_cannot_grant_the_lock_frees_it() {
    let turns = Turns::new("the last token");
    let (a, b) = (turns.client().await, turns.client().await);
    let guard = turns.acquire(&a).await;
    let waiting = turns.wait(&b, 1).await;
    turns.query("UPDATE tidelock_locks SET token = 18446744073709551615 WHERE id = ID");
    guard.release().await.unwrap();
    assert_eq!(turns.owner(), "");
    let error = a.fair_lock(turns.name).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    turns.query("UPDATE tidelock_locks SET token = 7 WHERE id = ID");
    within(at_once(), waiting).await.release().await.unwrap();
}

/// The rows of dead waiters in a queue that nobody uses are deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_waiters_of_an_unused_queue_are_deleted() {
    let turns = Turns::alone("stock");
    let a = turns.client().await;
    let guard = turns.acquire(&a).await;
    let waiting = turns.wait(&a, 1).await;
    let dead =
        "INSERT INTO tidelock_waiters VALUES (UNHEX(SHA2('unused', 256)), 1, 'u:1', 'u', 9, 9)";
    turns.query(dead);
    let announced = Client::connect(&turns.server.url()).await.unwrap();
    let begun = Instant::now();
    while turns.query("SELECT COUNT(*) FROM tidelock_waiters") != "1" {
        assert!(begun.elapsed() < LEASE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    guard.release().await.unwrap();
    within(at_once(), waiting).await.release().await.unwrap();
    drop(announced);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t27_a_user_who_may_not_make_the_table_is_told_how() {
    let turns = Turns::alone("stock");
    let server = turns.server;
    let admin = turns.client().await;
    turns.query("DROP TABLE tidelock_waiters, tidelock_sides");
    server.user("clerk", &rights(None).unwrap()).unwrap();
    let clerk = client(&server.url_at(server.addr(), "clerk")).await;
    let plain = clerk.lock(turns.name);
    plain.acquire().await.unwrap().release().await.unwrap();
    let finding = async || {
        let mut findings = clerk.diagnose().await.unwrap();
        findings.retain(|finding| finding.subject == "fair and read-write locks");
        findings.remove(0).severity
    };
    assert_eq!(finding().await, Severity::Advice);
    let error = clerk.fair_lock(turns.name).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    let said = error.to_string();
    let table = "CREATE TABLE IF NOT EXISTS tidelock_waiters";
    assert!(said.contains(table), "{said}");
    // What the error asks for is enough.
    turns.acquire(&admin).await.release().await.unwrap();
    assert_eq!(finding().await, Severity::Advice);
    assert!(!plain.inspect().await.unwrap().is_locked());
    let fair = rights(Some("fair and read-write locks")).unwrap();
    server.grant("clerk", &fair).unwrap();
    assert_eq!(finding().await, Severity::Good);
    let guard = turns.acquire(&clerk).await;
    let waiting = turns.wait(&clerk, 1).await;
    guard.release().await.unwrap();
    within(at_once(), waiting).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_stays_has_its_turns_among_many_that_leave() {
    let turns = Turns::alone("stock");
    let (a, b) = (turns.client().await, turns.client().await);
    waits_among_leavers(&a, &b, 8).await.unwrap();
}
