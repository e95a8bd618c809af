//! Looks at a queue, and snapshots.

use std::collections::HashSet;

use super::*;
use crate::error::ErrorKind;
use crate::snapshot::{Holder, Mode};
use crate::store::postgres::tests::wire::{Cell, NO_TABLE, flag};
use crate::store::postgres::tests::{LIMIT, env, sql, stock};

/// The answer to the question whether a user may look at the queue.
fn can_look(is_there: bool) -> ServerAnswer {
    row([flag(is_there)])
}

#[tokio::test]
async fn a_waiter_that_a_look_does_not_find_asks_again() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let ask = patient(LockKind::Fair);
    let waits = row([text(ask.ticket.owner.text()), text("w"), big(5_000_000)]);
    server.on(LOOK, [waits, nobody_waits()]);
    server.answers([attempt(0, 7, 0, 1)]);
    let mut wake = wake_of(store.front.attempt(&ask).await).unwrap();
    server.hears(LOOK, 1).await;
    // A lock that was left free is looked at once more.
    server.tell("fstock").await;
    wake.woken().await;
    assert!(server.heard(LOOK).len() >= 2);
}

/// A queue at this server, without its store.
fn queue(server: &ScriptedDatabase) -> PostgresQueue {
    let (plain, connection) = (Arc::new(sql()), server.connection());
    let mouth = connection.clone();
    PostgresQueue {
        listener: NotifyListener::new(server.connection(), mouth, &plain, &env()),
        connection,
        sql: Arc::new(queue_texts()),
        plain,
    }
}

#[tokio::test]
async fn a_look_shows_the_waiters_of_this_process_and_those_ahead() {
    let server = ScriptedDatabase::start().await;
    let queue = queue(&server);
    let crowd = "w".repeat(300);
    for (owners, ahead, left, waiting, turns) in [
        ("c:1 c:2", "rw", 5_000_000, &["c:1", "c:2"][..], 1),
        ("c:1", "w", 0, &["c:1"], 0),
        ("", "", 7, &[], 0),
        ("c:1", &*crowd, 7, &["c:1"], COUNTED),
    ] {
        server.answers([row([text(owners), text(ahead), big(left)])]);
        let look = queue.look(&stock(), "c", true).await.unwrap();
        let waiting = waiting.iter().map(|&owner| owner.to_owned());
        assert_eq!(look.waiting, waiting.collect::<HashSet<String>>());
        assert_eq!(look.ahead, turns, "{ahead}");
        let left = Duration::from_micros(left.unsigned_abs());
        assert_eq!(look.left, left, "{owners}");
    }
    assert!(!queue.is_told(), "nobody listens");
    queue.listener.hears(LIMIT).await;
    assert!(queue.is_told());
}

/// Otherwise all waiters would be dead once the fence was open for long, and their order would be lost.
#[tokio::test]
async fn a_look_shows_life_while_a_fence_keeps_the_row() {
    let server = ScriptedDatabase::start().await;
    let queue = queue(&server);
    for (left, pause) in [(0, FENCED), (7, Duration::from_micros(7))] {
        server.answers([ROW_TAKEN, row([text("c:1"), text("w"), big(left)])]);
        let look = queue.look(&stock(), "c", true).await.unwrap();
        assert_eq!(look.left, pause);
        let asked = server.texts();
        for (asked, grants) in asked.iter().zip([true, false]) {
            let sent = queue_texts().look(&stock(), "c", true, grants);
            assert!(asked.ends_with(&sent), "{asked}");
        }
        assert_eq!(asked.len(), 2);
    }
    server.answers([ROW_TAKEN, ROW_TAKEN]);
    let error = queue.look(&stock(), "c", true).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_look_makes_the_tables_that_are_missing() {
    let server = ScriptedDatabase::start().await;
    let queue = queue(&server);
    server.answers([NO_TABLE, NOTHING, nobody_waits()]);
    queue.look(&stock(), "c", false).await.unwrap();
    assert_eq!(server.texts()[1], queue_texts().make);
}

/// The first columns of a look at a lock.
fn held_by(owner: &str) -> ServerAnswer {
    row([big(7), text(owner), big(5_000_000)])
}

#[tokio::test]
async fn a_snapshot_counts_all_waiters_and_names_those_for_a_fair_lock() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let waits = |owner: &str, fair| vec![text(owner), flag(fair)];
    let both = vec![waits("c:2", true), waits("c:3", false), waits("c:4", true)];
    for (answers, waiters, names) in [
        (vec![can_look(false)], None, &[][..]),
        (vec![can_look(true), NOTHING], None, &[]),
        (
            vec![can_look(true), ServerAnswer::Rows(both)],
            Some(3),
            &["c:2", "c:4"],
        ),
    ] {
        server.answers([held_by("c:1")]);
        server.answers(answers);
        let snapshot = store.front.inspect(&stock()).await.unwrap();
        assert_eq!(snapshot.waiters, waiters);
        assert_eq!(snapshot.queue, names);
        assert_eq!(snapshot.holders, [Holder::new("c:1", 1)]);
    }
}

#[tokio::test]
async fn a_snapshot_shows_the_holders_of_sides_instead_of_their_row() {
    let server = ScriptedDatabase::start().await;
    let store = server.store().await;
    let holds = |owner: &str, reads| -> Vec<Cell> { vec![text(owner), flag(reads)] };
    let holders = vec![
        holds("c:1", true),
        holds("c:2:upgradeable", false),
        holds("c:3", false),
    ];
    let owner = format!("c:1{STANDS_FOR_SIDES}");
    let answers = [can_look(true), NOTHING, ServerAnswer::Rows(holders)];
    server.answers([held_by(&owner)]);
    server.answers(answers);
    let snapshot = store.front.inspect(&stock()).await.unwrap();
    let shown = snapshot.holders.iter().map(|it| (&*it.owner, it.mode));
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            ("c:1", Mode::Read),
            ("c:2:upgradeable", Mode::UpgradeableRead),
            ("c:3", Mode::Write)
        ]
    );
    assert_eq!(snapshot.waiters, Some(0));
    // A user without rights to the queue sees the row.
    server.answers([held_by(&owner), can_look(false)]);
    let snapshot = store.front.inspect(&stock()).await.unwrap();
    assert_eq!(snapshot.holders, [Holder::new(owner, 1)]);
}
