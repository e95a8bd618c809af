//! The doctor at a server that is slow, or fails.

use super::frozen::{comes_true, frozen, settle};
use super::*;
use crate::store::postgres::tests::wire::{NOTHING, ServerAnswer, big, flag, row};

/// A part of the message that tests whether the listener hears.
const TEST: &str = "SELECT pg_notify(";

/// A server with nothing to complain of, and its store.
async fn healthy() -> (ScriptedDatabase, Store) {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    for part in [
        "LISTEN ",
        "SELECT pg_notification_queue_usage()",
        "has_schema_privilege",
    ] {
        server.on(part, [row([flag(true)])]);
    }
    server.on("server_version", [NOTHING]);
    server.on(&sql().largest, [row([big(8), big(9)])]);
    (server, store)
}

/// An attempt would not wait for it for so long, but the doctor is to tell whether releases are heard.
#[tokio::test]
async fn the_doctor_waits_for_a_listener_that_hears_late() {
    let (server, store) = healthy().await;
    server.delivers_nothing();
    tokio::time::pause();
    let front = Arc::clone(&store.front);
    let diagnosis = tokio::spawn(async move { front.diagnose().await });
    assert!(comes_true(|| server.heard(TEST).len() == 1).await);
    settle().await;
    tokio::time::advance(LIMIT / 4 * 3).await;
    settle().await;
    server.delivers_again();
    let test = server.heard(TEST)[0].params[0].clone();
    frozen(server.tell(&test)).await;
    let findings = frozen(diagnosis).await.unwrap().unwrap();
    let wakes = findings.iter().find(|it| it.subject == "wakes").unwrap();
    assert_eq!(wakes.found, "NOTIFY is heard");
}

#[tokio::test]
async fn an_error_that_passes_is_not_taken_for_a_missing_right_to_the_sequence() {
    let (server, store) = healthy().await;
    server.on(&sql().largest, [row([big(8), big(0)])]);
    server.on(&sql().last, [ServerAnswer::Fails("40P01")]);
    let findings = store.front.diagnose().await;
    assert_eq!(findings.unwrap_err().kind(), ErrorKind::Unavailable);
}
