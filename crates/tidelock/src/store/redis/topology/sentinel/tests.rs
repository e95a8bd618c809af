//! Which primary is believed, and what is told if there is none. Servers on loopback play the sentinels.

use futures_util::FutureExt;
use tokio::task::JoinHandle;

use super::*;
use crate::store::redis::topology::tests::endpoint_at;
use crate::store::redis::wire::live_connection::peer::in_time;
use crate::store::redis::wire::tests::replies::{text, texts};
use crate::store::redis::wire::tests::{
    LIMIT, SILENCE, ScriptedServer, loopback, nowhere, simulated, skip, tcp,
};

fn sentinel_of(addresses: Vec<HostAddress>) -> Sentinel {
    let (background, timers) = simulated();
    let who = address::Sentinels {
        addresses,
        service: "shop".to_owned(),
        user: None,
        password: None,
    };
    Sentinel::new(who, &TlsFiles::default(), &background, &timers, LIMIT)
}

/// Sets what a sentinel answers from now on: the port of the primary, the port that its details tell, which in the middle of a
/// failover is still that of the old one, and the number of failovers.
fn tells(server: &ScriptedServer, port: &str, before: &str, epoch: &str) {
    let named = texts(&["10.0.0.1", port]);
    server.answers("SENTINEL GET-MASTER-ADDR-BY-NAME", &[&named]);
    let details = ["ip", "10.0.0.1", "port", before, "config-epoch", epoch];
    server.answers("SENTINEL MASTER ", &[&texts(&details)]);
}

async fn sentinel_that_tells(port: &str, epoch: &str) -> ScriptedServer {
    let server = ScriptedServer::start().await;
    tells(&server, port, port, epoch);
    server
}

fn primary(port: u16) -> HostAddress {
    tcp("10.0.0.1", port, false)
}

#[tokio::test]
async fn the_sentinel_that_has_seen_the_last_failover_is_believed() {
    let stale = sentinel_that_tells("1", "3").await;
    let fresh = sentinel_that_tells("2", "4").await;
    let sentinel = sentinel_of(vec![stale.address(), fresh.address()]);
    assert_eq!(in_time(sentinel.find()).await.unwrap(), primary(2));
    // One of them already names the next primary.
    tells(&stale, "3", "2", "4");
    tells(&fresh, "4", "4", "4");
    assert_eq!(in_time(sentinel.find()).await.unwrap(), primary(3));
    // The user may not ask for the epoch.
    stale.answers("SENTINEL MASTER ", &["-NOPERM no permissions\r\n"]);
    assert_eq!(in_time(sentinel.find()).await.unwrap(), primary(4));
}

#[tokio::test]
async fn sentinels_that_have_missed_a_failover_are_believed_only_as_a_majority() {
    let one = sentinel_that_tells("1", "5").await;
    let two = sentinel_that_tells("1", "5").await;
    let half = sentinel_of(vec![one.address(), nowhere().await]);
    let both = sentinel_of(vec![one.address(), two.address()]);
    for sentinel in [&half, &half, &both] {
        assert_eq!(in_time(sentinel.find()).await.unwrap(), primary(1));
    }
    tells(&one, "2", "2", "4");
    tells(&two, "2", "2", "4");
    let refusal = in_time(half.find()).await.unwrap_err();
    assert_eq!(refusal.kind(), ErrorKind::Unavailable);
    assert!(
        refusal
            .to_string()
            .contains("have not seen the last failover")
    );
    assert_eq!(in_time(both.find()).await.unwrap(), primary(2));
}

#[tokio::test]
async fn a_service_that_nobody_knows_is_a_mistake_only_at_the_first_connect() {
    let server = ScriptedServer::start().await;
    server.answers("SENTINEL GET-MASTER-ADDR-BY-NAME", &["*-1\r\n"]);
    let known = format!("*1\r\n{}", texts(&["name", "till"]));
    server.answers("SENTINEL MASTERS", &[&known]);
    let sentinel = sentinel_of(vec![server.address()]);
    let refusal = in_time(sentinel.find()).await.unwrap_err();
    assert_eq!(refusal.kind(), ErrorKind::InvalidOptions);
    let detail = refusal.detail().unwrap();
    let told = r#"do not monitor a service "shop"; they know till"#;
    assert!(detail.contains(told), "{detail}");
    // The one that does not answer may know it.
    let half = sentinel_of(vec![server.address(), nowhere().await]);
    let refusal = in_time(half.find()).await.unwrap_err();
    assert_eq!(refusal.kind(), ErrorKind::Unavailable);
    // It has lost its configuration while the client works.
    assert!(!sentinel.note(&primary(1)));
    let refusal = in_time(sentinel.find()).await.unwrap_err();
    assert_eq!(refusal.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_port_that_is_no_number_is_refused() {
    let server = sentinel_that_tells("many", "1").await;
    let sentinel = sentinel_of(vec![server.address()]);
    let refusal = in_time(sentinel.find()).await.unwrap_err().to_string();
    assert!(refusal.contains("\"many\" is not a port"), "{refusal}");
}

#[tokio::test]
async fn sentinels_that_are_away_are_told_with_their_errors() {
    let sentinel = sentinel_of(vec![loopback(1)]);
    let (refused, away) = (ErrorKind::Refused, ErrorKind::Unavailable);
    for (kinds, kind, told) in [
        (vec![], away, ": no answer"),
        (vec![refused, refused], refused, ": refused; refused"),
        (vec![refused, away], away, ": refused; unavailable"),
        (vec![ErrorKind::OutcomeUnknown], away, ": outcome_unknown"),
    ] {
        let each = kinds.iter();
        let troubles: Vec<Error> = each
            .map(|kind| Error::new(*kind).because(kind.as_str()))
            .collect();
        let error = sentinel.unreachable(&troubles);
        assert_eq!(error.kind(), kind, "{error}");
        let detail = error.detail().unwrap();
        let service = "no sentinel of redis+sentinel://127.0.0.1:1/shop answered: ";
        assert!(
            detail.starts_with(service) && detail.ends_with(told),
            "{detail}"
        );
    }
    assert_eq!(sentinel.to_string(), "redis+sentinel://127.0.0.1:1/shop");
}

#[tokio::test]
async fn only_another_primary_than_before_is_news() {
    let sentinel = sentinel_of(vec![loopback(1)]);
    for (port, is_news) in [(1, false), (1, false), (2, true), (2, false)] {
        assert_eq!(sentinel.note(&primary(port)), is_news, "{port}");
        assert!(sentinel.is_at(&primary(port)) && !sentinel.is_at(&primary(9)));
    }
}

/// One of them is named by the other, and its address is given to a sentinel of another deployment later.
#[tokio::test]
async fn sentinels_that_others_name_are_asked_as_long_as_they_are_the_same() {
    let named = sentinel_that_tells("1", "3").await;
    let other = sentinel_that_tells("2", "4").await;
    let port = other.port.to_string();
    let words = ["ip", "127.0.0.1", "port", &port, "runid", "id"];
    let others = format!("*1\r\n{}", texts(&words));
    named.answers("SENTINEL SENTINELS", &[&others]);
    other.answers("SENTINEL MYID", &[&text("id")]);
    let sentinel = sentinel_of(vec![named.address()]);
    assert_eq!(in_time(sentinel.find()).await.unwrap(), primary(1));
    assert!(in_time(sentinel.learn()).await);
    assert_eq!(in_time(sentinel.find()).await.unwrap(), primary(2));
    other.answers("SENTINEL MYID", &[&text("another")]);
    tells(&named, "1", "1", "4");
    assert_eq!(in_time(sentinel.find()).await.unwrap(), primary(1));
    for server in [&named, &other] {
        server.answers("SENTINEL SENTINELS", &["-ERR no\r\n"]);
    }
    assert!(!in_time(sentinel.learn()).await, "none has answered");
}

/// The sentinels of a client, the endpoint of its primary, and the task that asks them.
fn followed(server: &ScriptedServer) -> (Arc<Sentinel>, Arc<Endpoint>, JoinHandle<()>) {
    let sentinel = Arc::new(sentinel_of(vec![server.address()]));
    let finder = ServerFinder::Primary(Arc::clone(&sentinel) as _);
    let endpoint = endpoint_at(finder, EndpointLogin::default());
    let (one, two) = (Arc::downgrade(&sentinel), Arc::downgrade(&endpoint));
    let following = tokio::spawn(follow(one, two, sentinel.timers.clone()));
    (sentinel, endpoint, following)
}

#[tokio::test]
async fn sentinels_are_asked_until_the_client_is_closed() {
    let server = sentinel_that_tells("1", "3").await;
    let (sentinel, endpoint, following) = followed(&server);
    server.hears("SENTINEL GET-MASTER", 1).await;
    tells(&server, "2", "2", "4");
    for count in 2..=3 {
        sentinel.doubt();
        server.hears("SENTINEL GET-MASTER", count).await;
    }
    assert_eq!(endpoint.times_left(), 1, "the primary is another one");
    sentinel.close();
    in_time(following).await.unwrap();
}

/// Those of the URL may be gone soon, and each question costs a request to all of them.
#[tokio::test]
async fn the_first_query_asks_for_the_other_sentinels_and_the_next_ones_do_not() {
    let server = sentinel_that_tells("1", "3").await;
    let (sentinel, _endpoint, _following) = followed(&server);
    for count in 1..=3 {
        server.hears("SENTINEL GET-MASTER", count).await;
        sentinel.doubt();
    }
    let requests = server.requests();
    let asked = requests.iter().filter_map(|words| match &words[..] {
        [_, what, ..] if what == "GET-MASTER-ADDR-BY-NAME" => Some("primary"),
        [_, what, ..] if what == "SENTINELS" => Some("others"),
        _ => None,
    });
    let asked: Vec<&str> = asked.collect();
    assert_eq!(asked, ["primary", "others", "primary", "primary"]);
}

/// A user may lack the right to ask for them, and each question costs a request to all of them.
#[tokio::test]
async fn other_sentinels_that_nobody_names_are_asked_for_a_few_times_in_a_row() {
    let server = sentinel_that_tells("1", "3").await;
    server.answers("SENTINEL SENTINELS", &["-NOPERM no permissions\r\n"]);
    let (sentinel, _endpoint, _following) = followed(&server);
    let tries = usize::try_from(LEARN_TRIES).unwrap();
    for count in 1..=tries + 2 {
        server.hears("SENTINEL GET-MASTER", count).await;
        sentinel.doubt();
    }
    assert_eq!(server.heard("SENTINEL SENTINELS").len(), tries);
}

#[tokio::test]
async fn a_doubt_ends_the_pause_between_two_queries() {
    let sentinel = sentinel_of(vec![loopback(1)]);
    let is_told = || sentinel.refresh.notified().now_or_never().is_some();
    assert!(!is_told());
    sentinel.doubt();
    assert!(is_told());
}

/// The caller has to connect to the primary in the rest of the time.
#[tokio::test]
async fn silent_sentinels_use_up_only_a_part_of_the_time() {
    for (request, finds, part) in [
        ("SENTINEL GET-MASTER-ADDR-BY-NAME", true, LIMIT / 2),
        ("SENTINEL SENTINELS", false, LIMIT / 4),
    ] {
        let server = sentinel_that_tells("1", "3").await;
        server.answers(request, &[SILENCE]);
        let sentinel = sentinel_of(vec![server.address()]);
        let begun = sentinel.timers.now();
        let asked = async {
            if finds {
                sentinel.find().await.is_ok()
            } else {
                sentinel.learn().await
            }
        };
        let silence = async {
            server.hears(request, 1).await;
            skip(part).await;
        };
        let (is_answered, ()) = in_time(async { tokio::join!(asked, silence) }).await;
        let waited = sentinel.timers.now().since(begun);
        assert!(!is_answered && waited < LIMIT, "{request}: {waited:?}");
    }
}
