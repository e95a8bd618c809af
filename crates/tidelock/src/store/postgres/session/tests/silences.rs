//! A session on a half-open connection: the server answers nothing any more.

use std::time::Duration;

use super::*;
use crate::store::postgres::connect;
use crate::store::postgres::tests::skip;

/// The response timeout of these stores: much shorter than a lease, as it is by default.
const SHORT: Duration = LEASE.checked_div(10).unwrap();

/// A store of session locks with a response timeout that is [`SHORT`].
async fn store(server: &ScriptedDatabase) -> Store {
    let env = Env {
        response_timeout: SHORT,
        ..env()
    };
    connect(&server.url("&locks=session"), &env).await.unwrap()
}

/// Asks for the lock while the server answers such a statement, and all after it, with silence.
async fn asked_in_vain(
    server: &ScriptedDatabase,
    store: &Store,
    statement: &'static str,
) -> String {
    server.on(statement, [ServerAnswer::Silence, ours(flag(true))]);
    let heard = server.count(statement);
    let front = Arc::clone(&store.front);
    let other = AttemptRequest {
        ticket: Ticket {
            name: Name::new("till").unwrap(),
            ..ticket(LockKind::Mutex)
        },
        ..once(LockKind::Mutex)
    };
    let asked = tokio::spawn(async move { front.attempt(&other).await });
    server.hears(statement, heard + 1).await;
    skip(SHORT).await;
    in_short(&asked.await.unwrap())
}

/// Otherwise all that the client asks would fail until a whole lease has passed.
#[tokio::test]
async fn a_silent_session_without_a_holder_ends_at_once() {
    let server = sessions().await;
    let store = store(&server).await;
    // The answer to the attempt may have been a grant, but nobody has got it.
    assert_eq!(asked_in_vain(&server, &store, TAKE).await, "OutcomeUnknown");
    let reply = store.front.attempt(&once(LockKind::Mutex)).await;
    assert_eq!(in_short(&reply), "granted");
    let sessions = server.heard(SET);
    assert_eq!(sessions.len(), 2);
    assert!(sessions[0].connection != sessions[1].connection);
}

/// Its holder would lose a lock that the server keeps for it.
#[tokio::test]
async fn a_silent_session_lasts_while_a_lock_is_held() {
    let server = sessions().await;
    server.on(KEY, [ours(big(42)), ours(big(43))]);
    let store = store(&server).await;
    let bond = bond_of(store.front.attempt(&once(LockKind::Mutex)).await);
    assert_eq!(asked_in_vain(&server, &store, TAKE).await, "OutcomeUnknown");
    assert!(!bond.is_severed());
    assert_eq!(server.count(SET), 1);
}
