//! A fence in the user's own transaction.

use tidelock::AcquireOptions;
use tokio_postgres::NoTls;

use super::{LEASE, client, server, soon};

async fn session(url: &str) -> tokio_postgres::Client {
    let (session, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    session
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
    let guard = a.lock("stock:a").acquire().await.unwrap();
    let fence = guard.sql_fence().unwrap();
    let transaction = session.transaction().await.unwrap();
    transaction
        .execute(&fence.statement, &[&fence.name, &fence.token])
        .await
        .unwrap();
    transaction.execute(sell, &[]).await.unwrap();
    transaction.commit().await.unwrap();
    // The lock is taken from it, as after a freeze; it does not know, and goes on.
    a.lock("stock:a").force_release().await.unwrap();
    let next = a.lock("stock:a").acquire().await.unwrap();
    let transaction = session.transaction().await.unwrap();
    let error = transaction
        .execute(&fence.statement, &[&fence.name, &fence.token])
        .await
        .unwrap_err();
    let why = error.as_db_error().unwrap().message().to_owned();
    assert!(why.contains("given to somebody else"), "{why}");
    assert!(
        transaction.execute(sell, &[]).await.is_err(),
        "nothing more is done"
    );
    drop(transaction);
    assert_eq!(server.query("SELECT left_over FROM stock").unwrap(), "4");
    next.release().await.unwrap();
}

/// Nobody is given the lock while a transaction with its fence is open; its renewals and its release go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_waits_for_the_fence_of_the_last_holder() {
    let server = server();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let mut session = session(&server.url()).await;
    let guard = a.lock("stock:a").acquire().await.unwrap();
    let fence = guard.sql_fence().unwrap();
    let transaction = session.transaction().await.unwrap();
    transaction
        .execute(&fence.statement, &[&fence.name, &fence.token])
        .await
        .unwrap();
    tokio::time::sleep(LEASE * 3 / 2).await;
    assert!(guard.is_held(), "it is renewed under the fence");
    guard.release().await.unwrap();
    let short = AcquireOptions::new().wait(LEASE / 3);
    let refused = b.lock("stock:a").acquire_with(short).await;
    assert!(refused.unwrap_err().is_timeout());
    transaction.commit().await.unwrap();
    let next = soon("the next", b.lock("stock:a").acquire()).await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_store_without_transactions_has_no_fence() {
    let client = tidelock::Client::connect("memory:").await.unwrap();
    let guard = client.lock("a").acquire().await.unwrap();
    let error = guard.sql_fence().unwrap_err();
    assert_eq!(error.kind(), tidelock::ErrorKind::Unsupported);
}
