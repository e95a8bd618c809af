//! Semaphores: the order of their waiters, names of locks, rights, and what a cancelled operation leaves.

use std::time::Duration;

use testkit::proxy::{Mode, Proxy};
use testkit::servers::PostgresServer;
use tidelock::{Client, ErrorKind, Permits, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio_postgres::NoTls;

use super::{client, grants, lease, server, until};

const NAME: &str = "render";
const WAITING: &str = "SELECT count(*) FROM tidelock_locks_permits WHERE NOT held";
/// A waiter counts as alive for so long.
const ALIVE: Duration = Duration::from_secs(6);

/// A waiter that has its place in the queue. `count`: how many wait then.
async fn wait(
    server: &PostgresServer,
    semaphore: &Semaphore,
    permits: u16,
    count: u32,
) -> JoinHandle<Permits> {
    let wanted = semaphore.permits(permits);
    let waiting = tokio::spawn(async move { wanted.acquire().await.unwrap() });
    until(server, WAITING, &count.to_string()).await;
    waiting
}

async fn within(limit: Duration, waiting: JoinHandle<Permits>) -> Permits {
    let waited = tokio::time::timeout(limit, waiting).await;
    waited.expect("in time").unwrap()
}

/// The requests of the waiters are held, so only the release can have given them permits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_gives_permits_to_the_waiters_in_the_order_of_their_arrival() {
    let server = server();
    let proxy = Proxy::start(server.addr()).unwrap();
    let near = client(&server.url()).await.semaphore(NAME);
    let far = client(&server.url_at(proxy.addr())).await.semaphore(NAME);
    near.set_permits(4).await.unwrap();
    let held = near.permits(3).acquire().await.unwrap();
    let too_many = wait(&server, &far, 6, 1).await;
    let big = wait(&server, &far, 4, 2).await;
    // One permit is there, but it waits for the one before it.
    let small = wait(&server, &far, 1, 3).await;
    let last = wait(&server, &far, 2, 4).await;
    assert!(near.try_acquire().await.unwrap().is_none());
    proxy.set_both(Mode::Hold);
    held.release().await.unwrap();
    let held = "SELECT string_agg(permits::text, ' ' ORDER BY place) FROM tidelock_locks_permits WHERE held";
    assert_eq!(server.query(held).unwrap(), "4");
    proxy.set_both(Mode::Pass);
    let big = within(lease(), big).await;
    assert!(!small.is_finished() && !last.is_finished());
    proxy.set_both(Mode::Hold);
    assert!(near.force_release().await.unwrap());
    assert_eq!(server.query(held).unwrap(), "1 2");
    proxy.set_both(Mode::Pass);
    drop(big);
    within(lease(), small).await.release().await.unwrap();
    within(lease(), last).await.release().await.unwrap();
    assert!(!too_many.is_finished());
    near.add_permits(2).await.unwrap();
    let all = within(lease(), too_many).await;
    assert_eq!(all.count(), 6);
    let seen = near.inspect().await.unwrap();
    assert_eq!(seen.permits.unwrap().available, 0);
    assert_eq!((seen.holders.len(), seen.holders[0].holds), (1, 6));
    assert_eq!(seen.holders[0].owner, all.owner_id());
    all.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_for_permits_whose_process_stands_still_lets_the_next_pass() {
    let server = server();
    let proxy = Proxy::start(server.addr()).unwrap();
    let near = client(&server.url()).await.semaphore(NAME);
    let far = client(&server.url_at(proxy.addr())).await.semaphore(NAME);
    near.set_permits(2).await.unwrap();
    let held = near.acquire().await.unwrap();
    let two = far.permits(2);
    let dead = tokio::spawn(async move { two.acquire().await.map(drop) });
    until(&server, WAITING, "1").await;
    let next = wait(&server, &near, 1, 2).await;
    proxy.set_both(Mode::Hold);
    let next = within(ALIVE * 2, next).await;
    dead.abort();
    // It may have given up before, because the store does not answer.
    assert!(
        !matches!(dead.await, Ok(Ok(()))),
        "there are too few permits"
    );
    proxy.set_both(Mode::Pass);
    held.release().await.unwrap();
    next.release().await.unwrap();
    until(&server, "SELECT count(*) FROM tidelock_locks_permits", "0").await;
}

/// An older tidelock knows no semaphores. To it the name is a lock that somebody holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_of_a_semaphore_is_held_for_a_client_that_knows_none() {
    let server = server();
    let a = client(&server.url()).await;
    let semaphore = a.semaphore(NAME);
    semaphore.set_permits(1).await.unwrap();
    let held = "SELECT owner FROM tidelock_locks WHERE expires > now() + interval '999 years'";
    assert_eq!(server.query(held).unwrap(), ":semaphore");
    let sides = a.read_write_lock(NAME);
    for refused in [
        a.lock(NAME).try_acquire().await.map(drop),
        a.fair_lock(NAME).acquire().await.map(drop),
        sides.read().acquire().await.map(drop),
        sides.write().try_acquire().await.map(drop),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    }
    // It breaks the lock.
    let freed = "UPDATE tidelock_locks SET owner = NULL, expires = now() RETURNING 1";
    assert_eq!(server.query(freed).unwrap(), "1");
    let permit = semaphore.acquire().await.unwrap();
    assert_eq!(server.query(held).unwrap(), ":semaphore");
    assert_eq!(a.list("*").limit(10).await.unwrap(), [NAME]);
    permit.release().await.unwrap();
    assert!(a.list("*").limit(10).await.unwrap().is_empty());
    assert!(!semaphore.force_release().await.unwrap());
    assert_eq!(semaphore.inspect().await.unwrap().permits.unwrap().total, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t27_a_user_who_may_not_make_the_tables_of_semaphores_is_told_how() {
    let server = server();
    let admin = client(&server.url()).await;
    server.query(&super::clerk(&grants(None))).unwrap();
    let clerk = client(&server.url().replace("postgres@", "clerk@")).await;
    let finding = async |client: &Client| {
        let found = client.diagnose().await.unwrap();
        let found = found.into_iter().find(|it| it.subject == "semaphores");
        found.unwrap().to_string()
    };
    assert!(finding(&clerk).await.contains("tidelock_locks_semaphores"));
    let semaphore = clerk.semaphore(NAME);
    let error = semaphore.set_permits(2).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    let text = error.to_string();
    let sql = &text[text.find("SELECT pg_advisory").expect(&text)..];
    server.query(sql).unwrap();
    let other = admin.semaphore("other");
    other.set_permits(1).await.unwrap();
    let permit = other.acquire().await.unwrap();
    assert_eq!(admin.list("*").limit(10).await.unwrap(), ["other"]);
    assert!(clerk.list("*").limit(10).await.unwrap().is_empty());
    permit.release().await.unwrap();
    server.query(&grants(Some("semaphores"))).unwrap();
    let said = finding(&clerk).await;
    assert!(!said.contains("may not make it"), "{said}");
    semaphore.set_permits(2).await.unwrap();
    let two = semaphore.permits(2).acquire().await.unwrap();
    assert!(admin.semaphore(NAME).try_acquire().await.unwrap().is_none());
    assert_eq!(clerk.list("*").limit(10).await.unwrap(), [NAME]);
    two.release().await.unwrap();
}

/// The permits that are held are in the other table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_given_back_although_the_table_of_the_semaphores_is_missing() {
    let server = server();
    let semaphore = client(&server.url()).await.semaphore(NAME);
    semaphore.set_permits(2).await.unwrap();
    let one = semaphore.acquire().await.unwrap();
    let other = semaphore.acquire().await.unwrap();
    server
        .query("DROP TABLE tidelock_locks_semaphores")
        .unwrap();
    let held = "SELECT count(*) FROM tidelock_locks_permits WHERE held";
    one.release().await.unwrap();
    assert_eq!(server.query(held).unwrap(), "1");
    assert!(semaphore.force_release().await.unwrap());
    assert_eq!(server.query(held).unwrap(), "0");
    drop(other);
}

/// Two requests have begun before they wait for the row of the semaphore. The second one must see what the first one has
/// committed meanwhile, also where a transaction sees nothing newer than its beginning by default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_has_one_holder_whatever_the_default_isolation_is() {
    let server = server();
    let url = server.url();
    let default = "ALTER DATABASE postgres SET default_transaction_isolation";
    for level in ["repeatable read", "serializable"] {
        server.query(&format!("{default} = '{level}'")).unwrap();
        let patient = || {
            let builder = Client::builder().lease(lease() * 10);
            let builder = builder.response_timeout(lease() * 3);
            builder.publish_process_info(false).connect(&url)
        };
        let clients = [patient().await.unwrap(), patient().await.unwrap()];
        let semaphore = clients[0].semaphore(NAME);
        semaphore.set_permits(1).await.unwrap();
        semaphore.acquire().await.unwrap().release().await.unwrap();
        let (mut session, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let kept = session.transaction().await.unwrap();
        let row = "SELECT 1 FROM tidelock_locks WHERE name = $1 FOR NO KEY UPDATE";
        assert_eq!(kept.query(row, &[&NAME]).await.unwrap().len(), 1);
        let mut asking = JoinSet::new();
        for client in &clients {
            let semaphore = client.semaphore(NAME);
            asking.spawn(async move { semaphore.try_acquire().await });
        }
        let blocked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidelock' AND wait_event_type = 'Lock'";
        until(&server, blocked, "2").await;
        kept.commit().await.unwrap();
        let tried = asking.join_all().await;
        let held: Vec<_> = tried.into_iter().filter_map(Result::unwrap).collect();
        assert_eq!(held.len(), 1, "{level}");
        for permit in held {
            permit.release().await.unwrap();
        }
    }
}
