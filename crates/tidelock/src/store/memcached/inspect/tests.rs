//! What an operator sees of the items of a server, and what clients tell of themselves.

use super::*;
use crate::error::ErrorKind;
use crate::store::memcached::tests::{ScriptedServer, held_by, item, ticket};
use crate::store::{Store, Ticket};

#[test]
fn lines_of_the_list_are_read() {
    let line = "key=a%3A%C3%BC exp=1795247562 la=1795247462 cas=3 fetch=no cls=1 size=65";
    assert_eq!(key(line).as_deref(), Some("a:ü"));
    assert!(may_be_a_lock(line));
    assert!(!may_be_a_lock(
        "key=a exp=-1 la=1 cas=3 fetch=no cls=1 size=65"
    ));
    for (rest, may_be) in [
        ("exp=7 size=1000", true),
        ("exp=7 size=1001", false),
        ("exp=7 size=99999", false),
        ("exp=-1 size=65", false),
        ("exp=-1", false),
        // A server that tells less.
        ("exp=7", true),
        ("size=65", true),
        ("", true),
    ] {
        assert_eq!(may_be_a_lock(&format!("key=a {rest}")), may_be, "{rest}");
    }
    for other in ["key=a%zz exp=7", "name=a exp=7", "STAT key=a", ""] {
        assert_eq!(key(other), None, "{other}");
    }
}

#[test]
fn a_value_that_others_wrote_is_shown_by_its_start() {
    let long = "ü".repeat(65);
    for (value, shown) in [
        (&b"hello"[..], "hello"),
        (b"", "?"),
        (b"a\xff", "a\u{fffd}"),
        (long.as_bytes(), &long[..128]),
    ] {
        assert_eq!(owner(value), shown);
    }
    let own = ticket();
    let text = format!("{}\nstock", own.owner);
    assert_eq!(owner(text.as_bytes()), own.owner.text());
}

#[test]
fn details_of_a_client_are_read_back() {
    let info = client(b"1000\n7\nhost\nprogram").unwrap();
    assert_eq!(
        (info.pid, &*info.host, &*info.program),
        (7, "host", "program")
    );
    assert_eq!(info.user, None);
    assert!(client(b"").is_none());
    for (given, user) in [(None, None), (Some("dep\nloy"), Some("dep loy"))] {
        let odd = ClientInfo::new("web\n1", 7, "shop\nd", since_epoch(1000)).run_by(given);
        let seen = client(written(&odd).as_bytes()).unwrap();
        let plain = ClientInfo::new("web 1", 7, "shop d", odd.since).run_by(user);
        assert_eq!(seen, plain);
    }
}

/// A store whose server shows this item of the lock `stock`.
async fn shows(item: &str) -> (ScriptedServer, Store) {
    let server = ScriptedServer::start().await;
    server.answers("mg stock", &[item]);
    let store = server.store().await;
    (server, store)
}

async fn inspects(store: &Store) -> Snapshot {
    let name = Name::new("stock").unwrap();
    store.front.inspect(&name).await.unwrap()
}

#[tokio::test]
async fn a_lock_is_shown_with_its_owner_and_the_least_time_it_is_held() {
    let own = ticket();
    let endless = "VA 5 c7 t-1\r\nhello\r\n".to_owned();
    for (item, owner, expires_in) in [
        (held_by(&own, 20), own.owner.text(), Some(18_000)),
        // It is held still, although it may expire in this moment.
        (held_by(&own, 2), own.owner.text(), Some(1)),
        (item("hello", 20), "hello", Some(18_000)),
        (endless, "hello", None),
    ] {
        let (_server, store) = shows(&item).await;
        let mut expected = Snapshot::free("stock");
        expected.holders.push(Holder::new(owner, 1));
        expected.expires_in = expires_in.map(Duration::from_millis);
        assert_eq!(inspects(&store).await, expected, "{item}");
    }
}

#[tokio::test]
async fn a_lock_without_an_item_or_with_that_of_a_withdrawn_owner_is_free() {
    let own = ticket();
    let (server, store) = shows("EN\r\n").await;
    assert_eq!(inspects(&store).await, Snapshot::free("stock"));
    server.answers("mg stock", &[&held_by(&own, 20)]);
    assert!(inspects(&store).await.is_locked());
    let tombstone = format!("mg {}", keys::tombstone(own.owner.text()));
    server.answers(&tombstone, &[&item("1", 90)]);
    assert_eq!(inspects(&store).await, Snapshot::free("stock"));
}

#[tokio::test]
async fn the_process_of_a_holder_is_shown_if_its_details_can_be_read() {
    let own = ticket();
    let info = ClientInfo::new("web-1", 7, "shop", since_epoch(1000));
    let written = item(&written(&info), 90);
    for (details, shown) in [
        (&*written, Some(info)),
        ("EN\r\n", None),
        ("SERVER_ERROR busy\r\n", None),
        (&item("no details", 90), None),
    ] {
        let (server, store) = shows(&held_by(&own, 20)).await;
        let details_of = format!("mg tidelock:client:{}", own.owner.client());
        server.answers(&details_of, &[details]);
        let mut snapshot = inspects(&store).await;
        assert_eq!(snapshot.holders.remove(0).client, shown, "{details}");
    }
}

/// The list of a server: each of these keys is one of its items.
fn list_of(keys: &[&str]) -> String {
    let lines = keys
        .iter()
        .map(|key| format!("key={key} exp=1795247562 size=65\n"));
    lines.chain(["END\r\n".to_owned()]).collect()
}

async fn lists(store: &Store, pattern: &str) -> Result<Vec<String>> {
    let page = store.front.list(pattern, None).await?;
    assert_eq!(page.next, None);
    Ok(page.names)
}

#[tokio::test]
async fn a_list_has_the_locks_that_match_and_nothing_else_of_the_cache() {
    let named = |name: &str| Ticket {
        name: Name::new(name).unwrap(),
        ..ticket()
    };
    let (spaced, reserved) = (named("s p"), named("tidelock:client:1"));
    let (spaced_key, reserved_key) = (keys::lock(&spaced.name), keys::lock(&reserved.name));
    let server = ScriptedServer::start().await;
    let all = [
        "stock",
        "till",
        "s%C3%BC",
        "session",
        "gone",
        &*spaced_key,
        &*reserved_key,
        "tidelock:withdrawn:1",
        "tidelock:client:1",
    ];
    server.answers("lru_crawler metadump", &[&list_of(&all)]);
    for ticket in ["stock", "till", "sü"].map(named) {
        let look = format!("mg {}", ticket.name.as_str());
        server.answers(&look, &[&held_by(&ticket, 20)]);
    }
    for ticket in [&spaced, &reserved] {
        let look = format!("mg {}", keys::lock(&ticket.name));
        server.answers(&look, &[&held_by(ticket, 20)]);
    }
    server.answers("mg session", &[&item("a value of another program", 20)]);
    let store = server.store().await;
    let matching = lists(&store, "s*").await.unwrap();
    assert_eq!(matching, ["stock", "sü", "s p"]);
    let read = server.commands();
    let expected = ["stock", "sü", "session", &*spaced_key, &*reserved_key];
    assert_eq!(read, expected.map(|key| format!("mg {key}")));
    let mut all = lists(&store, "*").await.unwrap();
    all.sort_unstable();
    assert_eq!(all, ["s p", "stock", "sü", "tidelock:client:1", "till"]);
}

#[tokio::test]
async fn a_list_is_requested_again_from_a_server_that_makes_another_one() {
    let server = ScriptedServer::start().await;
    let store = server.store().await;
    let busy = "BUSY currently processing crawler request\r\n";
    server.answers("lru_crawler", &[busy, busy, "END\r\n"]);
    assert!(lists(&store, "*").await.unwrap().is_empty());
    assert_eq!(server.heard("lru_crawler").len(), 3);
    assert_eq!(server.connections("lru_crawler"), [1; 3], "one of its own");
}

#[tokio::test]
async fn a_list_that_the_server_refuses_is_an_error_at_once() {
    for (reply, kind) in [
        ("ERROR\r\n", ErrorKind::Unsupported),
        ("SERVER_ERROR out of memory\r\n", ErrorKind::Unavailable),
    ] {
        let server = ScriptedServer::start().await;
        server.answers("lru_crawler", &[reply]);
        let store = server.store().await;
        let error = lists(&store, "*").await.unwrap_err();
        assert_eq!(error.kind(), kind, "{reply}");
        assert_eq!(server.heard("lru_crawler").len(), 1, "{reply}");
    }
}

#[tokio::test]
async fn the_details_of_a_client_expire_and_are_removed_when_it_closes() {
    let server = ScriptedServer::start().await;
    let store = server.store().await;
    let (id, info) = (
        ClientId::random(),
        ClientInfo::new("h", 7, "p", since_epoch(0)),
    );
    let front = &store.front;
    front.announce(&id, Some(&info)).await.unwrap();
    let put = server.heard("ms").remove(0);
    let text = written(&info);
    let expected = format!(
        "ms tidelock:client:{} {} T3602 {text}",
        id.as_str(),
        text.len()
    );
    assert_eq!(put, expected, "an hour");
    for reply in ["HD\r\n", "NF\r\n"] {
        server.answers("md", &[reply]);
        front.announce(&id, None).await.unwrap();
    }
    let removed = format!("md tidelock:client:{}", id.as_str());
    assert_eq!(server.heard("md"), [&*removed, &*removed]);

    server.answers("ms", &["SERVER_ERROR out of memory\r\n"]);
    let refused = front.announce(&id, Some(&info)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
}
