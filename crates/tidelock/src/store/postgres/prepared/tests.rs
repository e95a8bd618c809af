//! Statements with a name, at a scripted server.

use tokio_postgres::{Config, NoTls};

use super::*;
use crate::store::liveness::tests::gone;
use crate::store::postgres::tests::fake_server::{ScriptedDatabase, refusing};
use crate::store::postgres::tests::wire::{NO_RIGHT, NOTHING, ServerAnswer, big, column, row};

/// What a server that refuses so is asked on behalf of this caller.
async fn asked_of(code: &str, liveness: &Liveness) -> (NamedAnswer, Vec<String>) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let error = format!("SERROR\0C{code}\0Mrefused\0\0");
    let server = tokio::spawn(async move { refusing(theirs, &error).await });
    let mut config = Config::new();
    config.user("app");
    let (client, connection) = config.connect_raw(ours, NoTls).await.unwrap();
    tokio::spawn(connection);
    let live = LiveClient::new(client, Arc::default());
    let statement = NamedStatement::new("text", "SELECT $1".to_owned());
    let now = BootInstant::from_nanos(1);
    let asked = NamedRequest { liveness, now };
    let answer = statement.run(&live, &[Value::Text("till")], asked);
    let answer = answer.await.unwrap();
    drop(live);
    (answer, server.await.unwrap())
}

#[tokio::test]
async fn a_statement_is_not_sent_again_for_a_caller_that_has_left() {
    for code in ["26000", "0A000"] {
        let liveness = gone();
        let (answer, asked) = asked_of(code, &liveness).await;
        assert!(answer.has_left, "{code}");
        assert_eq!(asked[..2], ["PREPARE", "EXECUTE"], "{code}");
        assert_eq!(asked[2..], ["X"], "{code}: nothing but the end");
    }
}

#[test]
fn a_name_stands_for_one_text() {
    let one = NamedStatement::new("text", "SELECT $1".to_owned());
    let same = NamedStatement::new("text", "SELECT $1".to_owned());
    let others = [
        NamedStatement::new("bigint", "SELECT $1".to_owned()),
        NamedStatement::new("text", "SELECT $1, 1".to_owned()),
    ];
    assert_eq!(one.name, same.name);
    assert!(others.iter().all(|other| other.name != one.name));
    // The server cuts longer names.
    assert!(one.name.len() < 64);
}

#[test]
fn the_name_of_a_text_is_the_same_in_each_build() {
    let statement = NamedStatement::new("text", "SELECT $1".to_owned());
    assert_eq!(fnv1a(&[]), 0xcbf2_9ce4_8422_2325);
    assert_eq!(statement.name, "tidelock_cd70ec3a8b95f86f");
}

#[test]
fn values_are_written_as_sql() {
    let statement = NamedStatement::new("text, text, bigint", "SELECT $1, $2, $3".to_owned());
    let values = [Value::Text("till"), Value::Text("it's"), Value::Number(-7)];
    let text = statement.execute(&values);
    let rest = text.strip_prefix(&format!("EXECUTE {}", statement.name));
    let expected = format!("('till',{},-7)", short_literal("it's"));
    assert_eq!(rest, Some(&*expected));
}
/// A connection to this server.
async fn live(server: &ScriptedDatabase) -> LiveClient {
    let mut config = Config::new();
    config.user("app").host("127.0.0.1").port(server.port);
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    LiveClient::new(client, Arc::default())
}

const START: BootInstant = BootInstant(1_000_000_000);

/// Runs a statement of this connection at this time.
async fn run(live: &LiveClient, now: BootInstant) -> Result<NamedAnswer, Error> {
    let asked = NamedRequest {
        liveness: &Liveness::default(),
        now,
    };
    selects().run(live, &[Value::Number(7)], asked).await
}

/// The statement that the tests run.
fn selects() -> NamedStatement {
    NamedStatement::new("bigint", "SELECT $1".to_owned())
}

/// Whether the name was given, and since when, as the connection knows it.
fn known(live: &LiveClient) -> Option<(bool, BootInstant)> {
    let state = live.names.of(&selects().name);
    state.map(|state| (state.is_done, state.since))
}

#[tokio::test]
async fn a_name_is_given_once_and_again_after_some_seconds() {
    let server = ScriptedDatabase::start().await;
    let live = live(&server).await;
    server.on("SELECT $1", [row([big(7)])]);
    let nearly = START + PLAN_KEPT.saturating_sub(Duration::from_nanos(1));
    let later = START + PLAN_KEPT;
    for (now, since) in [
        (START, START),
        (nearly, START),
        (later, later),
        (later, later),
    ] {
        let answer = run(&live, now).await.unwrap();
        assert_eq!(answer.row.unwrap().bigint(0), Some(7));
        assert!(!answer.was_refused && !answer.has_left);
        assert_eq!(known(&live), Some((true, since)));
    }
    // The second time it was given together with the statement.
    assert_eq!(server.heard("PREPARE ").len(), 1);
}

/// The same statement is sent without a name: it has changed nothing.
#[tokio::test]
async fn a_statement_whose_name_the_session_has_forgotten_runs_without_one() {
    for (given, is_known_before, was_refused) in [
        (NOTHING, false, true),
        (NOTHING, true, true),
        // Another client has given it.
        (ServerAnswer::Fails("42P05"), false, true),
        (NO_RIGHT, false, false),
    ] {
        let server = ScriptedDatabase::start().await;
        let live = live(&server).await;
        server.on("PREPARE ", [given.clone()]);
        if is_known_before {
            server.answers([row([big(6)])]);
            run(&live, START).await.unwrap();
        }
        server.answers([ServerAnswer::Fails("26000"), row([big(7)])]);
        let answer = run(&live, START).await.unwrap();
        assert_eq!(answer.was_refused, was_refused, "{given:?}");
        assert!(matches!(answer.row, Some(NamedRow::Typed(_))));
        assert_eq!(known(&live), None);
    }
}

#[tokio::test]
async fn a_statement_whose_plan_is_refused_is_prepared_again() {
    let server = ScriptedDatabase::start().await;
    let live = live(&server).await;
    let refused = || ServerAnswer::Fails("0A000");
    server.answers([refused(), row([big(7)])]);
    let answer = run(&live, START).await.unwrap();
    assert_eq!(answer.row.unwrap().bigint(0), Some(7));
    assert_eq!(known(&live), Some((true, START)));
    // The error may be that of the preparation.
    server.answers([refused(), NO_RIGHT]);
    run(&live, START).await.unwrap_err();
    assert_eq!(known(&live), None);
}

#[tokio::test]
async fn another_error_is_told_and_nothing_is_sent_again() {
    let server = ScriptedDatabase::start().await;
    let live = live(&server).await;
    server.answers([NO_RIGHT]);
    let error = run(&live, START).await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE));
    assert_eq!(server.asked().len(), 1);
    assert_eq!(known(&live), Some((true, START)));
}

#[tokio::test]
async fn of_several_rows_the_last_one_is_the_answer() {
    let server = ScriptedDatabase::start().await;
    let live = live(&server).await;
    server.answers([column([big(1), big(2)])]);
    let answer = run(&live, START).await.unwrap();
    assert_eq!(answer.row.unwrap().bigint(0), Some(2));
    assert!(!live.has_ended());
    server.answers([ServerAnswer::HangsUp]);
    run(&live, START).await.unwrap_err();
    assert!(live.has_ended());
}

/// The caller that sent `PREPARE` may have left before the answer.
#[tokio::test]
async fn a_name_that_was_on_its_way_counts_as_given_once_its_statement_has_run() {
    let server = ScriptedDatabase::start().await;
    let live = live(&server).await;
    server.answers([row([big(6)])]);
    run(&live, START).await.unwrap();
    for (answer, has_run) in [(NO_RIGHT, false), (row([big(7)]), true)] {
        live.names.set(&selects().name, false, START);
        server.answers([answer]);
        assert_eq!(run(&live, START).await.is_ok(), has_run);
        assert_eq!(known(&live), Some((has_run, START)));
    }
}

/// A connection sends all statements in full once a session has refused a name that it was given.
#[tokio::test]
async fn a_name_that_may_not_have_arrived_was_not_refused() {
    let server = ScriptedDatabase::start().await;
    let live = live(&server).await;
    server.answers([row([big(6)])]);
    run(&live, START).await.unwrap();
    live.names.set(&selects().name, false, START);
    server.answers([ServerAnswer::Fails("26000"), row([big(7)])]);
    let answer = run(&live, START).await.unwrap();
    assert!(!answer.was_refused);
    assert_eq!(answer.row.unwrap().bigint(0), Some(7));
    assert_eq!(known(&live), None);
}
