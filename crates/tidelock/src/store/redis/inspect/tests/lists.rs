//! The list of locks, and that of the locks that are awaited, beside a scripted server.

use crate::error::ErrorKind;
use crate::store::redis::layouts::scripts;
use crate::store::redis::wire::tests::{HANG_UP, ScriptedServer};
use crate::store::{Page, Store};

const OWNER: &str = "0123abcd-0123-4123-8123-0123456789ab:1";

/// The cursor of the second scan of a server, which is for semaphores.
const SECOND: &str = "1.0.0.0";

/// A page of the locks whose names begin with `s`.
async fn page(store: &Store, after: Option<&str>) -> Page {
    store.front.list("s*", after).await.unwrap()
}

#[tokio::test]
async fn a_list_goes_through_the_kinds_of_keys_and_shows_locks_only() {
    let server = ScriptedServer::start().await;
    server.on("SCAN", "[ '0 [ ] ]");
    server.on(
        "SCAN 0 MATCH s* COUNT 250 TYPE hash",
        "[ '17 [ s:1 s:2 s:3 s:4 tidelock:s ] ]",
    );
    server.on("HSCAN s:1 0 COUNT 4", &format!("[ '0 [ {OWNER} 1 ] ]"));
    server.on("HSCAN s:2", "[ '0 [ mode read ] ]");
    // Another program's hashes: one has the text of an owner as a value.
    server.on("HSCAN s:3", &format!("[ '0 [ colour {OWNER} ] ]"));
    server.on("HSCAN s:4", "-WRONGTYPE no");
    server.on("HSCAN tidelock:s", "[ '0 [ mode read ] ]");
    let store = server.store().await;
    let first = page(&store, None).await;
    assert_eq!(first.names, ["s:1", "s:2"]);
    let second = page(&store, first.next.as_deref()).await;
    assert_eq!(
        server.heard("SCAN 17 MATCH s* COUNT 250 TYPE hash").len(),
        1
    );
    assert_eq!(
        (second.names.len(), second.next.as_deref()),
        (0, Some(SECOND))
    );
    let none = page(&store, Some(SECOND)).await;
    assert_eq!(
        server
            .heard("SCAN 0 MATCH *s**:timeout COUNT 250 TYPE zset")
            .len(),
        1
    );
    assert_eq!((none.names.len(), none.next), (0, None));
    // Behind the last scan, and a cursor that is none.
    for after in ["2.0.0.0", "x"] {
        let before = server.heard("SCAN").len();
        let page = page(&store, Some(after)).await;
        assert_eq!((page.names.len(), page.next), (0, None), "{after}");
        assert_eq!(server.heard("SCAN").len(), before);
    }
}

/// The cursor of a server is a position in the memory of one process, and after a failover or a restart another one answers. Locks that
/// are held all the time would be left out.
#[tokio::test]
async fn a_list_starts_again_at_a_server_that_it_has_reconnected_to() {
    let server = ScriptedServer::start().await;
    server.on("SCAN 0", "[ '17 [ ] ]");
    let store = server.store().await;
    let first = page(&store, None).await.next;
    server.answers("SCAN 17", &[HANG_UP]);
    store.front.list("s*", first.as_deref()).await.unwrap_err();
    let again = page(&store, first.as_deref()).await.next;
    assert_ne!(again, first);
    assert_eq!(server.heard("SCAN 0").len(), 2);
    // Nor does the number of a server in another cluster map say anything.
    page(&store, Some("1.17.1.5")).await;
    assert_eq!(server.heard("SCAN 0 MATCH s* COUNT 250 TYPE hash").len(), 3);
}

#[tokio::test]
async fn a_list_shows_semaphores_whose_permits_are_held() {
    let server = ScriptedServer::start().await;
    let sets = ["{s:1}", "{s:2}", "{s:3}", "{s:4}", "{other}"].map(|one| format!("{one}:timeout"));
    server.on("SCAN 0", &format!("[ '5 [ {} s:6 ] ]", sets.join(" ")));
    let call = format!("EVALSHA {} 2", scripts::INSPECT_PERMITS.sha());
    server.on(&format!("{call} s:1 "), "[ 1 2 1000 [ a 2000 ] 0 0 ]");
    server.on(&format!("{call} s:2 "), "[ 2 2 1000 [ ] 0 0 ]");
    server.on(&format!("{call} s:3 "), "[ 7 list ]");
    server.on(&format!("{call} s:4 "), "-NOPERM no");
    let store = server.store().await;
    let page = page(&store, Some(SECOND)).await;
    assert_eq!(page.names, ["s:1"]);
    let next = page.next.unwrap();
    assert!(next.starts_with("1.5."), "{next}");
    assert_eq!(server.calls(&scripts::INSPECT_PERMITS).len(), 4);
    // Otherwise the list would be empty although permits are held.
    server.on(&format!("{call} s:4 "), "-OOM full");
    let error = store.front.list("s*", Some(SECOND)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_list_that_the_user_may_not_read_is_an_error_and_not_empty() {
    let no_command = "-NOPERM this user has no permissions to run the 'hscan' command";
    let no_key = "-NOPERM No permissions to access a key";
    for (scan, fields, refused) in [
        ("[ '0 [ s:1 ] ]", no_command, Some(ErrorKind::Refused)),
        ("[ '0 [ s:1 ] ]", no_key, None),
        (
            "[ '0 [ s:1 ] ]",
            "-LOADING no",
            Some(ErrorKind::Unavailable),
        ),
        ("-NOPERM no", "", Some(ErrorKind::Refused)),
        ("[ x [ s:1 ] ]", "", Some(ErrorKind::OutcomeUnknown)),
        ("[ '0 ]", "", Some(ErrorKind::OutcomeUnknown)),
    ] {
        let server = ScriptedServer::start().await;
        server.on("SCAN", scan);
        server.on("HSCAN", fields);
        let store = server.store().await;
        let page = store.front.list("s*", None).await;
        let seen = page
            .map(|page| page.names.len())
            .map_err(|error| error.kind());
        assert_eq!(seen, refused.map_or(Ok(0), Err), "{scan} {fields}");
    }
}

/// Nothing else tells a plain lock from other strings.
#[tokio::test]
async fn a_plain_lock_is_a_short_string_with_a_time_to_live() {
    for (length, left, is_lock) in [
        ("36", "5000", true),
        ("1", "1", true),
        ("128", "5000", true),
        ("129", "5000", false),
        ("0", "5000", false),
        ("36", "0", false),
        ("36", "-1", false),
        ("-WRONGTYPE no", "5000", false),
        ("36", "-NOPERM No permissions to access a key", false),
    ] {
        let server = ScriptedServer::start().await;
        server.on("SCAN 0 MATCH s* COUNT 250 TYPE string", "[ '0 [ s:1 ] ]");
        server.on("STRLEN s:1", length);
        server.on("PTTL s:1", left);
        let plain = server.store().await.plain.unwrap();
        let page = page(&plain, None).await;
        assert_eq!(page.names.len(), usize::from(is_lock), "{length} {left}");
        assert_eq!(page.next, None);
        let no_command = "-NOPERM this user has no permissions to run the 'strlen' command";
        server.on("STRLEN s:1", no_command);
        assert!(plain.front.list("s*", None).await.is_err());
    }
}

#[tokio::test]
async fn locks_are_awaited_on_the_channels_that_somebody_listens_to() {
    let server = ScriptedServer::start().await;
    let some = "[ redisson_lock__channel:{price} redisson_sc:{stock} redisson_topic:{x} ]";
    server.on("PUBSUB CHANNELS redisson_*", some);
    server.on(
        "PUBSUB SHARDCHANNELS redisson_*",
        "[ redisson_rwlock:{order} redisson_sc:{stock} ]",
    );
    let (store, cluster) = (server.store().await, server.cluster().await);
    let plain = store.plain.as_ref().unwrap();
    for (store, expected) in [
        (&store, &["price", "stock"][..]),
        (&cluster, &["order", "price", "stock"][..]),
        (&**plain, &[][..]),
    ] {
        let awaited = store.front.extensions().awaited.unwrap();
        assert_eq!(awaited.awaited().await.unwrap(), expected);
    }
    // One form that cannot be asked for does not hide the other.
    server.on("PUBSUB SHARDCHANNELS redisson_*", "-NOPERM no");
    let awaited = cluster.front.extensions().awaited.unwrap();
    assert_eq!(awaited.awaited().await.unwrap(), ["price", "stock"]);
    server.on("PUBSUB CHANNELS redisson_*", "[ ]");
    assert_eq!(
        awaited.awaited().await.unwrap_err().kind(),
        ErrorKind::Refused
    );
    let older = "-ERR Unknown subcommand or wrong number of arguments for 'shardchannels'. Try PUBSUB HELP.";
    server.on("PUBSUB SHARDCHANNELS redisson_*", older);
    assert_eq!(awaited.awaited().await.unwrap(), [""; 0]);
    let awaited = store.front.extensions().awaited.unwrap();
    assert_eq!(awaited.awaited().await.unwrap(), [""; 0]);
    server.on("PUBSUB CHANNELS redisson_*", "nil");
    assert!(awaited.awaited().await.unwrap_err().outcome_unknown());
}
