//! Renewals at a scripted server.

use super::*;
use crate::store::postgres::queue_sql::QueueSql;
use crate::store::postgres::schema::Sql;
use crate::store::postgres::tests::fake_server::ScriptedDatabase;
use crate::store::postgres::tests::wire::{
    NO_RIGHT, NO_TABLE, NOTHING, ROW_TAKEN, ServerAnswer, big, column, row, text,
};
use crate::store::postgres::tests::{LEASE, LIMIT, queue_texts, skip, sql, ticket};
use crate::store::{Name, ReplicaAck, Ticket};

/// A renewal of a lock of its own name.
fn renewal(kind: LockKind, name: &str) -> Renewal {
    Renewal {
        ticket: Ticket {
            name: Name::new(name).unwrap(),
            ..ticket(kind)
        },
        lease: LEASE,
        wish: ReplicaAck::Off,
    }
}

/// Renewals of so many locks without a queue, each with a name of its own.
fn renewals(count: usize) -> Vec<Renewal> {
    let names = ["stock", "till", "door", "safe"];
    let names = names.iter().take(count);
    names.map(|name| renewal(LockKind::Mutex, name)).collect()
}

/// The answer of a statement that has renewed, or found, these locks without a queue.
fn these(numbers: &[i64]) -> ServerAnswer {
    column(numbers.iter().map(|number| big(*number)))
}

/// In short what a batch has told.
fn told(renewed: &[Renewed]) -> Vec<String> {
    let each = renewed.iter().map(|one| match one {
        Renewed::Failed(error) => format!("{:?}", error.kind()),
        other => format!("{other:?}"),
    });
    each.collect()
}

#[tokio::test]
async fn what_the_first_statement_has_renewed_is_kept_and_the_rest_is_looked_for() {
    let server = ScriptedDatabase::start().await;
    let Sql {
        renew,
        held,
        renew_patiently,
        ..
    } = sql();
    for (answers, kept) in [
        (vec![these(&[1, 2])], ["Kept", "Kept"]),
        (vec![these(&[2]), NOTHING], ["Gone", "Kept"]),
        (vec![NOTHING, NOTHING], ["Gone", "Gone"]),
        // Nobody holds a lock without the table.
        (vec![NO_TABLE, NO_TABLE], ["Gone", "Gone"]),
        (vec![these(&[1]), NO_RIGHT], ["Kept", "Unavailable"]),
        (
            vec![these(&[1]), these(&[2]), these(&[2])],
            ["Kept", "Kept"],
        ),
        (vec![these(&[1]), these(&[2]), NOTHING], ["Kept", "Gone"]),
        (
            vec![these(&[1]), these(&[2]), ROW_TAKEN],
            ["Kept", "Unavailable"],
        ),
        (vec![NOTHING, these(&[1]), these(&[1])], ["Kept", "Gone"]),
        (
            vec![NOTHING, these(&[1, 2]), these(&[1]), these(&[2])],
            ["Kept", "Kept"],
        ),
    ] {
        let store = server.store().await;
        server.answers(answers.clone());
        let batch = renewals(2);
        let renewed = store.front.renew(&batch).await.unwrap();
        assert_eq!(told(&renewed), kept, "{answers:?}");
        let texts = server.texts();
        let sent = [&renew, &held, &renew_patiently, &renew_patiently];
        assert_eq!(texts.iter().collect::<Vec<_>>(), sent[..answers.len()]);
    }
}

#[tokio::test]
async fn a_renewal_names_its_locks_their_owners_their_leases_and_their_numbers() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let batch = renewals(3);
    server.answers([these(&[1, 3]), these(&[2]), these(&[2])]);
    store.front.renew(&batch).await.unwrap();
    let asked = server.asked();
    let owners: Vec<&str> = batch.iter().map(|one| one.ticket.owner.text()).collect();
    let all = owners.join(",");
    assert_eq!(
        asked[0].params,
        [
            "stock,till,door",
            &*all,
            "40000000,40000000,40000000",
            "1,2,3"
        ]
    );
    let second = ["till", owners[1], "40000000", "2"];
    assert_eq!(asked[1].params, second);
    assert_eq!(asked[2].params[..4], second);
}

/// An error of a renewal that was answered says why.
#[tokio::test]
async fn a_row_that_somebody_keeps_is_named_as_the_reason() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    for (answer, named) in [
        (ROW_TAKEN, "another transaction keeps the row of the lock"),
        (NO_RIGHT, "the server says no"),
    ] {
        server.answers([NOTHING, these(&[1]), answer]);
        let batch = renewals(1);
        let renewed = store.front.renew(&batch).await.unwrap();
        let [Renewed::Failed(error)] = &renewed[..] else {
            panic!("{renewed:?}");
        };
        assert!(error.to_string().contains(named), "{error}");
    }
}

/// How long the statements that wait for a row may wait, in milliseconds.
fn waits(server: &ScriptedDatabase) -> Vec<u128> {
    let asked = server.asked().into_iter();
    let patient = asked.filter_map(|request| request.params.get(4).cloned());
    let millis = patient.map(|text| text.trim_end_matches("ms").parse().unwrap());
    millis.collect()
}

#[tokio::test]
async fn rows_that_somebody_keeps_share_an_eighth_of_the_lease_or_half_of_the_response_timeout() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let most = |lease: Duration| (lease / 8).min(LIMIT / 2).as_millis();
    for lease in [LEASE, LEASE * 100] {
        let batch: Vec<Renewal> = renewals(2)
            .into_iter()
            .map(|one| Renewal { lease, ..one })
            .collect();
        server.answers([NOTHING, these(&[1, 2]), ROW_TAKEN, ROW_TAKEN]);
        store.front.renew(&batch).await.unwrap();
        let [first, second] = waits(&server)[..] else {
            panic!("two waits");
        };
        let most = most(lease);
        assert!(first <= most / 2 && first > most / 4, "{first} of {most}");
        assert!(second <= most && second > most / 2, "{second} of {most}");
    }
    // The shortest lease counts.
    let mut batch = renewals(2);
    batch[1].lease = LEASE / 10;
    server.answers([NOTHING, these(&[1]), these(&[1])]);
    store.front.renew(&batch).await.unwrap();
    let [wait] = waits(&server)[..] else {
        panic!("one wait");
    };
    assert!(wait <= most(LEASE / 10), "{wait}");
}

/// Otherwise a statement would be sent whose answer nobody waits for.
#[tokio::test]
async fn a_renewal_without_time_waits_for_no_row() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let mut batch = renewals(1);
    batch[0].lease = Duration::ZERO;
    server.answers([NOTHING, these(&[1])]);
    let renewed = store.front.renew(&batch).await.unwrap();
    assert_eq!(told(&renewed), ["Unavailable"]);
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn a_wait_for_a_row_ends_before_the_response_timeout() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let statement = sql().renew_patiently;
    server.on(&statement, [ServerAnswer::Silence]);
    server.answers([NOTHING, these(&[1])]);
    let batch = renewals(1);
    let renewed = store.front.renew(&batch);
    let (renewed, ()) = tokio::join!(renewed, async {
        server.hears(&statement, 1).await;
        skip(LEASE / 8).await;
    });
    let renewed = renewed.unwrap();
    assert_eq!(told(&renewed), ["Unavailable"]);
    let [Renewed::Failed(error)] = &renewed[..] else {
        panic!("{renewed:?}");
    };
    assert!(error.to_string().contains("another transaction"), "{error}");
}

/// The answer of a text that has renewed, or found, these.
fn numbers(text_of: &str) -> ServerAnswer {
    row([text(text_of)])
}

#[tokio::test]
async fn what_fails_for_one_table_does_not_fail_for_the_locks_in_the_others() {
    let server = ScriptedDatabase::start().await;
    let kinds = [LockKind::Permits(1), LockKind::Fair, LockKind::Write];
    for (answers, kept) in [
        // The tables have an order: locks, sides, permits.
        (
            vec![these(&[2]), numbers("3"), numbers("1")],
            Some(["Kept", "Kept", "Kept"]),
        ),
        (
            vec![these(&[2]), NO_RIGHT, numbers(""), numbers("")],
            Some(["Gone", "Kept", "Unavailable"]),
        ),
        (
            vec![NO_RIGHT, numbers("3"), NO_RIGHT],
            Some(["Unavailable", "Unavailable", "Kept"]),
        ),
        (
            vec![these(&[2]), numbers("x"), NO_TABLE, NO_TABLE],
            Some(["Gone", "Kept", "Unavailable"]),
        ),
        (vec![NO_RIGHT, NO_RIGHT, NO_RIGHT], None),
    ] {
        let store = server.store().await;
        server.answers(answers.clone());
        let batch = kinds.map(|kind| renewal(kind, "stock"));
        let renewed = store.front.renew(&batch).await;
        assert_eq!(server.asked().len(), answers.len(), "{answers:?}");
        match kept {
            Some(kept) => assert_eq!(told(&renewed.unwrap()), kept, "{answers:?}"),
            None => assert_eq!(renewed.unwrap_err().kind(), ErrorKind::Refused),
        }
    }
}

#[tokio::test]
async fn a_renewal_without_a_reply_is_an_error_of_the_batch() {
    let server = ScriptedDatabase::start().await;
    for kind in [LockKind::Mutex, LockKind::Read, LockKind::Permits(1)] {
        let store = server.store().await;
        server.answers([ServerAnswer::HangsUp]);
        let renewed = store.front.renew(&[renewal(kind, "stock")]).await;
        assert!(renewed.unwrap_err().outcome_unknown(), "{kind:?}");
    }
}

/// Otherwise each of them could wait in a line of requests of other clients.
#[tokio::test]
async fn all_that_is_held_of_one_name_waits_for_its_row_together() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let names = ["till", "stock", "till"];
    let batch = names.map(|name| renewal(LockKind::Read, name));
    server.answers([numbers(""), numbers("1 2 3"), numbers("2"), numbers("1 3")]);
    let renewed = store.front.renew(&batch).await.unwrap();
    assert_eq!(told(&renewed), ["Kept", "Kept", "Kept"]);
    let texts = server.texts();
    let QueueSql { sides, .. } = queue_texts();
    let stock = batch[1].ticket.owner.text();
    let waits: Vec<&String> = texts[2..].iter().collect();
    assert_eq!(waits.len(), 2);
    let stock = crate::store::postgres::literal::literal(stock);
    assert!(waits[0].contains(&stock) && !waits[1].contains(&stock));
    assert!(waits.iter().all(|text| text.contains(&sides)));
    let skips = |text: &String| text.contains("SKIP LOCKED");
    assert!(skips(&texts[0]) && !skips(waits[0]) && !skips(waits[1]));
}

/// On the connection of all else, what is sent behind a request that waits for a row waits too.
#[tokio::test]
async fn renewals_get_a_connection_of_their_own_and_wait_for_rows_on_the_other() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let (renew, held) = (sql().renew, sql().held);
    server.on(&renew, [these(&[1])]);
    let first = loop {
        store.front.renew(&renewals(1)).await.unwrap();
        let asked = server.heard(&renew);
        let (first, last) = (&asked[0], &asked[asked.len() - 1]);
        if first.connection != last.connection {
            break first.connection;
        }
        server.hears("STARTUP", 2).await;
    };
    server.on(&renew, [NOTHING]);
    server.on(&held, [these(&[1])]);
    let patiently = sql().renew_patiently;
    server.on(&patiently, [these(&[1])]);
    store.front.renew(&renewals(1)).await.unwrap();
    let at = |statement: &str| server.heard(statement).last().unwrap().connection;
    assert_eq!(at(&patiently), first);
    assert!(at(&held) != first && at(&renew) == at(&held));
    // Both sides of the store share it.
    store.back.renew(&renewals(1)).await.unwrap();
    assert!(at(&renew) != first && at(&patiently) != first);
    assert_eq!(server.heard("STARTUP").len(), 3);
}
