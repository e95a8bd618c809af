//! What the store logs, and how often.

use super::*;
use crate::store::postgres::prepared::NamedStatement;
use crate::store::postgres::sweeps;
use crate::store::postgres::tests::wire::{
    NO_RIGHT, NO_TABLE, NOTHING, ServerAnswer, big, flag, int, row,
};
use crate::store::tests::log::ThreadLog;

/// A server at which all locks are held, and its store.
async fn held() -> (ScriptedDatabase, Store) {
    let server = ScriptedDatabase::start().await;
    server.on(&sql().attempt.text, [row([int(0), big(20_000_000)])]);
    let store = server.store().await;
    (server, store)
}

/// The wake of an attempt that waits.
async fn armed(store: &Store) -> Option<crate::store::Wake> {
    wake_of(store.front.attempt(&patient(LockKind::Mutex)).await)
}

#[tokio::test]
async fn a_listener_that_cannot_listen_says_so_once() {
    let log = ThreadLog::start();
    let (server, store) = held().await;
    let listens = row([flag(true)]);
    server.on("LISTEN ", [NO_RIGHT, NO_RIGHT, NO_RIGHT, listens]);
    while armed(&store).await.is_none() {}
    assert_eq!(log.count("cannot listen for releases"), 1);
    assert_eq!(log.count("the server says no"), 1, "its reason");
}

#[tokio::test]
async fn a_queue_of_the_server_without_room_is_named_once() {
    let log = ThreadLog::start();
    let (server, store) = held().await;
    server.on("LISTEN ", [row([flag(false)])]);
    let said = "the server's queue of notifications is almost full";
    assert!(armed(&store).await.is_none());
    assert_eq!(log.count(said), 1);
    // The listener looks again.
    skip(Duration::from_secs(3)).await;
    server.hears("LISTEN ", 2).await;
    assert!(armed(&store).await.is_none());
    assert_eq!(log.count(said), 1);
}

/// A table that is missing has no old rows.
#[tokio::test]
async fn old_rows_that_cannot_be_deleted_are_named() {
    let log = ThreadLog::start();
    let server = ScriptedDatabase::start().await;
    let connection = server.connection();
    for (answer, lines) in [(NO_TABLE, 0), (NOTHING, 0), (NO_RIGHT, 1)] {
        server.answers([answer, NOTHING]);
        sweeps::tidy(&connection, ["one", "other"]).await;
        assert_eq!(log.count("old rows of queues were not deleted"), lines);
    }
}

#[tokio::test]
async fn a_session_that_forgets_its_statements_is_named_once() {
    let log = ThreadLog::start();
    let server = ScriptedDatabase::start().await;
    let connection = server.connection();
    let statement = NamedStatement::new("text, text", "SELECT $1, $2".to_owned());
    let ticket = ticket(LockKind::Mutex);
    let forgotten = ServerAnswer::Fails("26000");
    let [first, again, last] = [1, 2, 3].map(|number| row([int(number)]));
    server.answers([first, forgotten, again, last]);
    for lines in [0, 1, 1] {
        let asked = connection.ask_named_for_ticket(&ticket, &statement);
        asked.await.unwrap();
        let said = "a session has forgotten a prepared statement";
        assert_eq!(log.count(said), lines);
    }
}
