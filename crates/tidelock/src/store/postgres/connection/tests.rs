//! A connection to a scripted server.

use tokio::net::TcpListener;

use super::*;
use crate::error::ErrorKind;
use crate::store::LockKind;
use crate::store::liveness::tests::gone;
use crate::store::postgres::tests::fake_server::ScriptedDatabase;
use crate::store::postgres::tests::wire::{
    NO_RIGHT, NOTHING, ServerAnswer, big, column, int, row, text,
};
use crate::store::postgres::tests::{LIMIT, env, skip, ticket};

/// Lets the tasks go on that have something to do.
async fn others_go_on() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// The error of a request in short.
fn kind<T>(answer: Result<T, RequestError>) -> Option<ErrorKind> {
    answer.err().map(|failure| failure.error().kind())
}

#[tokio::test]
async fn a_connection_is_opened_once_and_again_after_it_has_ended() {
    let server = ScriptedDatabase::start().await;
    let connection = server.connection();
    assert!(!connection.is_open() && connection.current().upgrade().is_none());
    connection.open().await;
    assert!(connection.is_open() && connection.current().upgrade().is_some());
    server.answers([NOTHING, NO_RIGHT, ServerAnswer::HangsUp, NOTHING]);
    for (told, is_open, opened) in [
        (None, true, 1),
        (Some(ErrorKind::Refused), true, 1),
        (Some(ErrorKind::OutcomeUnknown), false, 1),
        (None, true, 2),
    ] {
        assert_eq!(kind(connection.ask("SELECT 1", &[]).await), told);
        assert_eq!(connection.is_open(), is_open, "{told:?}");
        assert_eq!(server.heard("STARTUP").len(), opened, "{told:?}");
    }
    connection.close();
    assert!(!connection.is_open());
    server.hears("TERMINATE", 1).await;
    server.answers([NOTHING]);
    connection.run("SELECT 1").await.unwrap();
    assert_eq!(server.heard("STARTUP").len(), 3);
}

/// The next request may reach the primary.
#[tokio::test]
async fn a_connection_to_a_standby_is_given_up_without_a_cancellation() {
    let server = ScriptedDatabase::start().await;
    let connection = server.connection();
    server.answers([ServerAnswer::Fails("25006"), NOTHING]);
    let told = kind(connection.ask("SELECT 1", &[]).await);
    assert_eq!(told, Some(ErrorKind::Unavailable));
    assert!(!connection.is_open());
    connection.ask("SELECT 1", &[]).await.unwrap();
    server.hears("TERMINATE", 1).await;
    assert!(server.heard("CANCEL").is_empty());
}

#[tokio::test]
async fn what_a_connection_that_was_given_up_still_runs_is_cancelled() {
    let server = ScriptedDatabase::start().await;
    let connection = server.connection();
    server.answers([ServerAnswer::Silence]);
    let asked = connection.ask("SELECT 1", &[]);
    let (told, ()) = tokio::join!(asked, async {
        server.hears("SELECT 1", 1).await;
        skip(LIMIT).await;
    });
    assert_eq!(kind(told), Some(ErrorKind::OutcomeUnknown));
    assert!(
        server.heard("CANCEL").is_empty(),
        "it may still answer in time"
    );
    others_go_on().await;
    skip(LIMIT).await;
    server.hears("CANCEL", 2).await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_a_connect_is_given_up() {
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, env) = (mute.local_addr().unwrap(), env());
    let url = format!("postgres://me@{address}/d?sslmode=disable");
    let address = Arc::new(Address::parse(&url, &env).unwrap());
    let connection = Connection::new(address, &env);
    assert_eq!(
        connection.to_string(),
        format!("postgres://{}/d", mute.local_addr().unwrap())
    );
    let asked = connection.ask("SELECT 1", &[]);
    let (told, ()) = tokio::join!(asked, async {
        let peer = mute.accept().await.unwrap();
        skip(LIMIT).await;
        drop(peer);
    });
    let error = told.unwrap_err().error();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.to_string().contains("no connection in time"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_nobody_runs_is_named_in_the_error() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, env) = (free.local_addr().unwrap(), env());
    drop(free);
    let url = format!("postgres://me@{address}/d?sslmode=disable");
    let connection = Connection::new(Arc::new(Address::parse(&url, &env).unwrap()), &env);
    let error = connection.ask("SELECT 1", &[]).await.unwrap_err().error();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

/// Behind a pooler that forgets names, two requests would be sent for each statement.
#[tokio::test]
async fn once_a_name_was_forgotten_all_statements_are_sent_in_full() {
    let server = ScriptedDatabase::start().await;
    let connection = server.connection();
    let statement = NamedStatement::new("text, text", "SELECT $1, $2".to_owned());
    let ticket = ticket(LockKind::Mutex);
    server.answers([
        row([int(1)]),
        ServerAnswer::Fails("26000"),
        row([int(2)]),
        row([int(3)]),
    ]);
    for number in 1..=3 {
        let asked = connection.ask_named_for_ticket(&ticket, &statement);
        let row = asked.await.unwrap().unwrap();
        assert_eq!(row.integer(0), Some(number));
    }
    let asked = server.asked();
    let values: Vec<usize> = asked.iter().map(|request| request.params.len()).collect();
    assert_eq!(values, [1, 1, 2, 2], "as one text, and as parameters");
    assert_eq!(asked[3].params, ["stock", ticket.owner.text()]);
}

#[tokio::test]
async fn a_text_is_not_sent_for_a_caller_that_has_left_and_answers_its_last_row() {
    let server = ScriptedDatabase::start().await;
    let connection = server.connection();
    let (somebody, nobody) = (Liveness::default(), gone());
    let deadline = connection.deadline();
    let told = connection.ask_text(&nobody, "SELECT 1", deadline).await;
    assert_eq!(kind(told), Some(ErrorKind::Unavailable));
    assert!(server.asked().is_empty());
    server.answers([column([big(1), big(2)]), row([text("x")])]);
    let answer = connection.ask_text(&somebody, "SELECT 1", deadline).await;
    let answer = answer.unwrap();
    assert_eq!(
        (answer.number(0).unwrap(), answer.text(0).unwrap()),
        (2, "2")
    );
    assert!(answer.text(1).unwrap_err().outcome_unknown());
    let answer = connection.ask_text(&somebody, "SELECT 1", deadline).await;
    let error = answer.unwrap().number(0).unwrap_err();
    assert!(error.to_string().contains("is no number"), "{error}");
}

#[tokio::test]
async fn a_statement_waits_for_a_slot_until_the_server_has_answered_those_before_it() {
    let server = ScriptedDatabase::start().await;
    let connection = server.connection();
    let (somebody, deadline) = (Liveness::default(), connection.deadline());
    let mut begun = Vec::new();
    for _ in 0..16 {
        begun.push(connection.begin(&somebody, deadline).await.unwrap().1);
    }
    let waits = connection.begin(&somebody, deadline);
    let (waits, ()) = tokio::join!(waits, skip(LIMIT));
    let error = waits.err().unwrap().error();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.to_string().contains("did not come to it within 60s"),
        "{error}"
    );
    // The server has answered one of them.
    begun.pop().unwrap().answered();
    let deadline = connection.deadline();
    let next = connection.begin(&somebody, deadline).await.unwrap().1;
    // The callers of two have left: their slots are free when the server answers what was sent after them.
    drop(next);
    begun.pop();
    for _ in 0..2 {
        begun.push(connection.begin(&somebody, deadline).await.unwrap().1);
    }
    assert!(connection.is_open());
}

/// Otherwise calls that are dropped could take all slots of a connection that is half open.
#[tokio::test]
async fn a_connection_is_given_up_if_a_caller_has_left_and_nothing_is_answered() {
    for is_run in [false, true] {
        let server = ScriptedDatabase::start().await;
        let connection = server.connection();
        server.answers([ServerAnswer::Silence]);
        {
            let asked = async {
                if is_run {
                    connection.run("SELECT 1").await
                } else {
                    connection.ask("SELECT 1", &[]).await.map(drop)
                }
            };
            tokio::select! {
                _ = asked => panic!("it has no answer"),
                () = server.hears("SELECT 1", 1) => {}
            }
        }
        assert!(connection.is_open());
        let live = connection.current();
        others_go_on().await;
        skip(LIMIT).await;
        let is_given_up = async {
            while connection.is_open() {
                tokio::task::yield_now().await;
            }
        };
        let limit = std::time::Duration::from_secs(30);
        tokio::time::timeout(limit, is_given_up).await.unwrap();
        assert!(live.upgrade().is_none_or(|live| live.in_flight.is_closed()));
    }
}

/// Only one whose caller has left is followed by another request, whose answer shows that its slot is free.
#[tokio::test]
async fn a_statement_that_was_answered_costs_one_request() {
    let server = ScriptedDatabase::start().await;
    let connection = server.connection();
    let statement = NamedStatement::new("text, text", "SELECT $1, $2".to_owned());
    let (ticket, somebody) = (ticket(LockKind::Mutex), Liveness::default());
    server.answers([NOTHING, NOTHING, row([int(1)]), row([int(2)]), NOTHING]);
    connection.ask("SELECT 1", &[]).await.unwrap();
    connection.run("SELECT 1").await.unwrap();
    let named = connection.ask_named_for_ticket(&ticket, &statement);
    named.await.unwrap();
    let deadline = connection.deadline();
    let text = connection.ask_text(&somebody, "SELECT 1", deadline);
    assert!(text.await.is_ok());
    others_go_on().await;
    // The answer to this one comes behind those to all that was sent before.
    connection.ask("SELECT 1", &[]).await.unwrap();
    let mut requests = server.heard("").into_iter();
    assert!(requests.all(|request| !request.text.is_empty()));
}
