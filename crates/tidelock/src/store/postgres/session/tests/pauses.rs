//! When a lock or a session is asked about again.

use std::time::Duration;

use super::*;
use crate::store::postgres::session::inspect::HOLDER;
use crate::store::postgres::tests::frozen::{comes_true, frozen, settle};
use crate::store::postgres::tests::{LIMIT, stock};

/// A part of the statement that ends the session of a holder.
const END: &str = "array_agg(l.pid)";

/// Before that, it would be refused again.
#[tokio::test]
async fn a_refusal_is_checked_again_when_the_lease_of_the_holder_has_just_ended() {
    let server = sessions().await;
    let store = server.session_store().await;
    let holder = AttemptRequest {
        lease: LEASE / 10,
        ..once(LockKind::Mutex)
    };
    tokio::time::pause();
    let reply = frozen(store.front.attempt(&holder)).await;
    assert_eq!(in_short(&reply), "granted");
    let other = once(LockKind::Mutex);
    let reply = frozen(store.front.attempt(&other)).await;
    assert_eq!(in_short(&reply), "held 4.001s");
}

/// A force release of a lock whose session the server was told to end, and which it has not ended yet.
async fn forces(server: &ScriptedDatabase) -> (Store, tokio::task::JoinHandle<Result<bool>>) {
    let store = server.session_store().await;
    server.on(END, [ours(Cell::Ints(vec![9]))]);
    server.on(HOLDER, [ours(int(9))]);
    tokio::time::pause();
    let (front, name) = (Arc::clone(&store.front), stock());
    let forced = tokio::spawn(async move { front.force_release(&name, None).await });
    (store, forced)
}

/// A server may need seconds for it, for example while the session waits for a disk.
#[tokio::test]
async fn a_session_that_was_told_to_end_is_looked_at_twenty_times_a_second_at_last() {
    let server = sessions().await;
    let (_store, _forced) = forces(&server).await;
    let pause = Duration::from_millis(50);
    for _ in 0..500 {
        settle().await;
        if server.count(HOLDER) >= 8 {
            break;
        }
        tokio::time::advance(pause).await;
    }
    let looks = server.count(HOLDER);
    assert!(looks >= 8, "{looks}");
    tokio::time::advance(pause / 2).await;
    settle().await;
    assert_eq!(server.count(HOLDER), looks);
}

/// A look that is sent at the deadline has no time for an answer.
#[tokio::test]
async fn a_session_is_not_looked_at_when_the_time_for_it_is_over() {
    let server = sessions().await;
    let (store, forced) = forces(&server).await;
    assert!(comes_true(|| server.count(HOLDER) == 1).await);
    // The answer to the look comes before this one.
    frozen(store.front.renew(&[])).await.unwrap();
    settle().await;
    tokio::time::advance(LIMIT).await;
    assert!(comes_true(|| forced.is_finished()).await);
    let error = forced.await.unwrap().unwrap_err();
    assert!(error.outcome_unknown());
    assert!(error.to_string().contains("has not yet ended"), "{error}");
}
