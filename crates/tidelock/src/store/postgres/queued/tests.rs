//! Fair and read-write locks at a scripted server.

mod looks;
mod releases;

use super::*;
use crate::store::LockKind;
use crate::store::postgres::tests::fake_server::ScriptedDatabase;
use crate::store::postgres::tests::wire::{
    NO_RIGHT, NOTHING, ROW_TAKEN, ServerAnswer, big, int, null, row, text,
};
use crate::store::postgres::tests::{LEASE, in_short, once, patient, queue_texts, wake_of};
use crate::types::OwnerMint;

/// A part of each look at a queue.
const LOOK: &str = "WITH arrivals AS";

/// The answer to a look: the lock is held, and nobody waits.
fn nobody_waits() -> ServerAnswer {
    row([text(""), text(""), big(5_000_000)])
}

/// The texts that the server was asked, without looks.
fn texts(server: &ScriptedDatabase) -> Vec<String> {
    let texts = server.texts().into_iter();
    texts.filter(|text| !text.contains(LOOK)).collect()
}

/// The answer to an attempt. `reads`: 1 if the reader of an upgrade holds the lock.
fn attempt(granted: i32, token: i64, refused: i32, reads: i32) -> ServerAnswer {
    let cells = [int(granted), big(0), big(token), int(refused), int(reads)];
    row(cells)
}

#[tokio::test]
async fn a_lock_with_a_queue_is_taken_only_by_an_answer_with_a_token() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    for kind in [LockKind::Fair, LockKind::Write, LockKind::UpgradeableRead] {
        for (answer, told) in [
            (attempt(1, 7, 0, 1), "granted 7"),
            (attempt(0, 7, 0, 1), "held 40s"),
            (attempt(1, 0, 0, 1), "OutcomeUnknown"),
            (attempt(1, 7, 1, 1), "Cancelled"),
            (attempt(1, 7, 2, 1), "WrongType"),
            (row([int(1), big(0), text("x"), int(0)]), "OutcomeUnknown"),
            (
                row([int(1), big(0), null(Type::INT8), int(0)]),
                "OutcomeUnknown",
            ),
            (NOTHING, "OutcomeUnknown"),
            (NO_RIGHT, "Refused"),
        ] {
            server.answers([answer.clone()]);
            let reply = store.front.attempt(&once(kind)).await;
            assert_eq!(in_short(&reply), told, "{kind:?}: {answer:?}");
        }
    }
}

/// Its reader may have been lost, and others may have had the lock in between.
#[tokio::test]
async fn an_upgrade_without_its_reader_is_lost_even_if_it_was_granted() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    for (answer, told) in [
        (attempt(1, 7, 0, 1), "granted 7"),
        (attempt(0, 7, 0, 1), "held 40s"),
        (attempt(1, 7, 0, 0), "Lost"),
        (attempt(0, 7, 0, 0), "Lost"),
    ] {
        let ask = AttemptRequest {
            upgrade_of: Some(OwnerMint::new().fresh().upgradeable()),
            ..once(LockKind::Write)
        };
        server.answers([answer.clone()]);
        let reply = store.front.attempt(&ask).await;
        assert_eq!(in_short(&reply), told, "{answer:?}");
    }
}

#[tokio::test]
async fn a_downgrade_that_is_not_granted_has_lost_its_writer() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    for (answer, told) in [
        (attempt(1, 7, 0, 1), "granted 7"),
        (attempt(0, 7, 0, 1), "Lost"),
    ] {
        let ask = AttemptRequest {
            downgrade_of: Some(OwnerMint::new().fresh()),
            ..once(LockKind::Read)
        };
        server.answers([answer]);
        let reply = store.front.attempt(&ask).await;
        assert_eq!(in_short(&reply), told);
        if let Err(error) = reply.outcome {
            assert_eq!(error.lost_reason(), Some(LostReason::Taken));
        }
    }
}

#[test]
fn only_an_attempt_that_waits_and_follows_no_writer_takes_a_place() {
    let downgrade = |ask: AttemptRequest| AttemptRequest {
        downgrade_of: Some(OwnerMint::new().fresh()),
        ..ask
    };
    assert!(takes_a_place(&patient(LockKind::Fair)));
    assert!(!takes_a_place(&once(LockKind::Fair)));
    assert!(!takes_a_place(&downgrade(patient(LockKind::Read))));
    assert!(!takes_a_place(&downgrade(once(LockKind::Read))));
}

/// A fence in a user's transaction allows no grant, but a place.
#[tokio::test]
async fn a_waiter_takes_its_place_while_a_fence_keeps_the_row() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    server.on(LOOK, [nobody_waits()]);
    for kind in [LockKind::Fair, LockKind::Write] {
        let ask = patient(kind);
        server.answers([ROW_TAKEN, attempt(0, 7, 0, 1)]);
        let reply = store.front.attempt(&ask).await;
        assert_eq!(in_short(&reply), "held 40s", "{kind:?}");
        assert!(wake_of(reply).is_some());
        let sent = [true, false].map(|grants| {
            let (sql, last) = (queue_texts(), FairPosition::Last);
            if kind.is_fair() {
                sql.attempt_fair(&ask.ticket, LEASE, last, grants)
            } else {
                sql.attempt_side(&ask.ticket, LEASE, last, Follows::Nobody, grants)
            }
        });
        let asked = texts(&server);
        assert_eq!(asked.len(), 2);
        for (asked, sent) in asked.iter().zip(sent) {
            assert!(asked.ends_with(&sent), "{asked}");
            assert!(asked.starts_with("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; "));
        }
    }
}

/// Without a wake, the next attempt is the first again. The last place would be lost otherwise.
#[tokio::test]
async fn an_attempt_without_a_place_is_refused_without_a_wake_while_somebody_keeps_the_row() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let follows = AttemptRequest {
        downgrade_of: Some(OwnerMint::new().fresh()),
        ..patient(LockKind::Read)
    };
    for (ask, told, count) in [
        (once(LockKind::Fair), "held 50ms", 1),
        (follows, "held 50ms", 1),
        (patient(LockKind::Fair), "held 30s", 2),
    ] {
        server.answers((0..count).map(|_| ROW_TAKEN));
        let reply = store.front.attempt(&ask).await;
        assert_eq!(in_short(&reply), told, "{ask:?}");
        assert!(wake_of(reply).is_none(), "{ask:?}");
        assert_eq!(texts(&server).len(), count, "{ask:?}");
    }
}
