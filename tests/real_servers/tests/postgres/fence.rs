//! The fencing check in the user's own transaction.

use std::time::{Duration, Instant};

use tidelock::{AcquireOptions, Client, ErrorKind, SqlFence};
use tokio_postgres::NoTls;

use super::{client, lease, server, soon};

async fn session(url: &str) -> tokio_postgres::Client {
    let (session, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    session
}

/// By its SQLSTATE alone, and by its message alone.
fn assert_refusal(error: &tokio_postgres::Error) {
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "TL001");
    assert!(SqlFence::is_refusal(Some(error.code().code()), ""));
    assert!(SqlFence::is_refusal(None, error.message()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_fails_once_another_has_the_lock() {
    let server = server();
    let a = client(&server.url()).await;
    let mut session = session(&server.url()).await;
    session
        .batch_execute("CREATE TABLE stock (item text PRIMARY KEY, left_over int); INSERT INTO stock VALUES ('a', 5)")
        .await
        .unwrap();
    let sell = "UPDATE stock SET left_over = left_over - 1 WHERE item = 'a'";
    let guard = a.lock("stock:a").fenced().acquire().await.unwrap();
    let fence = guard.sql_fence().unwrap();
    let transaction = session.transaction().await.unwrap();
    transaction
        .execute(&fence.statement, &[&fence.name, &fence.token])
        .await
        .unwrap();
    transaction.execute(sell, &[]).await.unwrap();
    transaction.commit().await.unwrap();
    // An operator takes the lock away, as if the lease had ended during a freeze. The holder does not know and
    // continues.
    a.lock("stock:a").force_release().await.unwrap();
    let next = a.lock("stock:a").acquire().await.unwrap();
    let transaction = session.transaction().await.unwrap();
    let error = transaction
        .execute(&fence.statement, &[&fence.name, &fence.token])
        .await
        .unwrap_err();
    let why = error.as_db_error().unwrap().message().to_owned();
    assert!(why.contains("given to somebody else"), "{why}");
    assert_refusal(&error);
    assert!(
        transaction.execute(sell, &[]).await.is_err(),
        "nothing more is done"
    );
    drop(transaction);
    assert_eq!(server.query("SELECT left_over FROM stock").unwrap(), "4");
    next.release().await.unwrap();
}

/// Nobody is granted the lock while a transaction with its fencing check is open. Renewals and the release still work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_waits_for_the_fence_of_the_last_holder() {
    let server = server();
    let a = client(&server.url()).await;
    // A wait that ends blames the server if a request has been without an answer for a quarter of the response timeout.
    let b = Client::builder()
        .lease(lease())
        .response_timeout(lease() * 6);
    let b = b.connect(&server.url()).await.unwrap();
    let mut session = session(&server.url()).await;
    let guard = a.lock("stock:a").fenced().acquire().await.unwrap();
    let fence = guard.sql_fence().unwrap();
    let transaction = session.transaction().await.unwrap();
    transaction
        .execute(&fence.statement, &[&fence.name, &fence.token])
        .await
        .unwrap();
    tokio::time::sleep(lease() * 3 / 2).await;
    assert!(guard.is_held(), "it is renewed under the fence");
    guard.release().await.unwrap();
    let short = AcquireOptions::new().wait(lease() * 4 / 3);
    let refused = b.lock("stock:a").acquire_with(short).await;
    assert!(refused.unwrap_err().is_timeout());
    transaction.commit().await.unwrap();
    let next = soon("the next", b.lock("stock:a").acquire()).await.unwrap();
    next.release().await.unwrap();
}

/// Nobody else can have the lock while it is held. A request that waited for the fence nevertheless would hold up the other
/// requests of its client, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_for_a_held_lock_does_not_wait_for_its_fence() {
    let server = server();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let mut session = session(&server.url()).await;
    let guard = a.lock("stock:a").fenced().acquire().await.unwrap();
    let fence = guard.sql_fence().unwrap();
    let transaction = session.transaction().await.unwrap();
    transaction
        .execute(&fence.statement, &[&fence.name, &fence.token])
        .await
        .unwrap();
    let lock = b.lock("stock:a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    tokio::time::sleep(lease() / 2).await;
    let log = server.log();
    assert!(!log.contains("lock timeout"), "{log}");
    assert!(guard.is_held() && !waiting.is_finished());
    transaction.commit().await.unwrap();
    guard.release().await.unwrap();
    let next = soon("the waiter's turn", waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_store_without_transactions_has_no_fence() {
    let client = tidelock::Client::connect("memory:").await.unwrap();
    let guard = client.lock("a").fenced().acquire().await.unwrap();
    let error = guard.sql_fence().unwrap_err();
    assert_eq!(error.kind(), tidelock::ErrorKind::Unsupported);
}

/// A sequence that is exhausted, or that somebody has set back to a smaller value: the attempt is refused, and nobody
/// holds the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t68_a_sequence_without_a_next_token_is_refused_and_nothing_is_taken() {
    let server = server();
    let client = client(&server.url()).await;
    let lock = client.lock("stock").fenced();
    lock.acquire().await.unwrap().release().await.unwrap();
    let set = |value: i64| {
        let statement = format!("SELECT setval('tidelock_locks_tokens', {value})");
        server.query(&statement).unwrap();
    };
    // A grant may consume two numbers.
    set(i64::MAX - 2);
    let last = lock.acquire().await.unwrap();
    let token = last.token().get();
    let end = i64::MAX.unsigned_abs();
    assert!((end - 1..=end).contains(&token), "{token}");
    last.release().await.unwrap();
    let patient = AcquireOptions::new().wait(Duration::from_secs(20));
    let begun = Instant::now();
    for error in [
        lock.try_acquire().await.map(drop).unwrap_err(),
        lock.acquire_with(patient).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        assert!(error.to_string().contains("sequence"), "{error}");
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "waited");
    assert!(!lock.inspect().await.unwrap().is_locked());
    server
        .query("ALTER SEQUENCE tidelock_locks_tokens MINVALUE -1000 RESTART -10")
        .unwrap();
    // The sequence still counts up, but from a smaller value. A smaller token must never be granted.
    let short = AcquireOptions::new().wait(Duration::from_millis(300));
    lock.acquire_with(short).await.map(drop).unwrap_err();
    super::until(
        &server,
        "SELECT count(*) FROM tidelock_locks WHERE owner IS NOT NULL AND expires > now()",
        "0",
    )
    .await;
}

/// Also when the row was deleted: a token that is not known is not the newest. A transaction that rolls back to a
/// savepoint goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_fence_has_an_sqlstate_of_its_own_and_leaves_a_savepoint() {
    let server = server();
    let a = client(&server.url()).await;
    let mut session = session(&server.url()).await;
    let guard = a.lock("ledger").fenced().acquire().await.unwrap();
    let fence = guard.sql_fence().unwrap();
    server.query("DELETE FROM tidelock_locks").unwrap();
    let mut transaction = session.transaction().await.unwrap();
    let savepoint = transaction.savepoint("attempt").await.unwrap();
    let late = savepoint
        .execute(&fence.statement, &[&fence.name, &fence.token])
        .await;
    assert_refusal(&late.unwrap_err());
    savepoint.rollback().await.unwrap();
    transaction
        .execute("CREATE TABLE notes (text text)", &[])
        .await
        .unwrap();
    let other = transaction.execute("INSERT INTO notes VALUES (1/0)", &[]);
    let error = other.await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert!(!SqlFence::is_refusal(
        Some(error.code().code()),
        error.message()
    ));
}

/// A database with the tables of an older version gets the function at the next connect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_is_missing_is_created() {
    let server = server();
    drop(client(&server.url()).await);
    server
        .query("DROP FUNCTION tidelock_locks_fence(text, bigint)")
        .unwrap();
    let a = client(&server.url()).await;
    let guard = a.lock("ledger").fenced().acquire().await.unwrap();
    let fence = guard.sql_fence().unwrap();
    let session = session(&server.url()).await;
    session
        .execute(&fence.statement, &[&fence.name, &fence.token])
        .await
        .unwrap();
}
