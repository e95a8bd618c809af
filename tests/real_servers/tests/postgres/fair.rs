//! The fair lock: its table, its hand-over, and waiters that die, freeze or hear nothing.

use std::time::{Duration, Instant};

use real_servers::leavers::waits_among_leavers;
use real_servers::secs;
use testkit::proxy::{Mode, Proxy, Way};
use testkit::servers::PostgresServer;
use tidelock::{Client, ErrorKind, Guard, Severity};
use tokio::task::JoinHandle;
use tokio_postgres::NoTls;

use super::{grants, server, soon, until};

const LEASE: Duration = Duration::from_secs(30);
/// How long a grant lasts that its owner has not confirmed, and how long a process counts as alive after a beat.
const ALIVE: Duration = Duration::from_secs(6);
/// The time between two beats.
const BEAT: Duration = Duration::from_secs(2);
/// A limit for what needs no beat. One may come within it, so a wait that ends in time does not show that a message has ended it.
fn at_once() -> Duration {
    secs(2)
}
/// Longer than until the next beat, which looks at the queue.
fn next_look() -> Duration {
    secs(4)
}

const NAME: &str = "turns";
const QUEUE: &str =
    "SELECT coalesce(string_agg(owner, ' ' ORDER BY place), '') FROM tidelock_locks_waiters";
const OWNER: &str = "SELECT coalesce(owner, 'nobody') FROM tidelock_locks";

async fn client(url: &str) -> Client {
    let builder = Client::builder().lease(LEASE).publish_process_info(false);
    builder.connect(url).await.unwrap()
}

fn queue(server: &PostgresServer) -> Vec<String> {
    let owners = server.query(QUEUE).unwrap();
    owners.split_whitespace().map(str::to_owned).collect()
}

async fn until_the_queue_has(server: &PostgresServer, count: usize) {
    let statement = "SELECT count(*) FROM tidelock_locks_waiters";
    until(server, statement, &count.to_string()).await;
}

/// Starts a waiter, and returns when the queue has this many.
async fn wait(
    server: &PostgresServer,
    client: &Client,
    count: usize,
) -> JoinHandle<tidelock::Result<Guard>> {
    let waiting = tokio::spawn(client.fair_lock(NAME).acquire());
    until(
        server,
        "SELECT to_regclass('tidelock_locks_waiters') IS NOT NULL",
        "t",
    )
    .await;
    until_the_queue_has(server, count).await;
    waiting
}

async fn within(limit: Duration, waiting: JoinHandle<tidelock::Result<Guard>>) -> Guard {
    let waited = tokio::time::timeout(limit, waiting).await;
    waited.expect("in time").unwrap().unwrap()
}

/// The waiter's requests are held, so only the release can have made the grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_grants_the_lock_to_the_next_waiter_in_the_same_transaction() {
    let server = server();
    let proxy = Proxy::start(server.addr()).unwrap();
    let a = client(&server.url()).await;
    let b = client(&server.url_at(proxy.addr())).await;
    let guard = a.fair_lock(NAME).acquire().await.unwrap();
    let waiting = wait(&server, &b, 1).await;
    let owner = queue(&server).remove(0);
    proxy.set_both(Mode::Hold);
    guard.release().await.unwrap();
    assert_eq!(server.query(OWNER).unwrap(), owner);
    assert!(queue(&server).is_empty());
    let short = "SELECT expires < clock_timestamp() + interval '6 seconds' FROM tidelock_locks";
    assert_eq!(server.query(short).unwrap(), "t", "not confirmed yet");
    proxy.set_both(Mode::Pass);
    within(at_once(), waiting).await.release().await.unwrap();
    assert_eq!(server.query(OWNER).unwrap(), "nobody");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_several_clients_are_told_of_their_turns() {
    let server = server();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let mut guard = a.fair_lock(NAME).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for count in 1..=10 {
        let next = if count % 2 == 0 { &a } else { &b };
        waiting.push(wait(&server, next, count).await);
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
    // Nobody waits for a beat. A busy machine may delay some of the turns.
    assert!(took[took.len() / 2] < BEAT / 2, "{took:?}");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t49_twenty_five_waiters_that_were_killed_are_removed() {
    let server = server();
    let proxy = Proxy::start(server.addr()).unwrap();
    let (a, c) = (client(&server.url()).await, client(&server.url()).await);
    let b = client(&server.url_at(proxy.addr())).await;
    let guard = a.fair_lock(NAME).acquire().await.unwrap();
    let mut dead = Vec::new();
    for _ in 0..25 {
        dead.push(tokio::spawn(b.fair_lock(NAME).acquire()));
    }
    until(
        &server,
        "SELECT to_regclass('tidelock_locks_waiters') IS NOT NULL",
        "t",
    )
    .await;
    until_the_queue_has(&server, 25).await;
    let live = wait(&server, &c, 26).await;
    proxy.refuse(true);
    proxy.cut();
    let released = Instant::now();
    guard.release().await.unwrap();
    let guard = within(ALIVE + BEAT * 2, live).await;
    println!("passed over in {:?}", released.elapsed());
    assert!(queue(&server).is_empty(), "they are removed");
    guard.release().await.unwrap();
    dead.iter().for_each(JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t49_twenty_five_frozen_waiters_cost_one_grant_and_come_back() {
    let server = server();
    let proxy = Proxy::start(server.addr()).unwrap();
    let (a, c) = (client(&server.url()).await, client(&server.url()).await);
    let b = client(&server.url_at(proxy.addr())).await;
    let guard = a.fair_lock(NAME).acquire().await.unwrap();
    let mut frozen = Vec::new();
    for _ in 0..25 {
        let acquire = b.fair_lock(NAME).acquire();
        frozen.push(tokio::spawn(async move { acquire.await?.release().await }));
    }
    until(
        &server,
        "SELECT to_regclass('tidelock_locks_waiters') IS NOT NULL",
        "t",
    )
    .await;
    until_the_queue_has(&server, 25).await;
    let live = wait(&server, &c, 26).await;
    proxy.set_both(Mode::Hold);
    let released = Instant::now();
    guard.release().await.unwrap();
    let guard = within(ALIVE + BEAT * 2, live).await;
    let took = released.elapsed();
    println!("passed over in {took:?}");
    assert!(took + BEAT > ALIVE, "{took:?}: the first one had its turn");
    proxy.set_both(Mode::Pass);
    until_the_queue_has(&server, 25).await;
    guard.release().await.unwrap();
    for waiting in frozen {
        soon("its turn", waiting).await.unwrap().unwrap();
    }
}

/// Without notifications the head of the queue polls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_whose_message_was_lost_is_found_by_the_next_look() {
    let server = server();
    let a = client(&server.url()).await;
    let guard = a.fair_lock(NAME).acquire().await.unwrap();
    let waiting = wait(&server, &a, 1).await;
    let owner = queue(&server).remove(0);
    // Nobody is told of this grant.
    let grant = "DELETE FROM tidelock_locks_waiters; UPDATE tidelock_locks SET owner = ";
    let lease = "expires = clock_timestamp() + interval '6 seconds'";
    server.query(&format!("{grant}'{owner}', {lease}")).unwrap();
    let found = within(next_look(), waiting).await;
    assert_eq!(found.owner_id(), owner);
    found.release().await.unwrap();
    drop(guard);
}

/// An older tidelock knows no queue. Its locks and the fair lock exclude each other, and its release is noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_knows_no_queue_is_excluded_and_followed() {
    let server = server();
    let a = client(&server.url()).await;
    let plain = a.lock(NAME);
    let guard = plain.acquire().await.unwrap();
    let there = "SELECT to_regclass('tidelock_locks_waiters') IS NOT NULL";
    assert_eq!(
        server.query(there).unwrap(),
        "f",
        "only a fair lock makes the table"
    );
    let waiting = wait(&server, &a, 1).await;
    let owner = queue(&server).remove(0);
    // The statement of a lock without a queue, which older versions have too.
    guard.release().await.unwrap();
    let guard = within(at_once(), waiting).await;
    assert_eq!(guard.owner_id(), owner);
    assert!(plain.try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn(plain.acquire());
    tokio::time::sleep(Duration::from_millis(50)).await;
    guard.release().await.unwrap();
    within(at_once(), waiting).await.release().await.unwrap();
}

/// A fence in a user's transaction keeps out the next grant, but no release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_holds_up_the_next_waiter_and_no_release() {
    let server = server();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let (mut session, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let guard = a.fair_lock(NAME).fenced().acquire().await.unwrap();
    let token = guard.token();
    let waiting = tokio::spawn(b.fair_lock(NAME).fenced().acquire());
    until(
        &server,
        "SELECT to_regclass('tidelock_locks_waiters') IS NOT NULL",
        "t",
    )
    .await;
    until_the_queue_has(&server, 1).await;
    let fence = guard.sql_fence().unwrap();
    let transaction = session.transaction().await.unwrap();
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&fence.name, &fence.token];
    transaction
        .execute(&fence.statement, &params)
        .await
        .unwrap();
    let released = Instant::now();
    guard.release().await.unwrap();
    assert!(released.elapsed() < at_once(), "{:?}", released.elapsed());
    tokio::time::sleep(BEAT).await;
    assert!(!waiting.is_finished());
    transaction.commit().await.unwrap();
    let next = soon("its turn", waiting).await.unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}

/// A fence is open for longer than a process counts as alive, and the lock is free. The waiters stay alive, and one that
/// comes meanwhile gets its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_that_stays_open_keeps_the_order_of_the_waiters() {
    let server = server();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let c = client(&server.url()).await;
    let (mut session, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let guard = a.fair_lock(NAME).fenced().acquire().await.unwrap();
    let first = wait(&server, &b, 1).await;
    let second = wait(&server, &c, 2).await;
    let fence = guard.sql_fence().unwrap();
    let transaction = session.transaction().await.unwrap();
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&fence.name, &fence.token];
    transaction
        .execute(&fence.statement, &params)
        .await
        .unwrap();
    guard.release().await.unwrap();
    let third = wait(&server, &a, 3).await;
    let order = queue(&server);
    tokio::time::sleep(ALIVE + BEAT).await;
    let alive = "SELECT count(*) FROM tidelock_locks_waiters WHERE alive > clock_timestamp()";
    assert_eq!(server.query(alive).unwrap(), "3");
    transaction.commit().await.unwrap();
    for (waiting, owner) in [first, second, third].into_iter().zip(order) {
        let next = soon("its turn", waiting).await.unwrap().unwrap();
        assert_eq!(next.owner_id(), owner);
        next.release().await.unwrap();
    }
}

/// The tables are dropped, or the database is replaced by an empty one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_go_on_after_their_rows_are_gone() {
    let server = server();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let guard = a.fair_lock(NAME).acquire().await.unwrap();
    let first = wait(&server, &b, 1).await;
    let owner = queue(&server).remove(0);
    let second = wait(&server, &a, 2).await;
    let throw_out = format!("DELETE FROM tidelock_locks_waiters WHERE owner = '{owner}'");
    server.query(&throw_out).unwrap();
    until_the_queue_has(&server, 2).await;
    assert_eq!(queue(&server).first(), Some(&owner));
    server.query("DROP TABLE tidelock_locks_waiters").unwrap();
    until(
        &server,
        "SELECT to_regclass('tidelock_locks_waiters') IS NOT NULL",
        "t",
    )
    .await;
    until_the_queue_has(&server, 2).await;
    guard.release().await.unwrap();
    let both = [first, second].map(async |waiting| {
        let guard = within(LEASE / 3, waiting).await;
        guard.release().await.unwrap();
    });
    futures_util::future::join_all(both).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t27_a_user_who_may_not_make_the_table_is_told_how() {
    let server = server();
    let admin = client(&server.url()).await;
    server.query(&super::clerk(&grants(None))).unwrap();
    let clerk = client(&server.url().replace("postgres@", "clerk@")).await;
    clerk
        .lock(NAME)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let finding = async || {
        let mut findings = clerk.diagnose().await.unwrap();
        findings.retain(|finding| finding.subject == "fair and read-write locks");
        findings.remove(0).severity
    };
    assert_eq!(finding().await, Severity::Advice);
    let error = clerk.fair_lock(NAME).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    let said = error.to_string();
    assert!(
        said.contains("CREATE TABLE IF NOT EXISTS tidelock_locks_waiters"),
        "{said}"
    );
    // What the error asks for is enough.
    admin
        .fair_lock(NAME)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert!(!clerk.lock(NAME).inspect().await.unwrap().is_locked());
    let fair = grants(Some("fair and read-write locks"));
    server.query(&fair).unwrap();
    assert_eq!(finding().await, Severity::Good);
    let guard = clerk.fair_lock(NAME).acquire().await.unwrap();
    let waiting = wait(&server, &clerk, 1).await;
    guard.release().await.unwrap();
    within(at_once(), waiting).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_lock_is_never_fair() {
    let server = server();
    let client = client(&format!("{}?locks=session", server.url())).await;
    let error = client.fair_lock(NAME).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_stays_has_its_turns_among_many_that_leave() {
    let server = server();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    waits_among_leavers(&a, &b, 8).await.unwrap();
}

/// The waiter's requests are held, so only the release of the lock without a queue can have made the grant. Otherwise the
/// waiters for that lock would be faster every time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_of_a_lock_without_a_queue_hands_over() {
    let server = server();
    let proxy = Proxy::start(server.addr()).unwrap();
    let a = client(&server.url()).await;
    let b = client(&server.url_at(proxy.addr())).await;
    b.fair_lock(NAME)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let plain = a.lock(NAME);
    plain.acquire().await.unwrap().release().await.unwrap();
    let guard = plain.acquire().await.unwrap();
    let waiting = wait(&server, &b, 1).await;
    let owner = queue(&server).remove(0);
    proxy.set_both(Mode::Hold);
    guard.release().await.unwrap();
    assert_eq!(server.query(OWNER).unwrap(), owner);
    proxy.set_both(Mode::Pass);
    within(ALIVE, waiting).await.release().await.unwrap();
    // The table may go, or the right to it: then nobody waits, and the release is one without a queue.
    server.query("DROP TABLE tidelock_locks_waiters").unwrap();
    plain.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(server.query(OWNER).unwrap(), "nobody");
}

/// As [`a_release_of_a_lock_without_a_queue_hands_over`]. The caller has left after the grant, before it heard of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_withdrawal_of_a_lock_without_a_queue_hands_over() {
    let server = server();
    let (held, lost) = (
        Proxy::start(server.addr()).unwrap(),
        Proxy::start(server.addr()).unwrap(),
    );
    let b = client(&server.url_at(held.addr())).await;
    let c = client(&server.url_at(lost.addr())).await;
    b.fair_lock(NAME)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    // A client learns from a release that there is a queue.
    let plain = c.lock(NAME);
    plain.acquire().await.unwrap().release().await.unwrap();
    lost.set(Way::ToClient, Mode::Drop);
    let leaver = tokio::spawn(plain.acquire());
    let taken = "SELECT owner IS NOT NULL FROM tidelock_locks";
    until(&server, taken, "t").await;
    let unheard = server.query(OWNER).unwrap();
    let waiting = wait(&server, &b, 1).await;
    let owner = queue(&server).remove(0);
    held.set_both(Mode::Hold);
    leaver.abort();
    assert!(leaver.await.is_err_and(|left| left.is_cancelled()));
    lost.set(Way::ToClient, Mode::Pass);
    lost.cut();
    let withdrawn = format!("SELECT owner IS DISTINCT FROM '{unheard}' FROM tidelock_locks");
    until(&server, &withdrawn, "t").await;
    assert_eq!(server.query(OWNER).unwrap(), owner);
    held.set_both(Mode::Pass);
    within(ALIVE, waiting).await.release().await.unwrap();
}

/// As [`a_release_of_a_lock_without_a_queue_hands_over`], by a client that has released nothing before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_hands_over_in_the_same_transaction() {
    let server = server();
    let proxy = Proxy::start(server.addr()).unwrap();
    let a = client(&server.url()).await;
    let b = client(&server.url_at(proxy.addr())).await;
    let guard = a.lock(NAME).acquire().await.unwrap();
    assert!(
        !client(&server.url())
            .await
            .lock("no queue")
            .force_release()
            .await
            .unwrap()
    );
    let waiting = wait(&server, &b, 1).await;
    let owner = queue(&server).remove(0);
    proxy.set_both(Mode::Hold);
    let operator = client(&server.url()).await;
    assert!(operator.lock(NAME).force_release().await.unwrap());
    assert_eq!(server.query(OWNER).unwrap(), owner);
    assert!(queue(&server).is_empty());
    proxy.set_both(Mode::Pass);
    within(ALIVE, waiting).await.release().await.unwrap();
    assert!(!operator.lock(NAME).force_release().await.unwrap());
    drop(guard);
}
