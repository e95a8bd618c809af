use super::*;
use crate::store::mysql::connection::STALE;
use crate::store::mysql::tests::row;
use crate::store::mysql::tests::server::{ScriptedServer, UNENDED};
use crate::store::tests::scripted::{HANG_UP, in_time};

/// A server that shuts down, for example, refuses the settings of a session.
#[test]
fn a_session_that_does_not_begin_leaves_no_outcome_in_doubt() {
    let address = Address::parse("mysql://h/d").unwrap();
    let server = |code, undone| {
        let text = "x".to_owned();
        RequestError::Server(MysqlError { code, text, undone })
    };
    for (failure, kind) in [
        (server(1053, true), ErrorKind::Unavailable),
        (server(1053, false), ErrorKind::Unavailable),
        (server(1193, true), ErrorKind::Unsupported),
        (RequestError::Broken(String::new()), ErrorKind::Unavailable),
    ] {
        let error = refused(&address, failure);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains("mysql://h:3306"), "{error}");
    }
}

#[test]
fn an_answer_that_cannot_be_read_is_no_answer() {
    let row = vec![
        Some(b"7".to_vec()),
        Some(b"-1".to_vec()),
        None,
        Some(vec![0xff]),
    ];
    assert_eq!(text(&row, 0).unwrap(), "7");
    assert_eq!(number(&row, 0).unwrap(), 7);
    assert_eq!(text(&row, 1).unwrap(), "-1");
    assert!(number(&row, 1).unwrap_err().outcome_unknown());
    for column in 2..=row.len() {
        assert!(text(&row, column).unwrap_err().outcome_unknown());
        assert!(number(&row, column).unwrap_err().outcome_unknown());
    }
    assert_eq!(first(std::slice::from_ref(&row)).unwrap(), &row);
    assert!(first(&[]).unwrap_err().outcome_unknown());
}

#[test]
fn a_change_that_has_found_no_row_is_told_from_one_that_has() {
    for (text, changed) in [("0", false), ("1", true), ("7", true)] {
        let rows: [TextRow; 1] = [vec![Some(text.into())]];
        assert_eq!(count(&rows).unwrap().to_string(), text);
        assert_eq!(is_any(&rows).unwrap(), changed, "{text}");
    }
    for rows in [vec![], vec![vec![None]], vec![vec![Some(b"x".to_vec())]]] {
        assert!(count(&rows).unwrap_err().outcome_unknown());
        assert!(is_any(&rows).unwrap_err().outcome_unknown());
    }
}

#[tokio::test]
async fn a_connection_that_is_closed_answers_nothing() {
    let mut connection = RawConnection::broken();
    assert!(!connection.lives().await);
    assert!(!connection.ask("SELECT 1").await.unwrap_err().is_certain());
    let changed = connection.transact("SELECT 1").await;
    assert!(!changed.unwrap_err().is_certain());
}

/// A statement that waits for longer than its caller takes effect when nobody expects it.
#[test]
fn a_statement_waits_for_a_row_no_longer_than_it_may() {
    for (millis, seconds) in [(0, 1), (999, 1), (2999, 2), (10_000, 10)] {
        let settings = beginning(Duration::from_millis(millis));
        for name in [" innodb_lock_wait_timeout", " lock_wait_timeout"] {
            let setting = format!("{name} = {seconds},");
            assert!(settings.contains(&setting), "{setting} {settings}");
        }
    }
}

/// An error of the server, as the driver tells it.
fn refusal(code: u16) -> mysql_async::Error {
    let (message, state) = ("deadlock".to_owned(), "40001".to_owned());
    mysql_async::Error::Server(mysql_async::ServerError {
        code,
        message,
        state,
    })
}

#[test]
fn only_an_error_of_the_first_statement_says_that_nothing_has_happened() {
    for first in [true, false] {
        let failure = request_error(refusal(1213), first);
        assert_eq!(failure.undone(), first.then_some(1213));
        assert!(failure.to_string().contains("1213 deadlock"), "{failure}");
    }
    let gone = mysql_async::Error::Driver(DriverError::ConnectionClosed);
    assert!(!request_error(gone, true).is_certain());
}

#[test]
fn an_error_of_a_connect_names_the_server_and_says_whether_a_retry_may_help() {
    let io = |why: &str| {
        let error = std::io::Error::other(why.to_owned());
        mysql_async::Error::Io(mysql_async::IoError::Io(error))
    };
    let driver = mysql_async::Error::Driver;
    let address = Address::parse("mysql://h/d?ssl-mode=REQUIRED").unwrap();
    for (error, kind, words) in [
        (
            driver(DriverError::NoClientSslFlagFromServer),
            ErrorKind::Refused,
            "the server has no TLS",
        ),
        (
            driver(DriverError::ConnectionClosed),
            ErrorKind::Unavailable,
            "the connection broke",
        ),
        (
            driver(DriverError::UnknownAuthPlugin {
                name: "sha256_password".to_owned(),
            }),
            ErrorKind::Refused,
            "a login by sha256_password",
        ),
        (
            driver(DriverError::CleartextPluginDisabled),
            ErrorKind::Refused,
            "a login by mysql_clear_password",
        ),
        (
            driver(DriverError::MysqlOldPasswordDisabled),
            ErrorKind::Refused,
            "a login by mysql_old_password",
        ),
        (
            io("connection reset"),
            ErrorKind::Unavailable,
            "mysql://h:3306: connection reset",
        ),
        (
            io("invalid peer certificate: UnknownIssuer"),
            ErrorKind::Refused,
            "tls_ca",
        ),
        (refusal(1045), ErrorKind::Refused, "authentication"),
        (refusal(1053), ErrorKind::Unavailable, "1053 deadlock"),
    ] {
        let error = closed(&address, error);
        let told = error.to_string();
        assert_eq!(error.kind(), kind, "{told}");
        assert!(told.contains(words), "{told}");
        assert!(told.contains("mysql://h:3306"), "{told}");
    }
}

/// In that time nobody can renew a lock whose rows are in a transaction that a machine has left open.
#[test]
fn a_session_lasts_a_little_longer_than_the_pool_keeps_it_idle() {
    let stale = usize::try_from(STALE.as_secs()).unwrap();
    assert!(WAIT > stale && WAIT <= stale * 3 / 2, "{WAIT} s");
}

/// The options of a connection to this URL.
fn opts(url: &str, login: Option<Credentials>) -> mysql_async::Opts {
    options(&Address::parse(url).unwrap(), login).into()
}

#[test]
fn given_credentials_replace_those_of_the_url() {
    let url = "mysql://me:old@h:3307/locks";
    for (login, user, password) in [
        (None, "me", Some("old")),
        (Some(Credentials::new("you", "new")), "you", Some("new")),
        (Some(Credentials::password("new")), "me", Some("new")),
        (Some(Credentials::default()), "me", None),
    ] {
        let options = opts(url, login);
        assert_eq!((options.user(), options.pass()), (Some(user), password));
        assert_eq!((options.ip_or_hostname(), options.tcp_port()), ("h", 3307));
        assert_eq!(options.db_name(), Some("locks"));
    }
}

#[test]
fn only_the_url_leads_to_a_socket_file() {
    let options = opts("mysql://127.0.0.1/locks", None);
    assert!(!options.prefer_socket());
    assert_eq!(options.socket(), None);
    let options = opts("mysql://h/locks?socket=/run/my.sock", None);
    assert_eq!(options.socket(), Some("/run/my.sock"));
}

/// The files of TLS with one authority, and the file that has its certificate.
fn authority() -> (TlsFiles, tempfile::NamedTempFile) {
    let names = ["db.example".to_owned()];
    let own = rcgen::generate_simple_self_signed(names).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), own.cert.pem()).unwrap();
    let files = TlsFiles {
        ca: Some(file.path().to_owned()),
        ..TlsFiles::default()
    };
    (files, file)
}

#[tokio::test]
async fn tls_trusts_the_named_authorities_and_no_other() {
    let (files, _file) = authority();
    let options = ssl(&files).await.unwrap();
    assert!(options.disable_built_in_roots() && !options.skip_domain_validation());
    assert_eq!(options.root_certs().len(), 1);
    assert!(options.client_identity().is_none());
}

/// A connection to a scripted server.
async fn connection(server: &ScriptedServer) -> Result<RawConnection> {
    RawConnection::open(&server.address(), None, Duration::from_secs(3)).await
}

#[tokio::test]
async fn the_answer_to_several_statements_is_that_of_the_last_one_with_rows() {
    let server = ScriptedServer::start().await;
    let mut connection = connection(&server).await.unwrap();
    for (reply, rows) in [
        ("1 2\n3 NULL", &["1 2", "3 NULL"][..]),
        ("OK; 1; OK; 2 x; OK", &["2 x"]),
        ("1; EMPTY; OK", &[]),
        ("OK; OK", &[]),
        ("OK", &[]),
    ] {
        server.answers("SELECT", &[reply]);
        let rows: Vec<TextRow> = rows.iter().map(|words| row(words)).collect();
        assert_eq!(connection.ask("SELECT 1").await.unwrap(), rows, "{reply}");
    }
}

/// It would seem to have succeeded, and its transaction would stay open.
#[tokio::test]
async fn an_error_of_any_statement_is_that_of_the_text() {
    let server = ScriptedServer::start().await;
    let mut connection = connection(&server).await.unwrap();
    for (reply, undone) in [
        ("ERR 1205 x", Some(1205)),
        ("OK; ERR 1205 x", None),
        ("1; ERR 1205 x", None),
        ("OK; 1; OK; ERR 1205 x", None),
    ] {
        server.answers("SELECT", &[reply]);
        let failure = connection.ask("SELECT 1").await.unwrap_err();
        assert_eq!(failure.undone(), undone, "{reply}");
        assert!(failure.to_string().contains("1205 x"), "{failure}");
    }
    server.answers("SELECT", &["7"]);
    let answer = connection.ask("SELECT 1").await.unwrap();
    assert_eq!(answer, [row("7")], "nothing is left of the earlier ones");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_no_answer() {
    for reply in [HANG_UP.to_owned(), format!("1; {HANG_UP}")] {
        let server = ScriptedServer::start().await;
        let mut connection = connection(&server).await.unwrap();
        server.answers("SELECT", &[&reply]);
        let failure = connection.ask("SELECT 1").await.unwrap_err();
        assert!(!failure.is_certain(), "{failure}");
    }
}

/// The next transaction on the connection would commit a part of this one.
#[tokio::test]
async fn a_transaction_that_has_failed_is_rolled_back() {
    let server = ScriptedServer::start().await;
    let mut connection = connection(&server).await.unwrap();
    for (reply, rollbacks) in [
        ("ERR 1205 x", 0),
        ("OK; ERR 1205 x", 1),
        ("OK; 1; ERR 1205 x", 2),
    ] {
        server.answers("START TRANSACTION; UPDATE; COMMIT", &[reply]);
        let failure = connection.transact("UPDATE").await.unwrap_err();
        assert_eq!(failure.undone(), Some(1205), "{reply}");
        assert!(failure.to_string().contains("1205 x"), "{failure}");
        assert_eq!(server.heard("ROLLBACK").len(), rollbacks, "{reply}");
    }
    server.answers("START TRANSACTION; UPDATE; COMMIT", &["OK; 7; OK"]);
    let rows = connection.transact("UPDATE").await.unwrap();
    assert_eq!(rows, [row("7")]);
    assert_eq!(server.heard("ROLLBACK").len(), 2);
}

#[tokio::test]
async fn a_transaction_that_may_not_be_rolled_back_may_have_taken_effect() {
    for rollback in [HANG_UP, "ERR 1205 x"] {
        let server = ScriptedServer::start().await;
        let mut connection = connection(&server).await.unwrap();
        server.answers("START TRANSACTION", &["OK; ERR 1213 y"]);
        server.answers("ROLLBACK", &[rollback]);
        let failure = connection.transact("UPDATE").await.unwrap_err();
        assert!(!failure.is_certain(), "{failure}");
        assert!(failure.to_string().contains("1213 y"), "{failure}");
    }
    let server = ScriptedServer::start().await;
    let mut connection = connection(&server).await.unwrap();
    server.answers("START TRANSACTION", &[HANG_UP]);
    let failure = connection.transact("UPDATE").await.unwrap_err();
    assert!(!failure.is_certain(), "{failure}");
    assert_eq!(server.heard("ROLLBACK").len(), 0);
}

/// Its settings would be those of the server, and a grant could be answered before it is committed.
#[tokio::test]
async fn a_session_without_its_settings_serves_nothing() {
    for (reply, kind) in [
        ("ERR 1193 Unknown system variable", ErrorKind::Unsupported),
        ("OK; ERR 1227 Access denied", ErrorKind::Unavailable),
        (HANG_UP, ErrorKind::Unavailable),
    ] {
        let server = ScriptedServer::start().await;
        server.answers("SET SESSION", &[reply]);
        let error = connection(&server).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let place = format!("mysql://127.0.0.1:{}", server.port);
        assert!(error.to_string().contains(&place), "{error}");
    }
}

#[tokio::test]
async fn only_a_connection_whose_server_answers_lives() {
    for (reply, lives) in [("OK", true), ("ERR 1053 x", false), (HANG_UP, false)] {
        let server = ScriptedServer::start().await;
        let mut connection = connection(&server).await.unwrap();
        server.answers("PING", &[reply]);
        assert_eq!(connection.lives().await, lives, "{reply}");
    }
}

/// The login would go in plain text.
#[tokio::test]
async fn a_server_without_tls_is_refused_if_the_url_wants_tls() {
    let (files, _file) = authority();
    let server = ScriptedServer::start().await;
    let address = Address {
        tls: true,
        files,
        ..server.address()
    };
    let opened = RawConnection::open(&address, None, Duration::from_secs(3)).await;
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(
        error.to_string().contains("the server has no TLS"),
        "{error}"
    );
    assert!(server.requests().is_empty());
}

/// Left to itself, the driver would wait for the rest as long as a frozen server does not close the connection.
#[tokio::test]
async fn a_connection_that_is_dropped_in_the_middle_of_an_answer_is_closed_at_once() {
    let server = ScriptedServer::start().await;
    let mut connection = connection(&server).await.unwrap();
    server.answers("SELECT", &[&format!("1\n{UNENDED}")]);
    let reads_a_row = async {
        server.hears("SELECT", 1).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        answer = connection.ask("SELECT 1") => panic!("it has no end: {answer:?}"),
        () = reads_a_row => {}
    }
    drop(connection);
    in_time(async {
        while server.open_connections() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
