use std::sync::atomic::Ordering;

use super::*;
use crate::error::ErrorKind;
use crate::store::errors::unanswered;
use crate::store::mysql::tests::server::{ScriptedServer, denied};
use crate::store::mysql::tests::{LIMIT, mysql, mysql_at, renewal, row};
use crate::store::tests::scripted::skip;
use crate::store::{LockKind, Name, Ticket};

/// Two locks without a queue.
fn two() -> [Renewal; 2] {
    [LockKind::Fenced; 2].map(renewal)
}

/// Whether a renewal has failed because its connection was closed.
fn is_lost(renewed: &Renewed) -> bool {
    matches!(renewed, Renewed::Failed(error) if error.to_string().contains("connection is closed"))
}

#[test]
fn a_lock_is_kept_only_if_its_own_owner_is_in_the_answer() {
    let batch = [LockKind::Fenced, LockKind::Read, LockKind::Fair].map(renewal);
    let batch = batch.each_ref();
    let told = |rows: &[TextRow]| {
        let renewed = read_owners(&batch, rows).unwrap();
        renewed
            .iter()
            .map(|one| format!("{one:?}"))
            .collect::<Vec<_>>()
    };
    let [one, _, third] = batch.map(|renewal| row(renewal.ticket.owner.text()));
    assert_eq!(told(&[]), ["Gone", "Gone", "Gone"]);
    assert_eq!(told(std::slice::from_ref(&one)), ["Kept", "Gone", "Gone"]);
    assert_eq!(told(&[third, one]), ["Kept", "Gone", "Kept"]);
    let unreadable = read_owners(&batch, &[row("NULL")]).unwrap_err();
    assert!(unreadable.outcome_unknown());
}

#[test]
fn a_renewal_without_an_answer_has_failed() {
    let batch = two();
    let answers = vec![(&batch[0], None), (&batch[1], Some(Renewed::Kept))];
    let renewed = or_failed(answers, &unanswered("the connection is closed"));
    assert!(is_lost(&renewed[0]) && matches!(renewed[1], Renewed::Kept));
}

/// A row that a transaction of somebody keeps can show up as a timeout.
#[tokio::test]
async fn a_batch_that_has_failed_is_followed_by_looks_at_kept_rows() {
    let (mysql, opened) = mysql();
    let batch = two();
    mysql.pool.break_next();
    let error = mysql.renew_batch(&batch).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    assert!(mysql.kept_rows.are_expected(mysql.pool.now()));
    mysql.pool.break_next();
    let renewed = mysql.renew_batch(&batch).await.unwrap();
    assert_eq!(renewed.len(), 2);
    assert!(renewed.iter().all(is_lost), "no lock is lost: {renewed:?}");
    assert_eq!(opened.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_single_lock_waits_for_its_row_and_says_nothing_of_those_of_others() {
    let (mysql, opened) = mysql();
    for kind in [LockKind::Fenced, LockKind::Read] {
        let single = [renewal(kind)];
        mysql.pool.break_next();
        let error = mysql.renew_batch(&single).await.unwrap_err();
        assert!(error.outcome_unknown(), "{error}");
        assert!(!mysql.kept_rows.are_expected(mysql.pool.now()));
    }
    mysql.kept_rows.seen(mysql.pool.now());
    mysql.pool.break_next();
    assert!(
        mysql
            .renew_batch(&[renewal(LockKind::Fenced)])
            .await
            .is_err()
    );
    assert_eq!(opened.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn sides_hold_up_no_other_locks_and_each_gets_its_own_answer() {
    let (mysql, opened) = mysql();
    let free = [LockKind::Read, LockKind::Fenced, LockKind::Write].map(renewal);
    // The locks without sides come first.
    mysql.pool.break_next();
    let deadline = mysql.pool.deadline();
    let renewed = mysql.renew_parts(&free.each_ref(), deadline).await;
    assert!(renewed.iter().all(|one| matches!(one, Renewed::Failed(_))));
    let lost: Vec<bool> = renewed.iter().map(is_lost).collect();
    assert_eq!(lost, [false, true, false]);
    assert_eq!(
        opened.load(Ordering::SeqCst),
        1,
        "one request for both sides"
    );
    assert!(mysql.renew_parts(&[], deadline).await.is_empty());
    assert_eq!(opened.load(Ordering::SeqCst), 1);
}

/// They would take up all connections.
#[tokio::test]
async fn locks_whose_connection_breaks_are_not_asked_for_one_by_one() {
    let (mysql, opened) = mysql();
    let (batch, deadline) = (two(), mysql.pool.deadline());
    mysql.pool.break_next();
    let renewed = mysql.renew_part(&batch.each_ref(), deadline).await;
    assert_eq!(renewed.iter().filter(|one| is_lost(one)).count(), 2);
    for _ in &batch {
        mysql.pool.break_next();
    }
    let renewed = mysql.renew_each(&batch.each_ref(), deadline).await;
    assert_eq!(renewed.iter().filter(|one| is_lost(one)).count(), 2);
    assert_eq!(opened.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn kept_rows_are_looked_at_until_their_time_is_over() {
    let (mysql, _) = mysql();
    let one = renewal(LockKind::Fenced);
    let mut answers: BatchAnswers<'_> = vec![(&one, None)];
    let (begun, deadline) = (mysql.pool.now(), mysql.pool.deadline());
    mysql.pool.break_next();
    for (kept, until) in [(vec![], deadline), (vec![0], begun)] {
        let looks = mysql.look_again(&mut answers, kept, until, deadline);
        assert_eq!(looks.await.to_string(), kept_row().to_string());
        assert_eq!(mysql.pool.now(), begun);
    }
    let looks = mysql.look_again(&mut answers, vec![0], begun + PAUSE, deadline);
    let error = looks.await;
    assert!(error.outcome_unknown(), "{error}");
    assert!(mysql.pool.now().since(begun) >= PAUSE);
}

/// The refusal of a renewal whose row somebody keeps.
const KEPT: &str = "ERR 1205 Lock wait timeout exceeded";
/// How a look at free rows begins.
const FREE: &str = "SELECT name FROM tidelock_locks";
/// How a look at all rows begins.
const THERE: &str = "START TRANSACTION; SELECT name FROM tidelock_locks";

/// A renewal of a lock of this name.
fn of_name(name: &str) -> Renewal {
    let one = renewal(LockKind::Fenced);
    let ticket = Ticket {
        name: Name::new(name).unwrap(),
        ..one.ticket
    };
    Renewal { ticket, ..one }
}

/// How a renewal begins whose first lock is this.
fn renews(first: &Renewal) -> String {
    let text = sql::renew(&[first]);
    text.split(" THEN").next().unwrap().to_owned()
}

/// The answer that these locks are kept.
fn kept(locks: &[&Renewal]) -> String {
    let owners = locks.iter().map(|one| one.ticket.owner.text());
    owners.collect::<Vec<_>>().join("\n")
}

/// The outcome of each renewal.
fn told(renewed: &[Renewed]) -> Vec<&'static str> {
    let word = |one: &Renewed| match one {
        Renewed::Kept => "kept",
        Renewed::Gone => "gone",
        Renewed::WrongType => "wrong type",
        Renewed::Failed(_) => "failed",
    };
    renewed.iter().map(word).collect()
}

/// One row that somebody keeps would otherwise hold up all of them, in every round.
#[tokio::test]
async fn locks_whose_rows_are_free_are_renewed_beside_one_whose_row_is_kept() {
    let server = ScriptedServer::start().await;
    let mysql = mysql_at(&server);
    let batch = ["a", "b", "c"].map(of_name);
    let [first, second, third] = batch.each_ref();
    server.answers(&renews(first), &[KEPT, &kept(&[first])]);
    server.answers(&renews(second), &[&kept(&[second])]);
    server.answers(FREE, &["a\nc"]);
    server.answers(THERE, &["OK; a\nb\nc; OK"]);
    let renewed = mysql.renew_batch(&batch).await.unwrap();
    assert_eq!(told(&renewed), ["kept", "kept", "gone"]);
    let together = server.heard(&renews(first));
    let asked = batch.each_ref().map(|one| {
        let owner = sql::owner(&one.ticket.owner);
        together[1].contains(&owner)
    });
    assert_eq!(asked, [true, false, true]);
    // It looks first now, and all rows are free.
    server.answers(FREE, &["a\nb\nc"]);
    server.answers(&renews(first), &[&kept(&[first, third])]);
    let renewed = mysql.renew_batch(&batch).await.unwrap();
    assert_eq!(told(&renewed), ["kept", "gone", "kept"]);
    let heard = [FREE, THERE, "UPDATE"].map(|begins| server.heard(begins).len());
    assert_eq!(heard, [2, 1, 4]);
}

/// A row that many clients want is never free when somebody looks, but a request that waits has its turn.
#[tokio::test]
async fn one_kept_row_is_waited_for_and_the_others_are_looked_at_again() {
    let server = ScriptedServer::start().await;
    let mysql = mysql_at(&server);
    let batch = ["a", "b", "c"].map(of_name);
    let [first, second, third] = batch.each_ref();
    server.answers(&renews(first), &[KEPT, &kept(&[first])]);
    server.answers(&renews(second), &["EMPTY"]);
    server.answers(&renews(third), &[&kept(&[third])]);
    server.answers(FREE, &["a", "c"]);
    server.answers(THERE, &["OK; a\nb\nc; OK"]);
    let renewed = mysql.renew_batch(&batch).await.unwrap();
    assert_eq!(told(&renewed), ["kept", "gone", "kept"]);
    let looks = server.heard(FREE);
    let asked = batch.each_ref().map(|one| {
        let id = sql::id(&one.ticket.name);
        looks[1].contains(&id)
    });
    assert_eq!(asked, [false, false, true]);
    assert_eq!((looks.len(), server.heard(THERE).len()), (2, 1));
}

/// The engine sends a renewal without a reply again after a sixth of the lease, and the last look needs time for itself.
#[tokio::test]
async fn kept_rows_are_looked_at_for_a_part_of_the_shortest_lease_and_of_the_response_timeout() {
    for (lease, patience) in [(LIMIT, LIMIT / 8), (LIMIT * 100, LIMIT / 2)] {
        let server = ScriptedServer::start().await;
        let mysql = mysql_at(&server);
        let batch = [("a", 1), ("b", 9)].map(|(name, times)| Renewal {
            lease: lease * times,
            ..of_name(name)
        });
        server.answers("UPDATE", &[KEPT]);
        server.answers(FREE, &["EMPTY"]);
        server.answers(THERE, &["OK; a\nb; OK"]);
        let passing = async {
            server.hears(FREE, 2).await;
            skip(patience).await;
        };
        let (renewed, ()) = tokio::join!(mysql.renew_batch(&batch), passing);
        assert_eq!(told(&renewed.unwrap()), ["failed"; 2]);
        // Those under way when the time was over.
        let looks = server.heard(FREE).len();
        assert!(looks <= 4, "{lease:?}: {looks}");
    }
}

/// The row of one of them is kept since they were looked at.
#[tokio::test]
async fn locks_of_which_one_has_waited_for_its_row_are_renewed_one_by_one() {
    let server = ScriptedServer::start().await;
    let mysql = mysql_at(&server);
    let batch = ["a", "b"].map(of_name);
    let [first, second] = batch.each_ref();
    let deadline = mysql.pool.deadline();
    let denied = denied("tidelock_locks");
    server.answers(&renews(first), &[KEPT, &kept(&[first]), &denied]);
    server.answers(&renews(second), &[KEPT]);
    for (part, expected, requests) in [
        (&[first, second][..], &["kept", "failed"][..], 3),
        // It has nobody to hold up.
        (&[second], &["failed"], 4),
        (&[first, second], &["failed", "failed"], 5),
    ] {
        let renewed = mysql.renew_part(part, deadline).await;
        assert_eq!(told(&renewed), expected);
        assert_eq!(server.heard("UPDATE").len(), requests);
    }
}

#[tokio::test]
async fn a_batch_that_was_refused_is_not_looked_at() {
    let server = ScriptedServer::start().await;
    let mysql = mysql_at(&server);
    let batch = ["a", "b"].map(of_name);
    server.answers("UPDATE", &[&denied("tidelock_locks"), KEPT]);
    let error = mysql.renew_batch(&batch).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    // A single lock waits for its row, also if kept rows are expected.
    let error = mysql.renew_batch(&batch[..1]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(server.statements().len(), 2);
}

#[tokio::test]
async fn sides_and_other_locks_of_a_batch_are_renewed_apart_and_get_their_own_answers() {
    let server = ScriptedServer::start().await;
    let mysql = mysql_at(&server);
    let sides = "START TRANSACTION; SELECT id FROM tidelock_locks";
    let batch = [LockKind::Read, LockKind::Fenced, LockKind::Write].map(renewal);
    let [_, fenced, writer] = batch.each_ref();
    server.answers(sides, &[&format!("OK; {}; OK", kept(&[writer]))]);
    server.answers("UPDATE", &[&kept(&[fenced])]);
    let renewed = mysql.renew_batch(&batch).await.unwrap();
    assert_eq!(told(&renewed), ["gone", "kept", "kept"]);
    let deadline = mysql.pool.deadline();
    let renewed = mysql.renew_parts(&batch.each_ref(), deadline).await;
    assert_eq!(told(&renewed), ["gone", "kept", "kept"]);
    let renewed = mysql.renew_batch(&batch[2..]).await.unwrap();
    assert_eq!(told(&renewed), ["kept"]);
    let heard = [sides, "UPDATE"].map(|begins| server.heard(begins).len());
    assert_eq!(heard, [3, 2]);
}
