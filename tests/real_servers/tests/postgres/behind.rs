//! A sequence of the fencing tokens that is behind the rows: on a logical replica, and after a restore of the tables alone.

use testkit::servers::PostgresServer;
use tidelock::{Client, ErrorKind, FencingToken, Severity};

use super::{clerk, client, grants, server, until};

const LAST: &str = "SELECT last_value FROM tidelock_locks_tokens";

/// A server on which locks of these names were held, and the client that held them.
async fn used(names: &[&str]) -> (PostgresServer, Client) {
    let server = server();
    let a = client(&server.url()).await;
    for name in names {
        let guard = a.lock(name).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    (server, a)
}

/// Sets the sequence to one: the rows were copied, and it was not.
fn fall_behind(server: &PostgresServer) {
    let set = "SELECT setval('tidelock_locks_tokens', 1)";
    assert_eq!(server.query(set).unwrap(), "1");
}

/// A turn in each kind of lock. Returns the tokens, those of one name next to each other and in the order of the grants.
async fn tokens(a: &Client) -> Vec<(&'static str, FencingToken)> {
    let mut tokens = Vec::new();
    let plain = a.lock("plain").fenced().acquire().await.unwrap();
    tokens.push(("plain", plain.token()));
    plain.release().await.unwrap();
    let fair = a.fair_lock("fair").fenced();
    let queued = fair.acquire().await.unwrap();
    tokens.push(("fair", queued.token()));
    queued.release().await.unwrap();
    // Without a place in the queue.
    let tried = fair.try_acquire().await.unwrap().expect("free");
    tokens.push(("fair", tried.token()));
    tried.release().await.unwrap();
    let sides = a.read_write_lock("sides");
    let reader = sides.read().fenced().acquire().await.unwrap();
    tokens.push(("sides", reader.token()));
    reader.release().await.unwrap();
    let writer = sides.write().fenced().acquire().await.unwrap();
    tokens.push(("sides", writer.token()));
    let reader = sides.downgrade(writer).await.unwrap();
    tokens.push(("sides", reader.token()));
    reader.release().await.unwrap();
    tokens
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_go_on_from_the_rows_if_the_sequence_is_behind() {
    let (server, a) = used(&[]).await;
    let ahead = "SELECT setval('tidelock_locks_tokens', 5000)";
    assert_eq!(server.query(ahead).unwrap(), "5000");
    let mut seen = tokens(&a).await;
    for _ in 0..2 {
        fall_behind(&server);
        seen.extend(tokens(&a).await);
    }
    for name in ["plain", "fair", "sides"] {
        let of_name: Vec<FencingToken> = seen
            .iter()
            .filter(|(of, _)| *of == name)
            .map(|(_, token)| *token)
            .collect();
        let grows = of_name.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(grows, "{name}: {of_name:?}");
    }
    fall_behind(&server);
    let plain = a.lock("plain").fenced();
    let newest = plain.newest_token().await.unwrap().expect("there was one");
    let held = plain.acquire().await.unwrap();
    assert!(newest.get() > 5000 && held.token() > newest, "{newest}");
    held.release().await.unwrap();
}

/// Without the row the next token would come from the sequence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_the_sequence_is_behind_is_kept() {
    let (server, _a) = used(&["ahead", "behind"]).await;
    server
        .query(
            "UPDATE tidelock_locks SET expires = expires - interval '2 hours'; \
             UPDATE tidelock_locks SET token = 5000 WHERE name = 'ahead'",
        )
        .unwrap();
    // It deletes old rows.
    let b = client(&server.url()).await;
    let left = "SELECT string_agg(name, ' ') FROM tidelock_locks";
    until(&server, left, "ahead").await;
    let guard = b.lock("ahead").fenced().acquire().await.unwrap();
    assert!(guard.token().get() > 5000, "{}", guard.token());
}

/// `pg_dump -t` of the tables takes neither the sequence nor the function of the fence with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequence_that_is_made_again_goes_on_from_the_rows() {
    let (server, _a) = used(&["ledger"]).await;
    server
        .query(
            "UPDATE tidelock_locks SET token = 5000; DROP SEQUENCE tidelock_locks_tokens; \
             DROP FUNCTION tidelock_locks_fence(text, bigint)",
        )
        .unwrap();
    // A client that only looks makes no sequence, and needs none.
    let looks = Client::builder().create(false).connect(&server.url()).await;
    let seen = looks.unwrap().lock("ledger").inspect().await.unwrap();
    assert!(!seen.is_locked());
    let b = client(&server.url()).await;
    let last: u64 = server.query(LAST).unwrap().parse().unwrap();
    assert!(last >= 5000, "{last}");
    let guard = b.lock("another").fenced().acquire().await.unwrap();
    assert!(guard.token().get() > 5000, "{}", guard.token());
}

/// It would begin at one, and a client with all rights would draw from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_raise_a_missing_sequence_does_not_make_it() {
    let server = server();
    let a = client(&server.url()).await;
    let guard = a.lock("ledger").acquire().await.unwrap();
    guard.release().await.unwrap();
    let rights = "GRANT CREATE ON SCHEMA public TO clerk; GRANT SELECT ON tidelock_locks TO clerk; \
        UPDATE tidelock_locks SET token = 5000; DROP SEQUENCE tidelock_locks_tokens";
    server.query(&clerk(rights)).unwrap();
    let url = server.url().replace("postgres@", "clerk@");
    let error = Client::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    let is_made = "SELECT to_regclass('tidelock_locks_tokens') IS NOT NULL";
    assert_eq!(server.query(is_made).unwrap(), "f");
    let guard = a.lock("another").fenced().acquire().await.unwrap();
    assert!(guard.token().get() > 5000, "{}", guard.token());
}

/// A sequence that was set, and was not used since, does not say so to a user who may only use it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequence_that_is_ahead_of_the_rows_stays() {
    let (server, _a) = used(&["ledger"]).await;
    server
        .query(
            "ALTER SEQUENCE tidelock_locks_tokens RESTART WITH 9000; \
             DROP FUNCTION tidelock_locks_fence(text, bigint)",
        )
        .unwrap();
    let b = client(&server.url()).await;
    let guard = b.lock("another").fenced().acquire().await.unwrap();
    assert!(guard.token().get() >= 9000, "{}", guard.token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequence_that_is_behind_is_told_and_can_be_raised() {
    let (server, a) = used(&["ledger"]).await;
    let ledger = a.lock("ledger").fenced();
    let severity = async || {
        let findings = a.diagnose().await.unwrap();
        let tokens = findings.iter().find(|one| one.subject == "tokens");
        tokens.expect("a finding").severity
    };
    assert_eq!(severity().await, Severity::Good);
    server
        .query("UPDATE tidelock_locks SET token = 5000")
        .unwrap();
    assert_eq!(severity().await, Severity::Danger);
    // Also by the name whose row has the token.
    let next = ledger.raise_token(FencingToken::new(5001)).await.unwrap();
    assert_eq!(next.get(), 5001);
    assert_eq!(severity().await, Severity::Good);
}

/// Until it is used, only its own row says where it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_sequence_that_was_set_back_is_a_danger() {
    let server = server();
    let a = client(&server.url()).await;
    server.query(&clerk(&grants(None))).unwrap();
    let b = client(&server.url().replace("postgres@", "clerk@")).await;
    let guard = a.lock("ledger").acquire().await.unwrap();
    guard.release().await.unwrap();
    let tokens = async |client: &Client| {
        let findings = client.diagnose().await.unwrap();
        let found = findings.into_iter().find(|one| one.subject == "tokens");
        found.expect("a finding")
    };
    for (number, severity) in [(1, Severity::Danger), (9000, Severity::Good)] {
        let set = format!("ALTER SEQUENCE tidelock_locks_tokens RESTART WITH {number}");
        server.query(&set).unwrap();
        assert_eq!(tokens(&a).await.severity, severity, "at {number}");
        let seen = tokens(&b).await;
        assert_eq!(seen.severity, Severity::Danger, "at {number}");
        assert!(seen.found.contains("may not read"), "{}", seen.found);
    }
    let guard = b.lock("another").acquire().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(tokens(&b).await.severity, Severity::Good);
}
