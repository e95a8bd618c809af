//! A store hears releases while somebody waits, and stops listening when it is closed.

use std::time::Duration;

use super::{patient, ticket};
use crate::store::redis::layouts::scripts;
use crate::store::redis::wire::live_connection::peer::in_time;
use crate::store::redis::wire::tests::ScriptedServer;
use crate::store::{LockKind, Name, Store};

/// Whether the store hears the releases of the lock `stock`, and how often a waiter that hears them looks.
fn told(store: &Store) -> (bool, Option<Duration>) {
    let releases = store.front.extensions().releases.unwrap();
    let name = Name::new("stock").unwrap();
    (
        releases.seen(&name).is_some(),
        releases.poll_interval(&name),
    )
}

#[tokio::test]
async fn a_store_hears_of_releases_once_somebody_waits() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::ACQUIRE, "[ 0 5000 ]");
    server.on_script(&scripts::PLAIN_ACQUIRE, "[ 0 5000 ]");
    server.on("CONFIG GET", "[ notify-keyspace-events Kgx ]");
    let store = server.store().await;
    let plain = store.plain.as_ref().unwrap();
    assert_eq!((told(&store), told(plain)), ((false, None), (false, None)));
    let ask = patient(LockKind::Mutex);
    store.front.attempt(&ask).await.outcome.unwrap();
    assert_eq!((told(&store), told(plain)), ((true, None), (false, None)));
    // The server may lose an event, so its waiters look all the same.
    plain.front.attempt(&ask).await.outcome.unwrap();
    assert_eq!(told(plain), (true, Some(Duration::from_secs(1))));
    let used = server.connections("SUBSCRIBE");
    let is_one = used.iter().all(|connection| *connection == used[0]);
    assert!(used.len() > 1 && is_one, "{used:?}");
    let releases = plain.front.extensions().releases.unwrap();
    assert!(!releases.hears_turns(&ticket(LockKind::Fair)));
}

#[tokio::test]
async fn a_store_that_is_closed_leaves_no_connection_behind() {
    let server = ScriptedServer::start().await;
    server.on("EVALSHA", "[ 0 5000 ]");
    let store = server.store().await;
    for kind in [LockKind::Mutex, LockKind::Fair] {
        let ask = patient(kind);
        store.front.attempt(&ask).await.outcome.unwrap();
    }
    store
        .back
        .attempt(&patient(LockKind::Mutex))
        .await
        .outcome
        .unwrap();
    assert_eq!(
        server.open_connections(),
        3,
        "one for each side, and the subscriptions"
    );
    store.front.close().await;
    store.back.close().await;
    let closed = async {
        while server.open_connections() > 0 {
            tokio::task::yield_now().await;
        }
    };
    in_time(closed).await;
}
