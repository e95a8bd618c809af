//! The sequence of the fencing tokens, raised while others draw from it.

use std::collections::BTreeSet;

use tidelock::{ErrorKind, FencingToken};

use super::{client, server, soon};

/// No token is given out twice, however close a raise comes to the sequence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_stay_unique_while_others_draw_them() {
    let server = server();
    let raiser = client(&server.url()).await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..3 {
        let lock = client(&server.url())
            .await
            .lock(&format!("ledger:{number}"))
            .fenced();
        tasks.spawn(async move {
            let mut tokens = Vec::new();
            for _ in 0..60 {
                let guard = lock.acquire().await.unwrap();
                tokens.push(guard.token());
                guard.release().await.unwrap();
            }
            tokens
        });
    }
    let other = raiser.lock("other").fenced();
    for _ in 0..60 {
        let newest = other
            .newest_token()
            .await
            .unwrap()
            .map_or(0, FencingToken::get);
        let wanted = FencingToken::new(newest + 3);
        assert!(other.raise_token(wanted).await.unwrap() >= wanted);
    }
    let tokens = soon("the turns", tasks.join_all()).await.concat();
    assert_eq!(tokens.iter().collect::<BTreeSet<_>>().len(), tokens.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raise_of_a_sequence_that_was_not_used_yet_counts() {
    let server = server();
    let ledger = client(&server.url()).await.lock("ledger").fenced();
    assert_eq!(ledger.newest_token().await.unwrap(), None);
    let wanted = FencingToken::new(2);
    assert_eq!(ledger.raise_token(wanted).await.unwrap(), wanted);
    let guard = ledger.acquire().await.unwrap();
    assert!(guard.token() >= wanted, "{}", guard.token());
    guard.release().await.unwrap();
}

/// A raise neither waits for a user's transaction with a fence nor makes it fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raise_passes_an_open_fence() {
    let server = server();
    let a = client(&server.url()).await;
    let (mut session, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let guard = a.lock("ledger").fenced().acquire().await.unwrap();
    let fence = guard.sql_fence().unwrap();
    let transaction = session.transaction().await.unwrap();
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&fence.name, &fence.token];
    transaction
        .execute(&fence.statement, &params)
        .await
        .unwrap();
    let ledger = a.lock("ledger").fenced();
    let raised = ledger.raise_token(FencingToken::new(9000));
    soon("the raise", raised).await.unwrap();
    transaction
        .execute(&fence.statement, &params)
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    guard.release().await.unwrap();
    assert!(ledger.acquire().await.unwrap().token().get() >= 9000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequence_that_ends_before_the_number_is_refused_and_left() {
    let server = server();
    let a = client(&server.url()).await;
    server
        .query("ALTER SEQUENCE tidelock_locks_tokens MAXVALUE 100")
        .unwrap();
    let ledger = a.lock("ledger").fenced();
    let error = ledger
        .raise_token(FencingToken::new(5000))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    assert!(error.to_string().contains("sequence"), "{error}");
    let guard = ledger.acquire().await.unwrap();
    assert!(guard.token().get() < 100, "the sequence goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_goes_between_two_pages_hides_no_other() {
    let server = server();
    let a = client(&server.url()).await;
    tidelock::testing::promises::mutex::a_name_that_goes_between_two_pages_hides_no_other(&a, 1001)
        .await;
}
