//! How long attempts wait, and how often waiters look.

use super::frozen::{comes_true, frozen, settle};
use super::*;
use crate::store::beats::BEAT;
use crate::store::postgres::tests::wire::{ServerAnswer, big, int, row, text};

/// A part of the message that tests whether the listener hears.
const TEST: &str = "SELECT pg_notify(";

/// Of each kind of lock with a queue: a part of the attempt that takes a place, and a part of the looks.
const QUEUES: [(LockKind, &str, &str); 2] = [
    (
        LockKind::Fair,
        "INSERT INTO tidelock_locks_waiters",
        "WITH arrivals AS",
    ),
    (
        LockKind::Permits(1),
        "INSERT INTO tidelock_locks_permits",
        "WITH waiting AS",
    ),
];

/// The answer to an attempt that has a place now.
fn waits() -> ServerAnswer {
    row([0; 5].map(int))
}

/// The answer has to come within the response timeout too.
#[tokio::test]
async fn an_attempt_at_a_queue_waits_for_the_listener_for_half_the_response_timeout() {
    for (kind, enters, _) in QUEUES {
        let server = ScriptedDatabase::start().await;
        let store = server.store().await;
        server.delivers_nothing();
        server.on(enters, [waits()]);
        tokio::time::pause();
        let (front, ask) = (Arc::clone(&store.front), patient(kind));
        let attempt = tokio::spawn(async move { front.attempt(&ask).await });
        assert!(comes_true(|| server.heard(TEST).len() == 1).await);
        settle().await;
        assert!(server.heard(enters).is_empty(), "the listener may hear");
        tokio::time::advance(LIMIT / 2 + Duration::from_secs(1)).await;
        assert!(
            comes_true(|| server.heard(enters).len() == 1).await,
            "{kind:?}"
        );
        let reply = frozen(attempt).await.unwrap();
        assert_eq!(in_short(&reply), "held 40s");
        tokio::time::resume();
    }
}

/// Each look of a crowd of processes would be a transaction that locks the row.
#[tokio::test]
async fn a_waiter_that_a_message_tells_of_its_turn_looks_only_to_show_life() {
    for (kind, enters, looks) in QUEUES {
        let server = ScriptedDatabase::start().await;
        let store = server.store().await;
        let ask = patient(kind);
        let owner = text(ask.ticket.owner.text());
        let left = big(20_000_000);
        // Nobody is ahead. The holder's lease lasts for long.
        let look = if kind == LockKind::Fair {
            vec![owner, text("w"), left]
        } else {
            vec![owner, big(0), big(2), left]
        };
        server.on(enters, [waits()]);
        server.on(looks, [row(look)]);
        tokio::time::pause();
        let reply = frozen(store.front.attempt(&ask)).await;
        assert_eq!(in_short(&reply), "held 40s");
        assert!(comes_true(|| !server.heard(looks).is_empty()).await);
        settle().await;
        let before = server.heard(looks).len();
        tokio::time::advance(BEAT / 2).await;
        settle().await;
        assert_eq!(server.heard(looks).len(), before, "{kind:?}");
        tokio::time::advance(BEAT).await;
        assert!(comes_true(|| server.heard(looks).len() > before).await);
        tokio::time::resume();
    }
}

#[test]
fn an_attempt_that_waits_asks_for_a_locked_row_once_even_if_no_time_has_passed() {
    let start = BootInstant(1);
    let mut retry = RowRetry::new(&patient(LockKind::Mutex), start, LIMIT);
    assert!(!retry.once_more(start));
}
