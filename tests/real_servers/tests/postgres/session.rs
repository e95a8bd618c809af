//! Session-level advisory locks of the server: `?locks=session`.

use std::time::{Duration, Instant};

use testkit::proxy::{Mode, Proxy};
use testkit::servers::{Pgbouncer, PostgresServer};
use tidelock::{Client, ErrorKind, LostReason, Severity};

use super::{client, lease, server, soon, until};

/// The number of sessions that hold an advisory lock.
const HOLDERS: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted";

fn url(server: &PostgresServer) -> String {
    format!("{}?locks=session", server.url())
}

mod promises {
    use std::sync::{Arc, LazyLock};

    use tidelock::testing::Fixture;

    use super::{Duration, HOLDERS, PostgresServer, server, url};

    static SERVER: LazyLock<PostgresServer> = LazyLock::new(server);

    fn fixture() -> Fixture {
        Fixture::url(url(&SERVER)).lease_of(Duration::from_millis(1800))
    }

    // Three promises are left out, because the documentation says that they do not hold: others see neither names
    // (`a_nasty_name_is_nothing_but_a_name`) nor owners (`every_good_name_works`), and never more than the client's
    // lease is proved (`an_extended_lease_lasts_longer`).
    mod plain {
        tidelock::conformance!(hashed: super::fixture());
    }

    mod chaos {
        tidelock::conformance!(hashed faces: super::fixture().through_chaos());
    }

    mod threads {
        tidelock::conformance!(hashed blocking: super::fixture().blocking());
    }

    /// A server of its own, in which no advisory lock may stay behind.
    fn fresh() -> Fixture {
        let server = Arc::new(server());
        let check = Arc::clone(&server);
        Fixture::url(url(&server))
            .lease_of(Duration::from_secs(3))
            .keeping(server)
            .checked_by(move || {
                let holders = check.query(HOLDERS).unwrap();
                (holders != "0").then(|| format!("{holders} advisory locks"))
            })
    }

    mod every_await {
        tidelock::conformance_at_every_await!(super::fresh());
    }
}

/// A client whose lease is so long that in these tests it never learns of a loss by its own check.
async fn patient(url: &str) -> Client {
    let builder = Client::builder().lease(Duration::from_secs(60));
    builder.connect(url).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_locks_the_same_number_is_excluded() {
    let server = server();
    let a = client(&url(&server)).await;
    let guard = a.lock("till").acquire().await.unwrap();
    let take = "SELECT pg_try_advisory_lock(hashtextextended('till', 0))";
    assert_eq!(server.query(take).unwrap(), "f");
    guard.release().await.unwrap();
    assert_eq!(
        server.query(take).unwrap(),
        "t",
        "and free when psql has gone"
    );
    let tables = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'tidelock%'";
    assert_eq!(server.query(tables).unwrap(), "0", "it needs none");
    let guard = soon("the next", a.lock("till").acquire()).await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(server.query(HOLDERS).unwrap(), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_connection_is_told_at_once() {
    let server = server();
    let (a, b) = (patient(&url(&server)).await, patient(&url(&server)).await);
    let (one, two) = (
        a.lock("till").acquire().await.unwrap(),
        a.lock("safe").acquire().await.unwrap(),
    );
    let start = Instant::now();
    let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory'";
    assert_eq!(server.query(ended).unwrap(), "2");
    for guard in [&one, &two] {
        assert_eq!(soon("the loss", guard.lost()).await, LostReason::Taken);
        assert!(!guard.is_held());
    }
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "a lease is a minute"
    );
    let next = soon("the next", b.lock("till").acquire()).await.unwrap();
    assert!(one.release().await.is_err());
    assert_eq!(server.query(HOLDERS).unwrap(), "1");
    next.release().await.unwrap();
    // The client has opened a new session.
    let again = soon("again", a.lock("till").acquire()).await.unwrap();
    again.release().await.unwrap();
}

/// PostgreSQL refuses to bear a silence of a month, and Linux to send keepalives so rarely.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_of_a_month_is_proved_for_a_day() {
    let server = server();
    let day = Duration::from_secs(86_400);
    let builder = Client::builder().lease(day * 30);
    let a = builder.connect(&url(&server)).await.unwrap();
    let guard = a.lock("till").acquire().await.unwrap();
    let proved = guard.valid_for();
    assert!(day < proved && proved < day * 2, "{proved:?}");
    guard.release().await.unwrap();
}

/// A client behind a silent network partition learns of the loss by its own clock. Later the server, which receives
/// nothing either, grants the lock to others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_cut_off_is_told_before_another_gets_it() {
    let server = server();
    let proxy = Proxy::start_opaque(server.addr()).unwrap();
    let through = format!("{}?locks=session", server.url_at(proxy.addr()));
    let (a, b) = (client(&through).await, client(&url(&server)).await);
    let guard = a.lock("till").acquire().await.unwrap();
    let lock = b.lock("till");
    let waiting = tokio::spawn(async move {
        let next = lock.acquire().await;
        (next, Instant::now())
    });
    tokio::time::sleep(lease()).await;
    assert!(guard.is_held() && !waiting.is_finished());
    proxy.set_both(Mode::Hold);
    let reason = soon("the loss", guard.lost()).await;
    let told = Instant::now();
    assert_eq!(reason, LostReason::Expired);
    let (next, taken) = soon("the next", waiting).await.unwrap();
    assert!(told < taken, "told {:?} late", told - taken);
    next.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_has_forgotten_and_that_is_told() {
    let server = server();
    let a = patient(&url(&server)).await;
    let guard = a.lock("till").acquire().await.unwrap();
    server.restart().unwrap();
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Taken);
    let next = soon("the next", a.lock("till").acquire()).await.unwrap();
    next.release().await.unwrap();
}

/// A standby grants advisory locks, and the primary grants the same ones to others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_grants_no_session_lock() {
    let primary = server();
    let standby = PostgresServer::start_standby(&primary).unwrap();
    let error = Client::builder().connect(&url(&standby)).await;
    let error = error.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let told = error.to_string();
    assert!(told.contains("this server is a standby"), "{told}");
    assert!(told.contains(&standby.addr().to_string()), "{told}");
    // The standby is the first of two hosts.
    let both = format!("{},{}", standby.addr(), primary.addr());
    let both = format!("postgres://postgres@{both}/postgres?locks=session");
    let (a, b) = (client(&both).await, client(&url(&primary)).await);
    let guard = a.lock("till").acquire().await.unwrap();
    assert!(b.lock("till").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    let chosen = format!("{both}&target_session_attrs=any");
    let error = Client::builder().connect(&chosen).await;
    let error = error.expect_err("the user chose the first host");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// Behind a transaction pooler, the lock would stay with the next client that gets the server connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t56_session_locks_are_refused_behind_a_transaction_pooler() {
    let server = server();
    let pooler = Pgbouncer::start(&server).unwrap();
    let through = format!("{}?locks=session", server.url_at(pooler.addr()));
    // First alone, then while other clients force the pooler to reassign connections.
    let rows = client(&server.url_at(pooler.addr())).await;
    for round in 0..6 {
        let busy = (round > 2).then(|| {
            let lock = rows.lock("traffic");
            tokio::spawn(async move {
                loop {
                    lock.acquire().await.unwrap().release().await.unwrap();
                }
            })
        });
        let error = Client::builder().connect(&through).await;
        let error = error.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("pool_mode = session"), "{error}");
        if let Some(busy) = busy {
            busy.abort();
        }
    }
    assert_eq!(server.query(HOLDERS).unwrap(), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_keeps_sessions_is_as_good_as_none() {
    let server = server();
    let pooler = Pgbouncer::keeping_sessions(&server).unwrap();
    let through = format!("{}?locks=session", server.url_at(pooler.addr()));
    let (a, b) = (client(&through).await, client(&through).await);
    let guard = a.lock("till").acquire().await.unwrap();
    assert!(b.lock("till").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    let next = b.lock("till").acquire().await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_abilities_are_refused_by_name() {
    let server = server();
    let (a, b) = (client(&url(&server)).await, client(&url(&server)).await);
    let error = a.lock("till").fenced().acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let guard = a.lock("till").acquire().await.unwrap();
    assert!(guard.is_held());
    let seen = b.lock("till").inspect().await.unwrap();
    assert!(seen.holders[0].owner.starts_with("session "), "{seen:?}");
    let findings = b.diagnose().await.unwrap();
    let silence = findings.iter().find(|one| one.subject == "silence");
    assert_eq!(silence.unwrap().severity, Severity::Good, "{findings:?}");
    // The server terminates the holder's session, because no other session can release the lock.
    assert!(b.lock("till").force_release().await.unwrap());
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Taken);
}

/// The server process of the session that holds the lock, as another client sees it.
async fn backend_of(other: &Client) -> u32 {
    let seen = other.lock("till").inspect().await.unwrap();
    let pid = seen.holders[0].owner.strip_prefix("session ").unwrap();
    pid.parse().unwrap()
}

/// `pg_terminate_backend` returns before the session ends. Until it has ended, its holder could release as if nothing
/// had happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_force_release_returns_after_the_session_of_the_holder_has_ended() {
    let server = server();
    let (a, b) = (client(&url(&server)).await, client(&url(&server)).await);
    let guard = a.lock("till").acquire().await.unwrap();
    let pid = backend_of(&b).await;
    testkit::process::freeze(pid).unwrap();
    let lock = b.lock("till");
    let mut forced = std::pin::pin!(lock.force_release());
    let early = tokio::time::timeout(Duration::from_millis(300), forced.as_mut()).await;
    testkit::process::thaw(pid).unwrap();
    early.unwrap_err();
    assert!(soon("the end of the session", forced).await.unwrap());
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::Taken));
}

/// The server was told to end the session, and does so at some time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_force_release_is_in_doubt_if_the_session_of_the_holder_does_not_end() {
    let server = server();
    let (a, b) = (client(&url(&server)).await, client(&url(&server)).await);
    let guard = a.lock("till").acquire().await.unwrap();
    let pid = backend_of(&b).await;
    testkit::process::freeze(pid).unwrap();
    let lock = b.lock("till");
    let forced = soon("the answer", lock.force_release()).await;
    testkit::process::thaw(pid).unwrap();
    assert_eq!(forced.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Taken);
}

/// Clients close while a release has no reply. A server process that does not run keeps the lock although the client has left, so
/// no release may claim that the lock is free. Several at once: which of the two is over first differs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_a_close_interrupts_is_not_confirmed() {
    let server = server();
    let watcher = client(&url(&server)).await;
    let mut held = Vec::new();
    for n in 0..20 {
        let client = client(&url(&server)).await;
        let guard = client.lock(&format!("till:{n}")).acquire().await.unwrap();
        held.push((client, guard));
    }
    let pids = server.query(&format!(
        "SELECT string_agg(pid::text, ' ') FROM ({}) AS held",
        HOLDERS.replace("count(*)", "pid")
    ));
    let pids = pids.unwrap();
    let pids = pids.split(' ').map(|pid| pid.parse::<u32>().unwrap());
    let pids = pids.collect::<Vec<_>>();
    assert_eq!(pids.len(), held.len());
    for pid in &pids {
        testkit::process::freeze(*pid).unwrap();
    }
    let mut releases = tokio::task::JoinSet::new();
    for (client, guard) in held {
        releases.spawn(async move {
            let release = guard.release();
            tokio::join!(release, client.close(Duration::ZERO)).0
        });
    }
    while let Some(told) = soon("the releases", releases.join_next()).await {
        let told = told.unwrap();
        assert!(told.is_err(), "{told:?}");
    }
    let refused = watcher.lock("till:0").try_acquire().await.unwrap();
    assert!(refused.is_none(), "the server has still the lock");
    for pid in &pids {
        testkit::process::thaw(*pid).unwrap();
    }
    until(&server, HOLDERS, "0").await;
}

/// An attempt may fail after the server has taken the lock, as by a timeout of the statement. The end of its transaction
/// releases no lock of the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_whose_attempt_failed_on_the_server_is_given_back() {
    let server = server();
    server
        .query(
            "CREATE SCHEMA late; \
             CREATE FUNCTION late.pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN \
               PERFORM pg_catalog.pg_try_advisory_lock($1); \
               RAISE EXCEPTION USING ERRCODE = '57014', MESSAGE = 'canceling statement due to statement timeout'; \
             END $$; \
             ALTER DATABASE postgres SET search_path = late, pg_catalog, public",
        )
        .unwrap();
    let a = client(&url(&server)).await;
    let error = a.lock("till").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("statement timeout"), "{error}");
    until(&server, HOLDERS, "0").await;
    // Now it succeeds.
    server.query("DROP SCHEMA late CASCADE").unwrap();
    let guard = soon("the lock", a.lock("till").acquire()).await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(server.query(HOLDERS).unwrap(), "0");
}
