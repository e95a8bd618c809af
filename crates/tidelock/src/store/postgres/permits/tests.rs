//! Semaphores at a scripted server.

use super::*;
use crate::error::ErrorKind;
use crate::snapshot::Holder;
use crate::store::LockKind;
use crate::store::postgres::tests::fake_server::ScriptedDatabase;
use crate::store::postgres::tests::wire::{
    NO_RIGHT, NO_TABLE, NOTHING, ROW_TAKEN, ServerAnswer, big, column, flag, int, null, row, text,
};
use crate::store::postgres::tests::{
    LEASE, in_short, once, patient, queue_texts, sql, stock, ticket, wake_of,
};
use crate::types::OwnerMint;

/// The statements of the stores for semaphores.
fn permit_sql() -> PermitSql {
    PermitSql::new(std::sync::Arc::new(queue_texts()))
}

/// A part of each look at the waiters of a semaphore.
const LOOK: &str = "WITH waiting AS (SELECT owner, place, client";

/// The answer to an attempt.
fn attempt(granted: i32, refused: i32) -> ServerAnswer {
    row([int(granted), int(refused)])
}

/// The answer to a text that takes permits back.
fn freed(count: &str) -> ServerAnswer {
    row([text(count)])
}

#[tokio::test]
async fn permits_are_taken_only_by_an_answer_that_says_so() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    for (answer, told) in [
        (attempt(1, 0), "granted"),
        (attempt(0, 0), "held 40s"),
        (attempt(1, 1), "Cancelled"),
        (attempt(1, 2), "WrongType"),
        (row([text("x"), int(0)]), "OutcomeUnknown"),
        (row([int(1)]), "OutcomeUnknown"),
        (NOTHING, "OutcomeUnknown"),
        // All that was sent behind the attempt has waited for the row too.
        (ROW_TAKEN, "held 30s"),
        (NO_RIGHT, "Refused"),
    ] {
        server.answers([answer.clone()]);
        let ask = once(LockKind::Permits(3));
        let reply = store.front.attempt(&ask).await;
        assert_eq!(in_short(&reply), told, "{answer:?}");
        let asked = server.texts();
        let position = FairPosition::None;
        let sent = permit_sql().attempt_permits(&ask.ticket, 3, LEASE, position);
        assert_eq!(asked.len(), 1);
        assert!(asked[0].ends_with(&sent), "{}", asked[0]);
    }
}

#[tokio::test]
async fn a_waiter_for_permits_that_a_look_does_not_find_asks_again() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    server.on(LOOK, [row([text(""), big(0), big(2), big(0)])]);
    server.answers([attempt(0, 0)]);
    let reply = store.front.attempt(&patient(LockKind::Permits(1))).await;
    assert_eq!(in_short(&reply), "held 40s");
    wake_of(reply).unwrap().woken().await;
    assert!(!server.heard(LOOK).is_empty());
    // Without a place there is no wake.
    server.answers([ROW_TAKEN]);
    let reply = store.front.attempt(&patient(LockKind::Permits(1))).await;
    assert!(wake_of(reply).is_none());
}

#[tokio::test]
async fn a_release_of_permits_tells_whether_they_were_held() {
    let server = ScriptedDatabase::start().await;
    for (answers, told) in [
        (vec![freed("1")], "Ok(Freed)"),
        (vec![freed("0")], "Ok(NotHeld)"),
        // Without the table of the semaphores nobody gets a permit. Those that are held are in the other one.
        (vec![NO_TABLE, freed("1")], "Ok(Freed)"),
        (vec![NO_TABLE, NO_TABLE], "Ok(NotHeld)"),
        (vec![NOTHING], "Err(OutcomeUnknown)"),
        (vec![ROW_TAKEN], "Err(Unavailable)"),
        (vec![ServerAnswer::HangsUp], "Err(OutcomeUnknown)"),
    ] {
        let store = server.store().await;
        server.answers(answers.clone());
        let ticket = ticket(LockKind::Permits(2));
        let released = store.front.release(&ticket).await;
        let released = released.map_err(|error| error.kind());
        assert_eq!(format!("{released:?}"), told, "{answers:?}");
        let asked = server.texts();
        assert_eq!(asked.len(), answers.len(), "{answers:?}");
        for (asked, grants) in asked.iter().zip([true, false]) {
            let sent = permit_sql().end_permits(&ticket, false, grants);
            assert!(asked.ends_with(&sent), "{answers:?}: {asked}");
        }
    }
}

/// An attempt that makes the tables may still arrive, and has to find the mark.
#[tokio::test]
async fn a_withdrawal_of_permits_leaves_its_mark_where_a_table_is_missing() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let ticket = ticket(LockKind::Permits(2));
    let end = |is_withdrawal, grants| permit_sql().end_permits(&ticket, is_withdrawal, grants);
    server.answers([freed("1")]);
    let withdrawn = store.front.withdraw(&ticket).await;
    assert_eq!(withdrawn.unwrap(), Released::Freed);
    assert!(server.texts()[0].ends_with(&end(true, true)));
    let marked = row([flag(false), null(Type::TEXT), flag(false)]);
    for (answers, released) in [
        (vec![freed("1")], Released::Freed),
        (vec![NO_TABLE, NO_TABLE], Released::NotHeld),
    ] {
        server.answers([NO_TABLE, NO_TABLE, marked.clone()]);
        server.answers(answers);
        let withdrawn = store.front.withdraw(&ticket).await;
        assert_eq!(withdrawn.unwrap(), released);
        let asked = server.texts();
        let sent = [
            end(true, true),
            end(true, false),
            sql().withdraw,
            end(false, true),
        ];
        for (asked, sent) in asked.iter().zip(sent) {
            assert!(asked.ends_with(&sent), "{asked}");
        }
    }
    // Without the mark nothing is done.
    server.answers([NO_TABLE, NO_TABLE, NO_RIGHT]);
    let withdrawn = store.front.withdraw(&ticket).await;
    assert_eq!(withdrawn.unwrap_err().kind(), ErrorKind::Refused);
}

/// The answer to the question whether a name is a semaphore.
fn is_semaphore() -> ServerAnswer {
    row([int(1)])
}

#[tokio::test]
async fn a_force_release_takes_all_permits_back() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    for (answers, was_held) in [
        (vec![freed("2")], true),
        (vec![freed("0")], false),
        (vec![NO_TABLE, freed("1")], true),
        (vec![NO_TABLE, NO_TABLE], false),
    ] {
        server.answers([is_semaphore()]);
        server.answers(answers.clone());
        let forced = store.front.force_release(&stock(), None).await;
        assert_eq!(forced.unwrap(), was_held, "{answers:?}");
        let asked = server.texts();
        assert_eq!(asked.len(), 1 + answers.len());
        let sent = permit_sql().force_permits(&stock(), None, true);
        assert!(asked[1].ends_with(&sent), "{}", asked[1]);
    }
    server.answers([is_semaphore(), NO_RIGHT]);
    let forced = store.front.force_release(&stock(), None).await;
    assert_eq!(forced.unwrap_err().kind(), ErrorKind::Refused);
}

#[tokio::test]
async fn a_force_release_of_permits_that_were_seen_names_their_owners() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let mint = OwnerMint::new();
    let (known, other) = (mint.fresh(), mint.fresh());
    let mut seen = Snapshot::free("stock");
    seen.holders = vec![Holder::new(known.permit_id(0), 1)];
    let both = column([text(known.text()), text(other.text())]);
    for (answer, owners) in [
        (both, vec![known.text().to_owned()]),
        (NO_TABLE, Vec::new()),
    ] {
        server.answers([is_semaphore(), answer, freed("1")]);
        let forced = store.front.force_release(&stock(), Some(&seen)).await;
        assert!(forced.unwrap());
        let asked = server.texts();
        let sent = permit_sql().force_permits(&stock(), Some(&*owners), true);
        assert!(asked[2].ends_with(&sent), "{}", asked[2]);
    }
}

/// Without the owners that were seen, nobody knows whose permits they are.
#[tokio::test]
async fn a_force_release_takes_nothing_back_if_the_holders_cannot_be_read() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let mut seen = Snapshot::free("stock");
    seen.holders = vec![Holder::new(OwnerMint::new().fresh().permit_id(0), 1)];
    server.answers([is_semaphore(), NO_RIGHT]);
    let forced = store.front.force_release(&stock(), Some(&seen)).await;
    assert_eq!(forced.unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(server.texts().len(), 2);
}

#[tokio::test]
async fn a_snapshot_of_a_semaphore_shows_its_permits_and_not_its_row() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let mint = OwnerMint::new();
    let (one, other) = (mint.fresh(), mint.fresh());
    let holds = |owner: &OwnerId, permits, left| vec![text(owner.text()), int(permits), big(left)];
    server.answers([
        row([big(1), text(SEMAPHORE), big(90_000_000)]),
        ServerAnswer::Rows(vec![holds(&one, 2, 5_000_000), holds(&other, 1, 3_000_000)]),
        row([big(4), big(1), big(6)]),
    ]);
    let snapshot = store.front.inspect(&stock()).await.unwrap();
    let shown = snapshot.holders.iter();
    let shown = shown.map(|it| (it.owner.clone(), it.mode, it.holds));
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            (one.permit_id(0), Mode::Permits, 2),
            (other.permit_id(0), Mode::Permits, 1)
        ]
    );
    let longest = std::time::Duration::from_secs(5);
    assert_eq!(snapshot.expires_in, Some(longest));
    assert_eq!(snapshot.token, None);
    assert_eq!(snapshot.permits, Some(PermitCount::new(1, 4)));
    assert_eq!(snapshot.waiters, Some(6));
}

#[tokio::test]
async fn a_list_names_only_semaphores_of_which_permits_are_held() {
    let server = ScriptedDatabase::start().await;
    for (held, names) in [
        (column([text("till")]), Some(&["stock", "till"][..])),
        // A user with rights to locks only can still list them.
        (NO_RIGHT, Some(&["stock"])),
        (ServerAnswer::HangsUp, None),
    ] {
        let store = server.store().await;
        let rows = [("stock", false), ("till", true), ("door", true)];
        let rows = rows.map(|(name, is_semaphore)| vec![text(name), flag(is_semaphore)]);
        server.answers([ServerAnswer::Rows(rows.into()), held.clone()]);
        let page = store.front.list("*", None).await;
        assert_eq!(page.is_ok(), names.is_some(), "{held:?}");
        if let (Ok(page), Some(names)) = (page, names) {
            assert_eq!(page.names, names, "{held:?}");
            assert_eq!(page.next, None);
        }
        let asked = server.asked();
        assert_eq!(asked[1].params, ["till,door"]);
    }
    let store = server.store().await;
    server.answers([row([text("stock"), flag(false)])]);
    let page = store.front.list("*", None).await.unwrap();
    assert_eq!(page.names, ["stock"]);
    assert_eq!(server.asked().len(), 1, "there is no semaphore");
}

#[tokio::test]
async fn a_change_of_the_number_tells_whether_it_is_another_one() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let counter = store.front.extensions().permit_counter.unwrap();
    for change in [
        PermitChange::SetIfNew(3),
        PermitChange::Set(3),
        PermitChange::Add(-3),
    ] {
        for (answer, told) in [
            (attempt(1, 0), Ok(true)),
            (attempt(0, 0), Ok(false)),
            (attempt(1, 1), Err(ErrorKind::WrongType)),
            (NO_RIGHT, Err(ErrorKind::Refused)),
        ] {
            server.answers([answer]);
            let changed = counter.change(&stock(), change).await;
            assert_eq!(changed.map_err(|error| error.kind()), told);
            let sent = permit_sql().change_permits(&stock(), change);
            assert!(server.texts()[0].ends_with(&sent));
        }
    }
}
