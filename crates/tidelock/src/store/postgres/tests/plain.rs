//! Locks without a queue, and the life of the store.

use futures_util::FutureExt as _;
use tokio_postgres::types::Type;

use super::*;
use crate::store::liveness::tests::gone;
use crate::store::postgres::schema::SWEPT;
use crate::store::postgres::tests::wire::{
    NO_TABLE, NOTHING, ROW_TAKEN, ServerAnswer, big, flag, int, null, row, text,
};

/// The code of a statement that the server has undone, for a reason that passes.
const DEADLOCK: ServerAnswer = ServerAnswer::Fails("40P01");

#[tokio::test]
async fn a_lock_is_taken_only_by_an_answer_with_a_token() {
    let server = ScriptedDatabase::start().await;
    for options in ["", "&statements=unnamed"] {
        let store = server.store_with(options).await;
        for (answer, told) in [
            (row([int(1), big(7)]), "granted 7"),
            (row([int(1), big(0)]), "OutcomeUnknown"),
            (row([int(1), big(-7)]), "OutcomeUnknown"),
            (row([int(1), null(Type::INT8)]), "OutcomeUnknown"),
            (row([int(0), big(5_000_000)]), "held 5.001s"),
            (row([int(0), big(-1)]), "held 1ms"),
            (row([int(0), null(Type::INT8)]), "held 1ms"),
            // No recheck is later than the lease of the client.
            (row([int(0), big(90_000_000)]), "held 40s"),
            // Another attempt has made the row after this one looked.
            (NOTHING, "held 5ms"),
            (row([int(2), null(Type::INT8)]), "Cancelled"),
            (row([int(3), null(Type::INT8)]), "WrongType"),
            (row([int(4), big(7)]), "OutcomeUnknown"),
            (row([null(Type::INT4), big(7)]), "OutcomeUnknown"),
            (DEADLOCK, "Unavailable"),
            (ServerAnswer::Fails("2200H"), "WrongType"),
        ] {
            server.answers([answer.clone()]);
            let reply = store.front.attempt(&once(LockKind::Fenced)).await;
            assert_eq!(in_short(&reply), told, "{answer:?}, {options:?}");
            assert!(!reply.in_doubt);
        }
    }
}

#[tokio::test]
async fn an_attempt_asks_for_its_name_its_owner_and_its_lease() {
    let server = ScriptedDatabase::start().await;
    let ask = once(LockKind::Mutex);
    let owner = ask.ticket.owner.text();
    for (options, params) in [
        ("", vec![format!("'stock','{owner}',40000000")]),
        (
            "&statements=unnamed",
            vec!["stock".to_owned(), owner.to_owned(), "40000000".to_owned()],
        ),
    ] {
        let store = server.store_with(options).await;
        server.answers([row([int(1), big(7)])]);
        store.front.attempt(&ask).await.outcome.unwrap();
        let asked = server.asked();
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].text, sql().attempt.text);
        assert_eq!(asked[0].params, params);
    }
}

#[tokio::test]
async fn a_token_that_is_none_is_named() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    for (number, named) in [
        (big(-7), "returned -7,"),
        (null(Type::INT8), "returned nothing,"),
    ] {
        server.answers([row([int(1), number])]);
        let reply = store.front.attempt(&once(LockKind::Fenced)).await;
        let error = reply.outcome.unwrap_err();
        assert!(error.to_string().contains(named), "{error}");
    }
}

/// The lock is perhaps free, and a caller that does not wait would be told that somebody has it.
#[tokio::test]
async fn a_row_that_somebody_locks_for_a_moment_is_asked_for_again() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    server.answers([ROW_TAKEN, ROW_TAKEN, row([int(1), big(7)])]);
    let reply = store.front.attempt(&once(LockKind::Mutex)).await;
    assert_eq!(in_short(&reply), "granted 7");
    server.asked();
    server.on(&sql().attempt.text, [ROW_TAKEN]);
    let reply = store.front.attempt(&once(LockKind::Mutex)).await;
    assert_eq!(in_short(&reply), "held 50ms");
    assert_eq!(server.asked().len(), 5);
    // It asks again later in any case.
    let reply = store.front.attempt(&patient(LockKind::Mutex)).await;
    assert_eq!(in_short(&reply), "held 50ms");
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn an_attempt_makes_a_table_that_is_missing_and_asks_again() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let lacks = [text("tidelock_locks"), text("")];
    server.on(&sql().missing, [row(lacks)]);
    server.answers([NO_TABLE, NOTHING, row([int(1), big(7)])]);
    let reply = store.front.attempt(&once(LockKind::Mutex)).await;
    assert_eq!(in_short(&reply), "granted 7");
    let Sql {
        attempt,
        missing,
        make,
        ..
    } = sql();
    let attempt = attempt.text;
    assert_eq!(server.texts(), [attempt.clone(), missing, make, attempt]);
}

/// The first attempt has changed nothing.
#[tokio::test]
async fn an_attempt_without_its_table_is_not_in_doubt_when_the_table_cannot_be_made() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    server.on(&sql().missing, [ServerAnswer::HangsUp]);
    server.answers([NO_TABLE]);
    let reply = store.front.attempt(&once(LockKind::Mutex)).await;
    assert_eq!(in_short(&reply), "Unavailable");
}

#[tokio::test]
async fn an_attempt_whose_reply_is_lost_is_not_sent_again() {
    let server = ScriptedDatabase::start().await;
    for kind in [
        LockKind::Mutex,
        LockKind::Fair,
        LockKind::Read,
        LockKind::Permits(1),
    ] {
        let store = server.store().await;
        server.asked();
        server.answers([ServerAnswer::HangsUp]);
        let reply = store.front.attempt(&once(kind)).await;
        assert_eq!(in_short(&reply), "OutcomeUnknown", "{kind:?}");
        assert_eq!(server.asked().len(), 1, "{kind:?}");
    }
}

#[tokio::test]
async fn an_attempt_that_is_not_answered_in_time_may_have_taken_the_lock() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let statement = sql().attempt.text;
    server.on(&statement, [ServerAnswer::Silence, row([int(1), big(8)])]);
    let ask = once(LockKind::Fenced);
    let answered = store.front.attempt(&ask);
    let (reply, ()) = tokio::join!(answered, async {
        server.hears(&statement, 1).await;
        skip(LIMIT).await;
    });
    let error = reply.outcome.unwrap_err();
    assert!(error.outcome_unknown(), "{error}");
    assert!(
        error.to_string().contains("no answer within 60s"),
        "{error}"
    );
    // The next request has a connection that answers.
    let reply = store.front.attempt(&once(LockKind::Fenced)).await;
    assert_eq!(in_short(&reply), "granted 8");
}

#[tokio::test]
async fn nothing_is_sent_for_a_caller_that_has_left() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    for kind in [
        LockKind::Mutex,
        LockKind::Fair,
        LockKind::Read,
        LockKind::Permits(1),
    ] {
        let ask = AttemptRequest {
            liveness: gone(),
            ..once(kind)
        };
        let reply = store.front.attempt(&ask).await;
        assert_eq!(in_short(&reply), "Unavailable", "{kind:?}");
        assert!(server.asked().is_empty(), "{kind:?}");
    }
}

#[tokio::test]
async fn a_waiter_is_woken_by_the_release_of_its_lock_only() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    server.on(&sql().attempt.text, [row([int(0), big(20_000_000)])]);
    let reply = store.front.attempt(&patient(LockKind::Mutex)).await;
    assert_eq!(in_short(&reply), "held 20.001s");
    let mut wake = wake_of(reply).unwrap();
    let other = AttemptRequest {
        ticket: Ticket {
            name: Name::new("till").unwrap(),
            ..ticket(LockKind::Mutex)
        },
        ..patient(LockKind::Mutex)
    };
    let mut other = wake_of(store.front.attempt(&other).await).unwrap();
    // In this order.
    server.tell("stock").await;
    server.tell("xstock").await;
    server.tell("ftill").await;
    other.woken().await;
    assert!(wake.woken().now_or_never().is_none());
    server.tell("fstock").await;
    wake.woken().await;
}

#[tokio::test]
async fn waiters_poll_where_releases_are_not_heard() {
    let server = ScriptedDatabase::start().await;
    server.on("LISTEN ", [row([flag(false)])]);
    let store = server.store().await;
    server.on(&sql().attempt.text, [row([int(0), big(20_000_000)])]);
    let reply = store.front.attempt(&patient(LockKind::Mutex)).await;
    assert_eq!(in_short(&reply), "held 50ms");
    assert!(wake_of(reply).is_none());
    // One that has a wake of before hears nothing either.
    let again = AttemptRequest {
        armed_by: Some(0),
        ..patient(LockKind::Mutex)
    };
    let reply = store.front.attempt(&again).await;
    assert_eq!(in_short(&reply), "held 50ms");
    // This one does not wait.
    let reply = store.front.attempt(&once(LockKind::Mutex)).await;
    assert_eq!(in_short(&reply), "held 20.001s");
}

#[tokio::test]
async fn a_waiter_with_a_wake_sleeps_until_the_lease_of_the_holder_ends() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    server.on(&sql().attempt.text, [row([int(0), big(20_000_000)])]);
    let again = AttemptRequest {
        armed_by: Some(0),
        ..patient(LockKind::Mutex)
    };
    // Nobody listens yet.
    let reply = store.front.attempt(&again).await;
    assert_eq!(in_short(&reply), "held 50ms");
    let wake = wake_of(store.front.attempt(&patient(LockKind::Mutex)).await);
    assert!(wake.is_some());
    let reply = store.front.attempt(&again).await;
    assert_eq!(in_short(&reply), "held 20.001s");
    assert!(wake_of(reply).is_none(), "it has one");
}

#[tokio::test]
async fn a_store_that_is_closed_ends_its_connections() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    server.on(&sql().attempt.text, [row([int(0), big(20_000_000)])]);
    store
        .front
        .attempt(&patient(LockKind::Mutex))
        .await
        .outcome
        .unwrap();
    store
        .back
        .attempt(&once(LockKind::Mutex))
        .await
        .outcome
        .unwrap();
    assert_eq!(
        server.heard("STARTUP").len(),
        3,
        "callers, listener, steward"
    );
    store.front.close().await;
    server.hears("TERMINATE", 2).await;
    store.back.close().await;
    server.hears("TERMINATE", 3).await;
}

#[tokio::test]
async fn a_first_sweep_that_was_full_is_gone_on_with_at_once() {
    let server = ScriptedDatabase::start().await;
    let sweep = sql().sweep;
    server.on(&sweep, [big(SWEPT), big(0)].map(|count| row([count])));
    server.on("interval '1 hour'", [NOTHING]);
    let store = server.store().await;
    server.hears(&sweep, 2).await;
    // It deletes the rows that waiters have left, and then its connection ends.
    server.hears("TERMINATE", 1).await;
    let tidied = server.heard("interval '1 hour'");
    assert_eq!(tidied.len(), 2);
    assert_eq!(tidied[0].text, queue_texts().tidy);
    drop(store);
}

#[tokio::test]
async fn a_table_that_a_client_may_not_make_is_an_error_of_the_connect() {
    let server = ScriptedDatabase::start().await;
    for (lacks, is_error) in [
        (["tidelock_locks", ""], true),
        (["", "tidelock_locks_fence"], false),
    ] {
        server.on(&sql().missing, [row(lacks.map(text))]);
        let env = Env {
            create: false,
            ..env()
        };
        let opened = connect(&server.url(""), &env).await;
        assert_eq!(opened.is_err(), is_error, "{lacks:?}");
        if let Err(error) = opened {
            assert_eq!(error.kind(), ErrorKind::InvalidOptions);
            assert!(
                error.to_string().contains("lacks tidelock_locks:"),
                "{error}"
            );
        }
    }
    assert!(server.heard("CREATE").is_empty());
}

#[tokio::test]
async fn a_store_has_the_kinds_of_locks_and_the_fence_that_it_names() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let Capabilities { kinds, .. } = store.front.capabilities();
    assert!(kinds.contains(&LockKind::FairFenced) && !kinds.contains(&LockKind::Spin));
    let fence = store.front.extensions().sql_fence;
    assert_eq!(fence, Some("SELECT tidelock_locks_fence($1, $2) AS token"));
    assert!(store.front.extensions().permit_counter.unwrap().queues());
}
