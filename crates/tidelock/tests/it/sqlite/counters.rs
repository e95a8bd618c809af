//! The token counter, which every user with write access to the file can change.

use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::types::Value;
use tidelock::{AcquireOptions, ErrorKind};

const LEASE: Duration = Duration::from_secs(30);

fn number(tool: &Connection, sql: &str) -> Value {
    tool.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// The attempt fails at once and changes nothing: nobody holds the lock, and the counter keeps its value.
#[tokio::test]
async fn t68_a_counter_without_a_next_token_is_refused_and_nothing_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let client = super::client(&file, LEASE).await;
    let lock = client.lock("ledger");
    lock.acquire().await.unwrap().release().await.unwrap();
    let tool = Connection::open(&file).unwrap();
    let patient = AcquireOptions::new().wait(Duration::from_secs(20));
    for value in [
        Value::Integer(i64::MAX),
        Value::Integer(-1),
        Value::Integer(i64::MIN),
        Value::Real(1.5),
        Value::Real(9.3e18),
        Value::Text("seven \u{1b}[2J".to_owned()),
        Value::Blob(vec![7]),
    ] {
        tool.execute("UPDATE counter SET token = ?1", [&value])
            .unwrap();
        let begun = Instant::now();
        for error in [
            lock.try_acquire().await.map(drop).unwrap_err(),
            lock.acquire_with(patient.clone())
                .await
                .map(drop)
                .unwrap_err(),
        ] {
            let said = error.to_string();
            assert_eq!(error.kind(), ErrorKind::WrongType, "{value:?}: {said}");
            assert!(
                said.contains("counter") && !said.contains('\u{1b}'),
                "{said}"
            );
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "waited");
        assert_eq!(number(&tool, "SELECT token FROM counter"), value);
        assert_eq!(
            number(&tool, "SELECT count(*) FROM locks"),
            Value::Integer(0)
        );
        assert!(!lock.inspect().await.unwrap().is_locked());
    }
    tool.execute("DELETE FROM counter", []).unwrap();
    let error = lock.try_acquire().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
}

/// A grant reserves as many tokens as are left: the very last token is issued, and only once.
#[tokio::test]
async fn t68_the_last_tokens_are_given_out_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let client = super::client(&file, LEASE).await;
    let lock = client.lock("ledger").fenced();
    let held = lock.acquire().await.unwrap();
    let tool = Connection::open(&file).unwrap();
    tool.execute("UPDATE counter SET token = ?1", [i64::MAX - 5])
        .unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move {
                let guard = lock.acquire().await?;
                let token = guard.token().get();
                guard.release().await?;
                tidelock::Result::Ok(token)
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    // The tokens that the first grant reserved are issued first, then the rest of the counter.
    held.release().await.unwrap();
    let mut tokens: Vec<tidelock::Result<u64>> = Vec::new();
    for task in tasks {
        tokens.push(task.await.unwrap());
    }
    let given: Vec<_> = tokens.iter().flatten().collect();
    let mut once = given.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), given.len(), "{tokens:?}");
    assert!(given.iter().all(|token| **token <= i64::MAX.unsigned_abs()));
    for refused in tokens.iter().filter_map(|token| token.as_ref().err()) {
        assert_eq!(refused.kind(), ErrorKind::WrongType, "{refused}");
    }
    assert!(!lock.inspect().await.unwrap().is_locked());
}
