//! How a lock is released, withdrawn and taken from its holder.

use super::*;
use crate::snapshot::Holder;
use crate::store::Store;
use crate::store::postgres::tests::wire::{NO_TABLE, flag};
use crate::store::postgres::tests::{sql, stock, ticket};
use crate::types::FencingToken;

/// The answer to a text that frees.
fn freed(count: i32) -> ServerAnswer {
    row([int(count)])
}

/// The answer to a release, or to a withdrawal, of a lock without a queue.
fn ended(was_held: bool, has_queue: bool) -> ServerAnswer {
    row([flag(was_held), null(Type::TEXT), flag(has_queue)])
}

/// Each text that was sent ends with one of these, in this order.
fn assert_asked(server: &ScriptedDatabase, asked: &[String], answers: &[ServerAnswer]) {
    let sent = texts(server);
    assert_eq!(sent.len(), asked.len(), "{answers:?}");
    for (sent, asked) in sent.iter().zip(asked) {
        assert!(sent.ends_with(asked), "{answers:?}: {sent}");
    }
}

/// A store whose last release has seen the tables of the queue.
async fn store_with_queue(server: &ScriptedDatabase) -> Store {
    let store = server.store().await;
    server.answers([ended(true, true)]);
    let released = store.front.release(&ticket(LockKind::Mutex)).await;
    assert_eq!(released.unwrap(), Released::Freed);
    assert_eq!(texts(server), [sql().release.text]);
    store
}

/// In short what a release or a withdrawal has told.
fn told(released: &Result<Released>) -> String {
    match released {
        Ok(released) => format!("{released:?}"),
        Err(error) => format!("{:?}", error.kind()),
    }
}

#[tokio::test]
async fn a_release_tells_whether_the_lock_was_held() {
    let server = ScriptedDatabase::start().await;
    for (answer, expected) in [
        (ended(true, false), "Freed"),
        (NOTHING, "NotHeld"),
        (NO_TABLE, "NotHeld"),
        (NO_RIGHT, "Refused"),
        (ServerAnswer::HangsUp, "OutcomeUnknown"),
    ] {
        let store = server.store().await;
        server.answers([answer.clone()]);
        let released = store.front.release(&ticket(LockKind::Mutex)).await;
        assert_eq!(told(&released), expected, "{answer:?}");
        assert_eq!(texts(&server), [sql().release.text], "{answer:?}");
    }
}

/// Waiters for the lock without a queue would otherwise be faster every time.
#[tokio::test]
async fn a_release_hands_over_where_somebody_may_wait_in_a_queue() {
    let server = ScriptedDatabase::start().await;
    let (release, unless) = (sql().release.text, sql().release_unless_waited.text);
    let ticket = ticket(LockKind::Mutex);
    let hand_over = |grants| queue_texts().end(&ticket, false, grants);
    for (answers, expected, asked) in [
        (vec![ended(true, false)], "Freed", vec![unless.clone()]),
        (
            vec![NOTHING, freed(1)],
            "Freed",
            vec![unless.clone(), hand_over(true)],
        ),
        (
            vec![NOTHING, freed(0)],
            "NotHeld",
            vec![unless.clone(), hand_over(true)],
        ),
        (
            vec![NOTHING, ROW_TAKEN, freed(1)],
            "Freed",
            vec![unless.clone(), hand_over(true), hand_over(false)],
        ),
        (
            vec![NO_TABLE, ended(true, false)],
            "Freed",
            vec![unless.clone(), release.clone()],
        ),
        (
            vec![NOTHING, NO_TABLE, NO_TABLE, NOTHING],
            "NotHeld",
            vec![
                unless.clone(),
                hand_over(true),
                hand_over(false),
                release.clone(),
            ],
        ),
        // It may have freed the lock: nothing else is sent.
        (
            vec![ServerAnswer::HangsUp],
            "OutcomeUnknown",
            vec![unless.clone()],
        ),
        (
            vec![NOTHING, ServerAnswer::HangsUp],
            "OutcomeUnknown",
            vec![unless.clone(), hand_over(true)],
        ),
    ] {
        let store = store_with_queue(&server).await;
        server.answers(answers.clone());
        let released = store.front.release(&ticket).await;
        assert_eq!(told(&released), expected, "{answers:?}");
        assert_asked(&server, &asked, &answers);
    }
}

#[tokio::test]
async fn a_release_that_found_no_queue_does_not_look_for_it_again() {
    let server = ScriptedDatabase::start().await;
    let store = store_with_queue(&server).await;
    let ticket = ticket(LockKind::Mutex);
    for answers in [
        &[NO_TABLE, ended(true, false)][..],
        &[ended(true, false)],
        &[ended(true, true)],
    ] {
        server.answers(answers.iter().cloned());
        store.front.release(&ticket).await.unwrap();
        assert_eq!(texts(&server).last(), Some(&sql().release.text));
    }
    // The last one has seen a queue again.
    server.answers([ended(true, true)]);
    store.front.release(&ticket).await.unwrap();
    assert_eq!(texts(&server), [sql().release_unless_waited.text]);
}

#[tokio::test]
async fn a_withdrawal_of_a_lock_without_a_queue_hands_over_where_somebody_may_wait() {
    let server = ScriptedDatabase::start().await;
    let withdraw = sql().withdraw;
    let ticket = ticket(LockKind::Fenced);
    let hand_over = |grants| queue_texts().end(&ticket, true, grants);
    for (has_queue, answers, expected, asked) in [
        (
            false,
            vec![ended(true, false)],
            "Freed",
            vec![withdraw.clone()],
        ),
        (
            false,
            vec![ended(false, false)],
            "NotHeld",
            vec![withdraw.clone()],
        ),
        (false, vec![NOTHING], "NotHeld", vec![withdraw.clone()]),
        (false, vec![NO_RIGHT], "Refused", vec![withdraw.clone()]),
        (true, vec![freed(1)], "Freed", vec![hand_over(true)]),
        (true, vec![freed(0)], "NotHeld", vec![hand_over(true)]),
        (
            true,
            vec![NO_RIGHT, ended(true, false)],
            "Freed",
            vec![hand_over(true), withdraw.clone()],
        ),
        (
            true,
            vec![ServerAnswer::HangsUp],
            "OutcomeUnknown",
            vec![hand_over(true)],
        ),
    ] {
        let store = if has_queue {
            store_with_queue(&server).await
        } else {
            server.store().await
        };
        server.answers(answers.clone());
        let withdrawn = store.front.withdraw(&ticket).await;
        assert_eq!(told(&withdrawn), expected, "{answers:?}");
        assert_asked(&server, &asked, &answers);
    }
}

#[tokio::test]
async fn a_withdrawal_notes_whether_there_is_a_queue() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let ticket = ticket(LockKind::Mutex);
    server.answers([ended(true, true), ended(true, true)]);
    store.front.withdraw(&ticket).await.unwrap();
    store.front.release(&ticket).await.unwrap();
    let sent = [sql().withdraw, sql().release_unless_waited.text];
    assert_eq!(texts(&server), sent);
}

#[tokio::test]
async fn a_lock_with_a_queue_is_released_and_withdrawn_in_one_request() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    for kind in [LockKind::Fair, LockKind::Read] {
        let ticket = ticket(kind);
        for (answer, expected) in [
            (freed(1), "Freed"),
            (freed(0), "NotHeld"),
            (NO_RIGHT, "Refused"),
            (NOTHING, "OutcomeUnknown"),
        ] {
            server.answers([answer.clone(), answer.clone()]);
            let released = store.front.release(&ticket).await;
            assert_eq!(told(&released), expected, "{answer:?}");
            let withdrawn = store.front.withdraw(&ticket).await;
            assert_eq!(told(&withdrawn), expected, "{answer:?}");
            let sent = texts(&server);
            assert_eq!(sent.len(), 2);
            for (sent, is_withdrawal) in sent.iter().zip([false, true]) {
                let asked = queue_texts().end(&ticket, is_withdrawal, true);
                assert!(sent.ends_with(&asked), "{sent}");
            }
        }
    }
}

#[tokio::test]
async fn nobody_holds_a_lock_with_a_queue_whose_table_is_missing() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    server.answers([NO_TABLE, NO_TABLE]);
    let released = store.front.release(&ticket(LockKind::Fair)).await;
    assert_eq!(released.unwrap(), Released::NotHeld);
    assert_eq!(texts(&server).len(), 2);
}

/// An attempt that makes the table may still arrive, and has to find the mark.
#[tokio::test]
async fn a_withdrawal_leaves_its_mark_where_a_table_is_missing() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    for kind in [LockKind::Fair, LockKind::Write] {
        let ticket = ticket(kind);
        for (was_held, answers, expected) in [
            (true, vec![freed(0)], "Freed"),
            (false, vec![freed(0)], "NotHeld"),
            (false, vec![freed(1)], "Freed"),
            (true, vec![NO_TABLE, NO_TABLE], "Freed"),
            (false, vec![NO_TABLE, NO_TABLE], "NotHeld"),
            (true, vec![NO_RIGHT], "Refused"),
        ] {
            server.answers([NO_TABLE, NO_TABLE, ended(was_held, false)]);
            server.answers(answers.clone());
            let withdrawn = store.front.withdraw(&ticket).await;
            assert_eq!(told(&withdrawn), expected, "{was_held} {answers:?}");
            let sent = texts(&server);
            assert_eq!(sent.len(), 3 + answers.len());
            assert_eq!(sent[2], sql().withdraw);
            // A side leaves nothing among the waiters for fair locks.
            let rest = queue_texts().end(&ticket, kind.is_fair(), true);
            assert!(sent[3].ends_with(&rest), "{}", sent[3]);
        }
    }
}

/// The answer to a look for the tables of the queue.
fn shows(is_there: bool) -> ServerAnswer {
    row([flag(is_there)])
}

#[tokio::test]
async fn a_force_release_hands_over_where_there_is_a_queue() {
    let server = ScriptedDatabase::start().await;
    let (force, hand_over) = (sql().force, queue_texts().force(&stock(), None, true));
    for (answers, was_held, last) in [
        (vec![shows(false), row([flag(true)])], true, &force),
        (vec![shows(false), NOTHING], false, &force),
        (vec![shows(true), freed(1)], true, &hand_over),
        (vec![shows(true), freed(0)], false, &hand_over),
        (vec![shows(true), NO_RIGHT, NOTHING], false, &force),
    ] {
        let store = server.store().await;
        // It is no semaphore.
        server.answers([NOTHING]);
        server.answers(answers.clone());
        let forced = store.front.force_release(&stock(), None).await;
        assert_eq!(forced.unwrap(), was_held, "{answers:?}");
        let sent = texts(&server);
        assert_eq!(sent.len(), 1 + answers.len());
        assert!(sent.last().unwrap().ends_with(last), "{answers:?}");
        assert_eq!(sent[1], SHOWS);
    }
}

#[tokio::test]
async fn a_force_release_that_is_not_answered_is_not_repeated() {
    let server = ScriptedDatabase::start().await;
    let store = store_with_queue(&server).await;
    server.answers([NOTHING, ServerAnswer::HangsUp]);
    let forced = store.front.force_release(&stock(), None).await;
    assert!(forced.unwrap_err().outcome_unknown());
    let sent = texts(&server);
    assert_eq!(sent.len(), 2, "it knows of the queue");
}

#[tokio::test]
async fn a_force_release_of_what_was_seen_names_the_owners_and_the_token() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let mut seen = Snapshot::free("stock");
    server.answers([NOTHING]);
    let forced = store.front.force_release(&stock(), Some(&seen)).await;
    assert!(!forced.unwrap(), "it was free");
    assert_eq!(texts(&server).len(), 1);
    seen.holders = vec![Holder::new("c:1", 1), Holder::new("c:2", 1)];
    for (token, named) in [(None, "null"), (Some(FencingToken::new(7)), "7")] {
        seen.token = token;
        server.answers([NOTHING, shows(false), row([flag(true)])]);
        let forced = store.front.force_release(&stock(), Some(&seen)).await;
        assert!(forced.unwrap());
        let asked = server.asked();
        let last = asked.last().unwrap();
        assert_eq!(last.text, sql().force_if);
        assert_eq!(last.params, ["stock", "c:1,c:2", named]);
    }
    server.answers([NOTHING, shows(true), freed(1)]);
    let forced = store.front.force_release(&stock(), Some(&seen)).await;
    assert!(forced.unwrap());
    let hand_over = queue_texts().force(&stock(), Some(&seen), true);
    assert!(texts(&server).last().unwrap().ends_with(&hand_over));
}
