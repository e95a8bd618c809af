//! Stores beside a scripted server, and what follows its answers.

use super::*;
use crate::store::mysql::tests::server::{SERVES, denied, no_table};

/// How a release begins of a lock without a queue.
const RELEASE: &str = "UPDATE tidelock_locks";

/// The locks in it are lost, and their holders hear of it at the next renewal.
#[tokio::test]
async fn a_table_that_somebody_has_dropped_is_made_again_and_the_request_sent_again() {
    for (refusal, made, tries) in [
        (no_table("tidelock_locks"), 6, 2),
        (no_table("tidelock_counter"), 6, 2),
        (no_table("tidelock_marks"), 0, 2),
        (denied("tidelock_locks"), 0, 1),
        ("ERR 1317 Query execution was interrupted".to_owned(), 0, 1),
    ] {
        let server = ScriptedServer::start().await;
        let mysql = mysql_at(&server);
        server.answers(RELEASE, &[&refusal, "1"]);
        let released = mysql.release(&ticket(LockKind::Mutex)).await;
        assert_eq!(released.is_ok(), tries == 2, "{refusal}");
        assert_eq!(server.heard(RELEASE).len(), tries, "{refusal}");
        assert_eq!(server.made(), made, "{refusal}");
    }
}

/// Without the row of the counter nothing was changed.
#[tokio::test]
async fn an_attempt_in_tables_that_were_emptied_was_not_decided() {
    let server = ScriptedServer::start().await;
    let mysql = mysql_at(&server);
    server.answers("START TRANSACTION", &["OK; EMPTY; OK"]);
    server.answers("SELECT format", &["EMPTY"]);
    for (kind, made) in [
        (LockKind::Fenced, 6),
        (LockKind::Fair, 12),
        (LockKind::Read, 18),
    ] {
        let ask = attempt(&ticket(kind));
        let answer = Backend::attempt(&*mysql, &ask).await.outcome;
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert_eq!(server.made(), made, "{kind:?}");
    }
}

/// A late attempt of its ticket would take effect.
#[tokio::test]
async fn a_withdrawal_in_tables_that_were_emptied_is_not_reported_as_done() {
    let server = ScriptedServer::start().await;
    let mysql = mysql_at(&server);
    server.answers("INSERT INTO tidelock_locks", &["0 0", "0 1", "1 1"]);
    server.answers("SELECT format", &["EMPTY"]);
    let ticket = ticket(LockKind::Mutex);
    let error = mysql.withdraw(&ticket).await.unwrap_err();
    assert!(error.outcome_unknown(), "{error}");
    assert_eq!(server.made(), 6);
    for released in [Released::NotHeld, Released::Freed] {
        assert_eq!(mysql.withdraw(&ticket).await.unwrap(), released);
    }
}

/// Each change of it keeps attempts waiting.
#[tokio::test]
async fn a_counter_of_tokens_that_is_large_enough_is_left_alone() {
    for (seen, newest, writes) in [("8", 8, 0), ("7", 7, 0), ("6", 9, 1)] {
        let server = ScriptedServer::start().await;
        let mysql = mysql_at(&server);
        server.answers("SELECT GREATEST", &[seen]);
        server.answers("UPDATE tidelock_counter", &["9"]);
        let name = ticket(LockKind::Mutex).name;
        assert_eq!(mysql.raise_tokens(&name, 7).await.unwrap(), newest);
        let written = server.heard("UPDATE tidelock_counter").len();
        assert_eq!(written, writes, "{seen}");
    }
}

#[tokio::test]
async fn a_lock_is_taken_from_its_holders_of_either_kind() {
    let server = ScriptedServer::start().await;
    let mysql = mysql_at(&server);
    let name = ticket(LockKind::Mutex).name;
    let mut exclusive = Snapshot::free(name.as_str());
    exclusive.holders.push(Holder::new("c:1", 1));
    let mut shared = exclusive.clone();
    shared.holders[0].mode = Mode::Read;
    for (seen, begins) in [
        (None, RELEASE),
        (Some(&exclusive), RELEASE),
        (Some(&shared), SERVES),
    ] {
        let before = server.heard(begins).len();
        server.answers(begins, &["1", "0"]);
        assert!(mysql.force_release(&name, seen).await.unwrap());
        assert!(!mysql.force_release(&name, seen).await.unwrap());
        assert_eq!(server.heard(begins).len() - before, 2, "{begins}");
    }
}

/// A long answer to a caller would otherwise delay the renewals.
#[tokio::test]
async fn a_store_makes_its_tables_and_its_sides_share_no_connection() {
    let server = ScriptedServer::start().await;
    server.answers("SELECT format", &[&no_table("tidelock_counter")]);
    server.answers(RELEASE, &["1"]);
    let store = connect(&server.url(), &env().0).await.unwrap();
    assert_eq!(server.made(), 6);
    for side in [&store.front, &store.back] {
        let released = side.release(&ticket(LockKind::Mutex)).await;
        assert_eq!(released.unwrap(), Released::Freed);
    }
    assert_eq!(server.connections(RELEASE), [0, 1]);
}

#[tokio::test]
async fn the_doctor_judges_the_settings_the_tables_and_the_queues() {
    use crate::snapshot::Severity;

    let server = ScriptedServer::start().await;
    let mysql = mysql_at(&server);
    let settings = "version 8.0.36\nread_only OFF\ninnodb_flush_log_at_trx_commit 1";
    server.answers("SHOW GLOBAL VARIABLES", &[settings]);
    server.answers("SELECT table_name", &["tidelock_locks MyISAM"]);
    let findings = mysql.diagnose().await.unwrap();
    let not_good = findings.iter().filter(|it| it.severity != Severity::Good);
    let not_good: Vec<&str> = not_good.map(|it| it.subject.as_str()).collect();
    assert_eq!(not_good, ["engine"], "{findings:?}");
    assert_eq!(findings.len(), 6, "{findings:?}");
}

#[tokio::test]
async fn a_poller_hears_how_many_are_ahead_of_it() {
    let server = ScriptedServer::start().await;
    let mysql = mysql_at(&server);
    server.answers("SELECT COUNT(*)", &["3 1", "0 0"]);
    let (pollers, ticket) = (mysql.extensions().pollers, ticket(LockKind::Mutex));
    for expected in [Some(3), None] {
        let ahead = pollers.unwrap().ahead(&ticket, PollerBeat::Skip).await;
        assert_eq!(ahead.unwrap(), expected);
    }
}
