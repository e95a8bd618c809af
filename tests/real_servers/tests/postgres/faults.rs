//! Faults of connections and servers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use testkit::proxy::{Mode, Proxy, Way};
use testkit::servers::{Pgbouncer, PostgresServer, ServerCert, Tls};
use tidelock::{
    AcquireOptions, Client, ClientBuilder, Credentials, ErrorKind, Guard, LostReason, Severity,
};
use tokio_postgres::NoTls;

use super::{client, lease, server, soon, steady_client, until, until_renewed};

const OTHERS: &str =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidelock'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t56_terminated_backends_lose_no_lock() {
    let server = server();
    let a = steady_client(&server.url()).await;
    let b = steady_client(&server.url()).await;
    let guard = a.lock("till").acquire().await.unwrap();
    let lock = b.lock("till");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until(
        &server,
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'LISTEN%'",
        "t",
    )
    .await;
    for _ in 0..4 {
        server.query(OTHERS).unwrap();
        until_renewed(&guard).await;
    }
    assert!(guard.is_held(), "renewed over new connections");
    server.query(OTHERS).unwrap();
    // The connection may be lost while the release is in flight. The background release settles it, so we ignore this
    // result.
    let _ = guard.release().await;
    let next = soon("the waiter's turn", waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
}

/// T30: a client that asks for the password at each connect continues with the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t30_a_password_that_was_changed_is_asked_for_again() {
    let server = server();
    let order = "CREATE ROLE app LOGIN PASSWORD 'old'; GRANT CREATE ON SCHEMA public TO app";
    server.query(order).unwrap();
    let rule = "host all app 127.0.0.1/32 scram-sha-256";
    server.admit_first(rule).unwrap();
    let password = Arc::new(Mutex::new("old"));
    let known = Arc::clone(&password);
    let now = move || Credentials::new("app", *known.lock().unwrap());
    let builder = Client::builder().lease(lease()).credentials_from(now);
    let a = builder.connect(&server.url()).await.unwrap();
    let guard = a.lock("till").acquire().await.unwrap();
    *password.lock().unwrap() = "new";
    server.query("ALTER ROLE app PASSWORD 'new'").unwrap();
    server.query(OTHERS).unwrap();
    tokio::time::sleep(lease()).await;
    assert!(guard.is_held(), "renewed with the new password");
    guard.release().await.unwrap();
    *password.lock().unwrap() = "wrong";
    server.query(OTHERS).unwrap();
    let refused = async {
        loop {
            let asked = a.lock("till").acquire().await;
            match asked {
                Err(error) if error.kind() == ErrorKind::Refused => break error,
                // The statement failed on the terminated connection, or ran on one that was opened before: we try
                // again.
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let error = soon("the refusal", refused).await;
    assert!(error.to_string().contains("password"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t56_no_transaction_is_left_open() {
    let server = server();
    server
        .query("ALTER SYSTEM SET idle_in_transaction_session_timeout = '50ms'")
        .unwrap();
    server.query("SELECT pg_reload_conf()").unwrap();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let guard = a.lock("till").acquire().await.unwrap();
    let lock = b.lock("till");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    for _ in 0..20 {
        let open = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidelock' AND state LIKE 'idle in%'";
        assert_eq!(server.query(open).unwrap(), "0");
        tokio::time::sleep(lease() / 20).await;
    }
    assert!(guard.is_held());
    guard.release().await.unwrap();
    let next = soon("the waiter's turn", waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t56_a_restarted_server_keeps_what_was_granted() {
    let server = server();
    let a = steady_client(&server.url()).await;
    let b = steady_client(&server.url()).await;
    let guard = a.lock("till").fenced().acquire().await.unwrap();
    let lock = b.lock("till").fenced();
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until(
        &server,
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'LISTEN%'",
        "t",
    )
    .await;
    server.restart().unwrap();
    until_renewed(&guard).await;
    assert!(guard.is_held(), "its row was on the disk");
    assert!(!waiting.is_finished());
    let token = guard.token();
    guard.release().await.unwrap();
    let next = soon("the waiter's turn", waiting).await.unwrap().unwrap();
    assert!(next.token() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t56_a_frozen_server_costs_the_lock_in_time() {
    let server = server();
    let a = client(&server.url()).await;
    let lock = a.lock("till").fenced();
    let guard = lock.acquire().await.unwrap();
    server.freeze().unwrap();
    let reason = soon("the loss", guard.lost()).await;
    assert_eq!(reason, LostReason::Expired);
    // The server's clock ran on during the freeze, so the lease has ended there by now, and nobody else had the lock in
    // between.
    server.thaw().unwrap();
    let next = soon("the next", lock.acquire()).await.unwrap();
    assert!(next.token() > guard.token());
}

/// Behind a transaction pooler a client receives no notifications. The client detects this, reports it, and polls
/// instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t56_behind_a_transaction_pooler_waiters_ask() {
    let server = server();
    let pooler = Pgbouncer::start(&server).unwrap();
    let url = server.url_at(pooler.addr());
    let (a, b) = (client(&url).await, client(&url).await);
    let findings = a.diagnose().await.unwrap();
    let wakes = findings.iter().find(|one| one.subject == "wakes").unwrap();
    assert_eq!(wakes.severity, Severity::Advice, "{wakes:?}");
    for _ in 0..20 {
        let guard = a.lock("till").acquire().await.unwrap();
        let lock = b.lock("till");
        let waiting = tokio::spawn(async move { lock.acquire().await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        guard.release().await.unwrap();
        let next = soon("the waiter's turn", waiting).await.unwrap().unwrap();
        next.release().await.unwrap();
    }
    // The hold lasts longer than a lease, and each renewal can use a different connection.
    let guard = a.lock("till").acquire().await.unwrap();
    tokio::time::sleep(lease() * 3 / 2).await;
    assert!(guard.is_held());
    // A wait that ends blames the server if a request has been without an answer for a quarter of the response timeout.
    let c = Client::builder()
        .lease(lease())
        .response_timeout(lease() * 6);
    let c = c.connect(&url).await.unwrap();
    let wait = AcquireOptions::new().wait(lease() * 4 / 3);
    let error = c.lock("till").acquire_with(wait).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_the_next_waiter_without_a_lease_in_between() {
    let server = server();
    let a = steady_client(&server.url()).await;
    let b = steady_client(&server.url()).await;
    let lock = b.lock("till");
    // The first wait of a client also tests whether notifications arrive.
    for _ in 0..5 {
        let guard = a.lock("till").acquire().await.unwrap();
        let lock = lock.clone();
        let waiting = tokio::spawn(async move { lock.acquire().await });
        until(
            &server,
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'LISTEN%'",
            "t",
        )
        .await;
        tokio::time::sleep(lease() / 20).await;
        guard.release().await.unwrap();
        let next = tokio::time::timeout(lease(), waiting).await;
        next.expect("woken")
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

/// A firewall has forgotten the connection that listens, and tells neither side. The other connections go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_woken_although_its_listening_connection_went_silent() {
    let server = server();
    let proxy = Proxy::start_opaque(server.addr()).unwrap();
    // The lease is so long that the end of the holder's lease does not wake the waiter within this test.
    let patient = async |url: String| {
        let builder = Client::builder().lease(lease() * 100);
        let builder = builder.response_timeout(lease() / 2);
        let builder = builder.publish_process_info(false);
        builder.connect(&url).await.unwrap()
    };
    let holder = patient(server.url()).await;
    let waiter = patient(server.url_at(proxy.addr())).await;
    let others = proxy.accepted();
    let findings = waiter.diagnose().await.unwrap();
    let wakes = findings.iter().find(|one| one.subject == "wakes").unwrap();
    assert_eq!(wakes.severity, Severity::Good, "{wakes:?}");
    assert_eq!(proxy.accepted(), others + 1, "the one that listens");
    let listens = proxy.accepted();
    let guard = holder.lock("till").acquire().await.unwrap();
    let lock = waiter.lock("till");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    // Long enough for its attempts, but not for the next check of the connection.
    tokio::time::sleep(lease() / 6).await;
    for way in [Way::ToServer, Way::ToClient] {
        proxy.set_connection(listens, way, Mode::Drop).unwrap();
    }
    guard.release().await.unwrap();
    let next = soon("the waiter's turn", waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
}

/// The address leads to another server after a failover, and the old one still answers on the connections that are open. The
/// one that listens would hear nothing for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_woken_by_the_server_that_its_address_leads_to_now() {
    let (first, second) = (server(), server());
    // So long that the end of the holder's lease does not wake the waiter within this test.
    let patient = async |url: String| {
        let builder = Client::builder().lease(lease() * 100);
        let builder = builder.response_timeout(lease() / 2);
        let builder = builder.publish_process_info(false);
        builder.connect(&url).await.unwrap()
    };
    let holder = patient(second.url()).await;
    let proxy = Proxy::start_opaque(first.addr()).unwrap();
    let waiter = patient(first.url_at(proxy.addr())).await;
    let findings = waiter.diagnose().await.unwrap();
    let wakes = findings.iter().find(|one| one.subject == "wakes").unwrap();
    assert_eq!(wakes.severity, Severity::Good, "{wakes:?}");
    proxy.set_upstream(second.addr());
    for setting in [
        "ALTER SYSTEM SET default_transaction_read_only = on",
        "SELECT pg_reload_conf()",
    ] {
        first.query(setting).unwrap();
    }
    until(&first, "SHOW default_transaction_read_only", "on").await;
    let guard = holder.lock("till").acquire().await.unwrap();
    let waiting = tokio::spawn(waiter.lock("till").acquire());
    let listens = "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'LISTEN%'";
    until(&second, listens, "t").await;
    guard.release().await.unwrap();
    let next = soon("the waiter's turn", waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
}

/// A call that is dropped keeps its slot on the connection until the server has answered, and here the server never does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_were_dropped_on_a_silent_connection_do_not_hold_up_the_next_one() {
    let server = server();
    let proxy = Proxy::start_opaque(server.addr()).unwrap();
    let a = client(&server.url_at(proxy.addr())).await;
    let lock = a.lock("till");
    lock.acquire().await.unwrap().release().await.unwrap();
    for connection in 1..=proxy.accepted() {
        for way in [Way::ToServer, Way::ToClient] {
            // One that has ended is no silent connection.
            let _ = proxy.set_connection(connection, way, Mode::Drop);
        }
    }
    // As many as are in flight on one connection at most.
    for _ in 0..16 {
        let dropped = tokio::time::timeout(lease() / 100, lock.inspect()).await;
        dropped.expect_err("nobody answers");
    }
    let again = async {
        loop {
            match lock.try_acquire().await {
                Ok(guard) => break guard,
                Err(error) => assert!(error.is_retryable() || error.outcome_unknown(), "{error}"),
            }
        }
    };
    let guard = soon("the next connection", again).await;
    guard.expect("it is free").release().await.unwrap();
}

/// More calls than a connection has statements in flight are begun, kept and not polled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_not_polled_hold_up_no_other_call() {
    let server = server();
    let a = client(&server.url()).await;
    let mut kept = Vec::new();
    for n in 0..17 {
        let mut call = Box::pin(a.lock(&format!("kept:{n}")).acquire());
        drop(futures_util::poll!(call.as_mut()));
        kept.push(call);
    }
    // Two response timeouts.
    let other = tokio::time::timeout(lease() * 2 / 3, a.lock("other").acquire());
    let guard = other.await.expect("it waits for a slot").unwrap();
    guard.release().await.unwrap();
    drop(kept);
}

/// Extensions have the connection of the renewals. As many as it has statements in flight are begun, kept and not polled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extensions_that_are_not_polled_hold_up_no_renewal() {
    let server = server();
    let a = client(&server.url()).await;
    let guard = a.lock("till").acquire().await.unwrap();
    // The first one asks on another connection, and opens this one.
    let renewing =
        "SELECT count(*) >= 2 FROM pg_stat_activity WHERE query LIKE 'WITH ours AS MATERIALIZED%'";
    soon("the connection of the renewals", async {
        while server.query(renewing).unwrap() != "t" {
            guard.extend(lease()).await.unwrap();
        }
    })
    .await;
    let mut kept = Vec::new();
    for _ in 0..16 {
        let mut extension = Box::pin(guard.extend(lease()));
        drop(futures_util::poll!(extension.as_mut()));
        kept.push(extension);
    }
    let lost = tokio::time::timeout(lease() * 2, guard.lost()).await;
    lost.expect_err("it is not renewed");
    assert!(guard.is_held());
    drop(kept);
    guard.release().await.unwrap();
}

/// Somebody's session, which keeps rows.
async fn session(url: &str) -> tokio_postgres::Client {
    let (session, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    session
}

fn assert_held(guards: &[Guard]) {
    let lost: Vec<_> = guards.iter().filter(|guard| !guard.is_held()).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

/// A client holds locks of every kind, and somebody's transaction keeps the row of one of each. All of them are renewed
/// together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_kept_delays_its_own_lock_only() {
    let server = server();
    let a = client(&server.url()).await;
    let holds = async |name: &str| -> [Guard; 4] {
        let semaphore = a.semaphore(&format!("permits:{name}"));
        semaphore.set_permits(1).await.unwrap();
        let sides = a.read_write_lock(&format!("sides:{name}"));
        let plain = a.lock(&format!("plain:{name}")).acquire();
        let fair = a.fair_lock(&format!("fair:{name}")).acquire();
        [
            plain.await.unwrap(),
            fair.await.unwrap(),
            sides.read().acquire().await.unwrap(),
            semaphore.acquire().await.unwrap().into(),
        ]
    };
    let kept = holds("kept").await;
    let mut others = Vec::new();
    for n in 0..5 {
        others.extend(holds(&format!("other:{n}")).await);
    }
    let mut session = session(&server.url()).await;
    let transaction = session.transaction().await.unwrap();
    let rows = "SELECT 1 FROM tidelock_locks WHERE name LIKE '%:kept' FOR UPDATE";
    assert_eq!(transaction.query(rows, &[]).await.unwrap().len(), 4);
    for guard in &kept {
        let reason = soon("the loss of the one", guard.lost()).await;
        assert_eq!(reason, LostReason::Expired);
    }
    // Others have been renewed since, and go on.
    tokio::time::sleep(lease()).await;
    assert_held(&others);
    transaction.rollback().await.unwrap();
    let next = soon("the row", a.lock("plain:kept").acquire()).await;
    next.unwrap().release().await.unwrap();
    for other in others {
        other.release().await.unwrap();
    }
}

/// A short request of another client locks the row of a lock at the moment of its renewal, each time. So it does with the row of
/// a semaphore of which the client holds more permits than there is time to wait for the row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_locked_again_and_again_is_renewed_in_between() {
    const PERMITS: u32 = 80;
    let server = server();
    let a = client(&server.url()).await;
    let mut held = vec![a.lock("till").acquire().await.unwrap()];
    let semaphore = a.semaphore("permits");
    semaphore.set_permits(PERMITS).await.unwrap();
    for _ in 0..PERMITS {
        held.push(semaphore.acquire().await.unwrap().into());
    }
    let mut busy = tokio::task::JoinSet::new();
    // One of them always waits for the rows, so they are never free. All lock them in one order: otherwise two block each
    // other until the server finds the deadlock, and until then nobody can renew.
    for _ in 0..4 {
        let mut session = session(&server.url()).await;
        busy.spawn(async move {
            let rows = "SELECT 1 FROM tidelock_locks ORDER BY name FOR NO KEY UPDATE";
            while !session.is_closed() {
                let transaction = session.transaction().await.unwrap();
                transaction.batch_execute(rows).await.unwrap();
                tokio::time::sleep(lease() / 300).await;
                transaction.commit().await.unwrap();
            }
        });
    }
    tokio::time::sleep(lease() * 2).await;
    assert_held(&held);
    busy.shutdown().await;
    for guard in held {
        guard.release().await.unwrap();
    }
}

/// A client waits for locks whose rows somebody's transaction keeps. Its looks at their queues wait for the rows, and its
/// renewals do not wait behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_for_rows_that_are_kept_cost_no_other_lock() {
    const NAMES: usize = 20;
    let server = server();
    let patient = Client::builder().lease(lease() * 100);
    let a = patient.connect(&server.url()).await.unwrap();
    let b = client(&server.url()).await;
    let names = || (0..NAMES).map(|n| format!("stock:{n}"));
    let (mut taken, mut waiting) = (Vec::new(), Vec::new());
    for name in names() {
        taken.push(a.fair_lock(&name).acquire().await.unwrap());
    }
    for name in names() {
        waiting.push(tokio::spawn(b.fair_lock(&name).acquire()));
    }
    let queued = "SELECT count(*) FROM tidelock_locks_waiters";
    until(&server, queued, &NAMES.to_string()).await;
    let mut held = Vec::new();
    for n in 0..5 {
        held.push(b.lock(&format!("other:{n}")).acquire().await.unwrap());
    }
    let mut session = session(&server.url()).await;
    let transaction = session.transaction().await.unwrap();
    let rows = "SELECT 1 FROM tidelock_locks WHERE name LIKE 'stock:%' FOR UPDATE";
    let rows = transaction.query(rows, &[]).await.unwrap();
    assert_eq!(rows.len(), NAMES);
    tokio::time::sleep(lease() * 3).await;
    assert_held(&held);
    transaction.rollback().await.unwrap();
    for guard in taken {
        guard.release().await.unwrap();
    }
    for next in waiting {
        // A wait whose requests have no answer for a lease ends with an error.
        if let Ok(next) = soon("its turn", next).await.unwrap() {
            next.release().await.unwrap();
        }
    }
    for guard in held {
        guard.release().await.unwrap();
    }
}

/// Each connect deletes the details of processes that have ended. Somebody's transaction keeps those of one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_details_of_a_process_that_has_ended_hold_up_no_connect() {
    let server = server();
    let _a = client(&server.url()).await;
    let ended = "INSERT INTO tidelock_locks_clients (client, host, pid, program, since, expires) \
        SELECT client, 'h', 1, 'p', 0, clock_timestamp() - interval '1 hour' FROM unnest(ARRAY['gone', 'kept']) AS client";
    server.query(ended).unwrap();
    let mut session = session(&server.url()).await;
    let transaction = session.transaction().await.unwrap();
    let row = "SELECT 1 FROM tidelock_locks_clients WHERE client = 'kept' FOR UPDATE";
    assert_eq!(transaction.query(row, &[]).await.unwrap().len(), 1);
    let b = tokio::time::timeout(lease() / 2, client(&server.url())).await;
    let b = b.expect("connected");
    let guard = b.lock("till").acquire().await.unwrap();
    guard.release().await.unwrap();
    let left = "SELECT string_agg(client, ' ') FROM tidelock_locks_clients WHERE expires < clock_timestamp()";
    assert_eq!(server.query(left).unwrap(), "kept");
    transaction.rollback().await.unwrap();
    let _c = client(&server.url()).await;
    assert_eq!(server.query(left).unwrap(), "");
}

/// The server logs clients in and answers them, but a row is kept, and each request for it is given up with its
/// connection.
async fn leaves_no_session(server: &PostgresServer, builder: ClientBuilder, url: &str) {
    let builder = builder.lease(lease() * 100).publish_process_info(false);
    let short = builder.clone().response_timeout(lease() / 6);
    let short = short.connect_within(lease() * 4);
    let holder = builder.connect(url).await.unwrap();
    let operator = short.connect(url).await.unwrap().lock("stock");
    let guard = holder.lock("stock").acquire().await.unwrap();
    let mut config = tokio_postgres::Config::new();
    config.host_path(server.dir()).port(server.port());
    config.user("postgres").dbname("postgres");
    let (mut session, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    let transaction = session.transaction().await.unwrap();
    let row = "SELECT 1 FROM tidelock_locks FOR UPDATE";
    transaction.batch_execute(row).await.unwrap();
    for _ in 0..16 {
        operator.force_release().await.unwrap_err();
    }
    let ours = "FROM pg_stat_activity WHERE application_name = 'tidelock'";
    until(server, &format!("SELECT count(*) <= 8 {ours}"), "t").await;
    until(
        server,
        &format!("SELECT count(*) {ours} AND wait_event_type = 'Lock'"),
        "0",
    )
    .await;
    transaction.rollback().await.unwrap();
    let held = "SELECT owner IS NOT NULL FROM tidelock_locks";
    assert_eq!(server.query(held).unwrap(), "t", "no late release");
    guard.release().await.unwrap();
}

/// Nobody has the lock, but another transaction keeps its row. If that is only for a moment, a try must not take it for a holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_asks_again_while_a_row_is_kept() {
    let server = server();
    let client = client(&server.url()).await;
    let lock = client.lock("stock");
    lock.acquire().await.unwrap().release().await.unwrap();
    let mut session = session(&server.url()).await;
    let transaction = session.transaction().await.unwrap();
    let row = "SELECT 1 FROM tidelock_locks FOR UPDATE";
    transaction.batch_execute(row).await.unwrap();
    let begun = std::time::Instant::now();
    assert!(lock.try_acquire().await.unwrap().is_none());
    // The server waits for 40 ms each time.
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(160), "{waited:?}");
    transaction.rollback().await.unwrap();
    let guard = lock.try_acquire().await.unwrap().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_were_given_up_leave_no_session() {
    let server = server();
    leaves_no_session(&server, Client::builder(), &server.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_were_given_up_leave_no_session_over_tls() {
    let tls = Tls {
        cert: ServerCert::Good,
        client_certs: false,
    };
    let server = PostgresServer::start_tls(tls).unwrap();
    let builder = Client::builder().tls_ca(&server.certs().unwrap().ca);
    let url = format!("{}?sslmode=verify-full", server.url());
    leaves_no_session(&server, builder, &url).await;
}

/// A server that has become a standby answers each request, and each answer ends a connection. Its session does not stay until the
/// response timeout has passed: clients that ask again and again would fill the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_were_given_up_with_nothing_in_flight_end_at_once() {
    let server = server();
    // Longer than this test waits.
    let builder = Client::builder().response_timeout(lease() * 100);
    let builder = builder.publish_process_info(false);
    let a = builder.connect(&server.url()).await.unwrap();
    for setting in [
        "ALTER SYSTEM SET default_transaction_read_only = on",
        "SELECT pg_reload_conf()",
    ] {
        server.query(setting).unwrap();
    }
    until(&server, "SHOW default_transaction_read_only", "on").await;
    for _ in 0..16 {
        a.lock("stock").force_release().await.unwrap_err();
    }
    let ours = "SELECT count(*) <= 4 FROM pg_stat_activity WHERE application_name = 'tidelock'";
    until(&server, ours, "t").await;
}
