//! Tables, privileges, and the cost of each verb.

use std::convert::Infallible;

use testkit::servers::PostgresServer;
use tidelock::once::Slot;
use tidelock::{Client, ErrorKind, LostReason};

use super::{client, grants, lease, server, soon, until};

/// The number of our statements that the server has run, by its log.
fn statements(server: &PostgresServer) -> usize {
    let log = server.log();
    let ours = ["execute <unnamed>", "statement: EXECUTE tidelock_"];
    ours.iter().map(|ours| log.matches(ours).count()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_verb_costs_one_statement() {
    let server = server();
    server
        .query("ALTER SYSTEM SET log_statement = 'all'")
        .unwrap();
    server.query("SELECT pg_reload_conf()").unwrap();
    let a = Client::builder()
        .publish_process_info(false)
        .connect(&server.url())
        .await
        .unwrap();
    let lock = a.lock("till");
    lock.acquire().await.unwrap().release().await.unwrap();
    let before = statements(&server);
    let guard = lock.acquire().await.unwrap();
    assert_eq!(statements(&server) - before, 1, "acquire");
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(statements(&server) - before, 2, "a refusal");
    guard
        .extend(std::time::Duration::from_secs(60))
        .await
        .unwrap();
    assert_eq!(statements(&server) - before, 3, "a renewal");
    guard.release().await.unwrap();
    assert_eq!(statements(&server) - before, 4, "a release");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_that_come_first_together_make_one_table() {
    let server = server();
    let mut coming = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let url = server.url();
        coming.spawn(async move { client(&url).await });
    }
    let clients = coming.join_all().await;
    let guard = clients[0].lock("a").acquire().await.unwrap();
    assert!(clients[1].lock("a").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
}

/// A URL with a wrong database or table is an error. It must not create an empty store, whose locks would exclude
/// nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_makes_no_table() {
    let server = server();
    let look = || Client::builder().publish_process_info(false).create(false);
    let error = look().connect(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    assert!(error.to_string().contains("tidelock_locks"), "{error}");
    let count = "SELECT count(*) FROM pg_class WHERE relname LIKE 'tidelock%'";
    assert_eq!(server.query(count).unwrap(), "0");
    let guard = client(&server.url())
        .await
        .lock("a")
        .acquire()
        .await
        .unwrap();
    let viewer = look().connect(&server.url()).await.unwrap();
    assert!(viewer.lock("a").inspect().await.unwrap().is_locked());
    guard.release().await.unwrap();
}

/// A user without the privilege to create tables gets an error with the SQL to run. A user with exactly the named
/// privileges can lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_that_are_named_are_enough() {
    let server = server();
    server
        .query("REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE clerk LOGIN")
        .unwrap();
    let url = server.url().replace("postgres@", "clerk@");
    let error = Client::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    let text = error.to_string();
    let sql = &text[text.find("SELECT pg_advisory").unwrap()..];
    server.query(sql).unwrap();
    server.query(&grants(None)).unwrap();
    let a = client(&url).await;
    let guard = a.lock("till").fenced().acquire().await.unwrap();
    assert!(a.lock("till").inspect().await.unwrap().is_locked());
    assert_eq!(a.list("*").limit(10).await.unwrap(), ["till"]);
    guard.release().await.unwrap();
    assert!(!a.diagnose().await.unwrap().is_empty());
    // The first mark makes its table.
    let job = a.once("report").slot(Slot::id("Monday"));
    let refused = job.run(|_| async { Ok::<_, Infallible>(()) }).await;
    let text = refused.unwrap_err().to_string();
    let sql = &text[text.find("SELECT pg_advisory").expect(&text)..];
    server.query(sql).unwrap();
    server.query(&grants(Some("elections"))).unwrap();
    real_servers::runs_once(&a, "report").await.unwrap();
    real_servers::leads(&a, "billing").await.unwrap();
    let marks = server.query("SELECT count(*) > 0 FROM tidelock_locks_marks");
    assert_eq!(marks.unwrap(), "t");
}

/// The server is replaced by an empty one, as by a restore that brings no tables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_tables_are_a_loss_and_no_end() {
    let server = server();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let held = a.lock("till").acquire().await.unwrap();
    let fair = a.fair_lock("stock").acquire().await.unwrap();
    let writes = a.read_write_lock("ledger").write().acquire().await;
    let writes = writes.unwrap();
    let waiting = tokio::spawn(b.lock("till").acquire());
    let queued = tokio::spawn(b.fair_lock("stock").acquire());
    let reads = tokio::spawn(b.read_write_lock("ledger").read().acquire());
    let waiters = "SELECT (SELECT count(*) FROM tidelock_locks_waiters) \
        + (SELECT count(*) FROM tidelock_locks_sides WHERE held_as IS NULL)";
    until(&server, waiters, "2").await;
    server
        .query(
            "DROP TABLE tidelock_locks, tidelock_locks_clients, tidelock_locks_withdrawn, \
               tidelock_locks_waiters, tidelock_locks_sides CASCADE; \
             DROP SEQUENCE tidelock_locks_tokens",
        )
        .unwrap();
    for guard in [&held, &fair, &writes] {
        assert_eq!(soon("a loss", guard.lost()).await, LostReason::Taken);
    }
    for waiting in [waiting, queued, reads] {
        let guard = soon("its turn", waiting).await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
    let again = a.lock("till").acquire().await.unwrap();
    assert!(b.lock("till").inspect().await.unwrap().is_locked());
    again.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_table_that_is_missing_is_made_again() {
    let server = server();
    let old = client(&server.url()).await;
    let first = old.lock("till").acquire().await.unwrap();
    first.release().await.unwrap();
    for missing in [
        "TABLE tidelock_locks",
        "TABLE tidelock_locks_withdrawn",
        "TABLE tidelock_locks_clients",
        "SEQUENCE tidelock_locks_tokens",
    ] {
        // One client has run for a while, another has just connected.
        for is_new in [false, true] {
            server.query(&format!("DROP {missing}")).unwrap();
            let new = if is_new {
                Some(client(&server.url()).await)
            } else {
                None
            };
            let lock = new.as_ref().unwrap_or(&old).lock("till");
            let guard = lock.acquire().await;
            let guard = guard.unwrap_or_else(|error| panic!("without {missing}: {error}"));
            let seen = lock.inspect().await;
            let seen = seen.unwrap_or_else(|error| panic!("without {missing}: {error}"));
            assert!(seen.is_locked());
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_make_a_missing_table_is_told_which() {
    let server = server();
    client(&server.url()).await;
    let grants = grants(None);
    server.query(&super::clerk(&grants)).unwrap();
    let clerk = client(&server.url().replace("postgres@", "clerk@")).await;
    let lock = clerk.lock("till");
    for table in ["tidelock_locks", "tidelock_locks_withdrawn"] {
        lock.acquire().await.unwrap().release().await.unwrap();
        server.query(&format!("DROP TABLE {table}")).unwrap();
        let error = lock.acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("lacks {table},")), "{text}");
        let sql = &text[text.find("SELECT pg_advisory").expect(&text)..];
        server.query(sql).unwrap();
        server.query(&grants).unwrap();
    }
    lock.acquire().await.unwrap().release().await.unwrap();
}

/// Only a grant needs the sequence, and the table of the waiters too if it is not theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_released_although_a_table_is_missing_that_only_a_grant_needs() {
    let server = server();
    let a = client(&server.url()).await;
    let sides = a.read_write_lock("ledger");
    for missing in [
        "SEQUENCE tidelock_locks_tokens",
        "TABLE tidelock_locks_waiters",
    ] {
        let turn = a.fair_lock("stock").acquire().await.unwrap();
        let reads = [
            sides.read().acquire().await.unwrap(),
            sides.read().acquire().await.unwrap(),
        ];
        server.query(&format!("DROP {missing}")).unwrap();
        for guard in reads.into_iter().chain([turn]) {
            let released = guard.release().await;
            released.unwrap_or_else(|error| panic!("without {missing}: {error}"));
        }
        let left = "SELECT (SELECT count(*) FROM tidelock_locks_sides) \
            + (SELECT count(owner) FROM tidelock_locks)";
        assert_eq!(server.query(left).unwrap(), "0", "without {missing}");
    }
}

/// Its looks, which would make the table again, are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_for_a_side_leaves_nothing_although_another_table_is_missing() {
    let server = server();
    let a = client(&server.url()).await;
    let sides = a.read_write_lock("ledger");
    let writer = sides.write().acquire().await.unwrap();
    let queues = grants(Some("fair and read-write locks"));
    let rights = format!("{}; {queues}", grants(None));
    server.query(&super::clerk(&rights)).unwrap();
    let clerk = client(&server.url().replace("postgres@", "clerk@")).await;
    let waiting = tokio::spawn(clerk.read_write_lock("ledger").read().acquire());
    let places = "SELECT count(*) FROM tidelock_locks_sides WHERE held_as IS NULL";
    until(&server, places, "1").await;
    server.query("DROP TABLE tidelock_locks_waiters").unwrap();
    waiting.abort();
    until(&server, places, "0").await;
    writer.release().await.unwrap();
}

/// Only its owner may replace the function of the fence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_table_is_made_by_a_user_who_does_not_own_the_fence() {
    let server = server();
    client(&server.url()).await.close(lease()).await;
    let rights = format!("{}; GRANT CREATE ON SCHEMA public TO clerk", grants(None));
    server.query(&super::clerk(&rights)).unwrap();
    let clerk = client(&server.url().replace("postgres@", "clerk@")).await;
    let lock = clerk.lock("till").fenced();
    for missing in [
        "TABLE tidelock_locks_withdrawn",
        "SEQUENCE tidelock_locks_tokens",
    ] {
        server.query(&format!("DROP {missing}")).unwrap();
        let guard = lock.acquire().await;
        let guard = guard.unwrap_or_else(|error| panic!("without {missing}: {error}"));
        let token = guard.token().to_string();
        let fence = format!("SELECT tidelock_locks_fence('till', {token})");
        assert_eq!(server.query_as("clerk", &fence).unwrap(), token);
        guard.release().await.unwrap();
    }
}

/// The second one has seen that all is missing, and the first one makes it before the second one has its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_users_who_come_first_together_make_one_table() {
    let server = server();
    let rights = "CREATE ROLE visitor LOGIN; GRANT CREATE ON SCHEMA public TO clerk";
    server.query(&super::clerk(rights)).unwrap();
    let url = |user: &str| server.url().replace("postgres@", &format!("{user}@"));
    let error = Client::connect(&url("visitor")).await.unwrap_err();
    let text = error.to_string();
    let sql = &text[text.find("SELECT pg_advisory").expect(&text)..];
    let (first, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let turn = "SELECT pg_advisory_lock(hashtext('tidelock_locks'))";
    first.batch_execute(turn).await.unwrap();
    let clerk = url("clerk");
    let second = tokio::spawn(async move { Client::connect(&clerk).await });
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    until(&server, waits, "1").await;
    for statements in [sql, &*grants(None), "SELECT pg_advisory_unlock_all()"] {
        first.batch_execute(statements).await.unwrap();
    }
    let second = soon("the connect", second).await.unwrap().unwrap();
    let guard = second.lock("till").fenced().acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_url_that_cannot_be_meant_is_refused_without_its_password() {
    for (url, kind) in [
        ("postgres://u:secret@127.0.0.1:1/db", ErrorKind::Unavailable),
        (
            "postgres://u:secret@h:notaport/db",
            ErrorKind::InvalidOptions,
        ),
        (
            "postgres://u:secret@h/db?table=a;drop",
            ErrorKind::InvalidOptions,
        ),
        (
            "postgres://u:secret@h/db?sslmode=prefer",
            ErrorKind::InvalidOptions,
        ),
    ] {
        let error = Client::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_table_is_another_set_of_locks() {
    let server = server();
    let a = client(&server.url()).await;
    let b = client(&format!("{}?table=other_locks", server.url())).await;
    let one = a.lock("till").acquire().await.unwrap();
    let two = b.lock("till").acquire().await.unwrap();
    one.release().await.unwrap();
    two.release().await.unwrap();
    assert_eq!(
        server.query("SELECT count(*) FROM other_locks").unwrap(),
        "1"
    );
}

/// Inserts the rows of 5,000 names that nobody has used for two hours.
fn insert_old_names(server: &PostgresServer) {
    server
        .query(
            "INSERT INTO tidelock_locks (name, expires, token) \
             SELECT 'order:' || n, clock_timestamp() - interval '2 hours', 0 FROM generate_series(1, 5000) AS n",
        )
        .unwrap();
}

const ROWS: &str = "SELECT count(*) FROM tidelock_locks";

/// More than one statement deletes. A service that locks each order once leaves as many within minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rows_of_many_old_names_are_all_deleted() {
    let server = server();
    client(&server.url()).await.close(lease()).await;
    insert_old_names(&server);
    // The first renewal, which opens another connection, comes after the end of this test.
    let quiet = Client::builder().lease(lease() * 100);
    let quiet = quiet.publish_process_info(false);
    let a = quiet.connect(&server.url()).await.unwrap();
    let guard = a.lock("young").acquire().await.unwrap();
    until(&server, ROWS, "1").await;
    assert!(guard.is_held());
    // The connection of the sweep has gone.
    let ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidelock'";
    until(&server, ours, "1").await;
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_client_at_a_time_deletes_old_rows() {
    let server = server();
    client(&server.url()).await.close(lease()).await;
    insert_old_names(&server);
    let (other, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let sweeps = "SELECT pg_advisory_lock(hashtext('tidelock_locks'), hashtext('sweep'))";
    other.batch_execute(sweeps).await.unwrap();
    let quiet = Client::builder().publish_process_info(false);
    let _a = quiet.clone().connect(&server.url()).await.unwrap();
    assert_eq!(server.query(ROWS).unwrap(), "5000");
    other
        .batch_execute("SELECT pg_advisory_unlock_all()")
        .await
        .unwrap();
    let _b = quiet.connect(&server.url()).await.unwrap();
    until(&server, ROWS, "0").await;
}

/// There the details of a client are kept without its user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tables_of_an_earlier_tidelock_have_no_users() {
    let server = server();
    client(&server.url()).await.close(lease()).await;
    server
        .query("ALTER TABLE tidelock_locks_clients DROP COLUMN os_user")
        .unwrap();
    let a = Client::builder().os_user("deploy");
    let a = a.connect(&server.url()).await.unwrap();
    until(&server, "SELECT count(*) FROM tidelock_locks_clients", "1").await;
    let _guard = a.lock("till").acquire().await.unwrap();
    let seen = a.lock("till").inspect().await.unwrap();
    let client = seen.holders[0].client.as_ref().unwrap();
    assert_eq!((client.pid, &client.user), (std::process::id(), &None));
}
