//! A look at one lock or semaphore, and the details of the own process, beside a scripted server.

use std::time::{Duration, UNIX_EPOCH};

use crate::error::ErrorKind;
use crate::snapshot::{ClientInfo, PermitCount};
use crate::store::ClientId;
use crate::store::redis::layouts::scripts;
use crate::store::redis::tests::stock;
use crate::store::redis::wire::tests::ScriptedServer;
use crate::types::FencingToken;

const CLIENT: &str = "0123abcd-0123-8123-8123-0123456789ab";

#[tokio::test]
async fn a_look_at_a_lock_shows_its_holder_and_those_who_wait() {
    let server = ScriptedServer::start().await;
    let reply = format!("[ [ {CLIENT}:1 2 ] 5000 '7 3 [ u:9 u:8 ] ]");
    server.on_script(&scripts::INSPECT, &reply);
    let details = format!("HGETALL tidelock:client:{CLIENT}");
    server.on(&details, "[ host web pid 7 ]");
    let store = server.store().await;
    let seen = store.front.inspect(&stock()).await.unwrap();
    assert_eq!((seen.name.as_str(), seen.holders[0].holds), ("stock", 2));
    let host = seen.holders[0]
        .client
        .as_ref()
        .map(|client| client.host.as_str());
    assert_eq!(host, Some("web"));
    assert_eq!(seen.expires_in, Some(Duration::from_secs(5)));
    assert_eq!(seen.token.map(FencingToken::get), Some(7));
    assert_eq!(seen.waiters, Some(3));
    assert_eq!(seen.queue, ["u:9", "u:8"]);
    let sent = "stock | redisson_lock_token:{stock} redisson_lock__channel:{stock} numsub";
    assert_eq!(server.calls(&scripts::INSPECT), [sent]);
    // The lock is shown although the user may not read who the client is.
    server.on(&details, "-NOPERM no");
    let seen = store.front.inspect(&stock()).await.unwrap();
    assert!(seen.is_locked() && seen.holders[0].client.is_none());
}

#[tokio::test]
async fn a_look_at_a_free_lock_shows_what_the_server_tells() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::INSPECT, "[ [ ] -2 nil -1 [ ] ]");
    server.on_script(&scripts::PLAIN_INSPECT, "[ nil -2 nil ]");
    let store = server.store().await;
    let plain = store.plain.unwrap();
    for front in [&store.front, &plain.front] {
        let seen = front.inspect(&stock()).await.unwrap();
        assert!(!seen.is_locked());
        assert_eq!(
            (seen.expires_in, seen.token, seen.waiters),
            (None, None, None)
        );
    }
    for script in [&scripts::INSPECT, &scripts::PLAIN_INSPECT] {
        server.on_script(script, "[ 1 ]");
    }
    let error = store.front.inspect(&stock()).await.unwrap_err();
    assert_eq!(
        (error.outcome_unknown(), error.lock_name()),
        (true, Some("stock"))
    );
    assert!(
        plain
            .front
            .inspect(&stock())
            .await
            .unwrap_err()
            .outcome_unknown()
    );
}

#[tokio::test]
async fn a_look_at_a_plain_lock_shows_its_holder() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::PLAIN_INSPECT, "[ redsync 5000 '7 ]");
    let store = server.store().await;
    let seen = store.plain.unwrap().front.inspect(&stock()).await.unwrap();
    assert_eq!(
        (&*seen.holders[0].owner, seen.holders[0].holds),
        ("redsync", 1)
    );
    assert_eq!(seen.expires_in, Some(Duration::from_secs(5)));
    assert_eq!(seen.token.map(FencingToken::get), Some(7));
    let sent = "stock | tidelock:token:{stock}:stock";
    assert_eq!(server.calls(&scripts::PLAIN_INSPECT), [sent]);
}

/// A semaphore and a latch are the same kind of key, a number. Permits that are out, and waiters, tell which of them it is.
#[tokio::test]
async fn a_number_is_shown_as_what_it_may_be() {
    let both = Some(PermitCount::new(3, 3));
    for (reply, permits, latch, waiters) in [
        ("[ 3 3 1000 [ ] 0 0 ]", both, Some(3), 0),
        ("[ 3 3 1000 [ ] 0 2 ]", None, Some(3), 2),
        ("[ 3 3 1000 [ ] 1 2 ]", both, None, 1),
        (
            "[ 3 5 1000 [ a 3000 b 4000 ] 0 2 ]",
            Some(PermitCount::new(3, 5)),
            None,
            0,
        ),
        (
            "[ 0 0 1000 [ ] 0 2 ]",
            Some(PermitCount::new(0, 0)),
            None,
            0,
        ),
        (
            "[ -1 1 1000 [ ] 0 2 ]",
            Some(PermitCount::new(-1, 1)),
            None,
            0,
        ),
        ("[ nil 0 1000 [ ] 0 2 ]", None, None, 0),
    ] {
        let server = ScriptedServer::start().await;
        server.on_script(&scripts::INSPECT, "-WRONGTYPE no");
        server.on_script(&scripts::INSPECT_PERMITS, reply);
        let store = server.store().await;
        let seen = store.front.inspect(&stock()).await.unwrap();
        assert_eq!((seen.permits, seen.latch), (permits, latch), "{reply}");
        assert_eq!(seen.waiters, Some(waiters), "{reply}");
        let sent = "stock {stock}:timeout | redisson_sc:{stock} redisson_countdownlatch__channel__{stock} numsub";
        assert_eq!(server.calls(&scripts::INSPECT_PERMITS), [sent]);
    }
}

/// Only another type of key may be a semaphore. The error of a look at one would hide what the server has said.
#[tokio::test]
async fn a_refused_look_at_a_lock_is_no_look_at_a_semaphore() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::INSPECT, "-NOPERM no");
    let store = server.store().await;
    let error = store.front.inspect(&stock()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.lock_name()),
        (ErrorKind::Refused, Some("stock"))
    );
    assert_eq!(server.calls(&scripts::INSPECT_PERMITS), [""; 0]);
}

#[tokio::test]
async fn permits_end_with_the_last_of_their_leases() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::INSPECT, "-WRONGTYPE no");
    let store = server.store().await;
    for (end, left) in [
        ("4000", Some(3000)),
        ("1000", Some(0)),
        ("900", None),
        // Redisson's end of a permit without one.
        ("922337203685477", None),
        ("922337203685476", Some(922_337_203_684_476)),
    ] {
        let reply = format!("[ 3 5 1000 [ a 2000 b {end} ] 0 0 ]");
        server.on_script(&scripts::INSPECT_PERMITS, &reply);
        let seen = store.front.inspect(&stock()).await.unwrap();
        assert_eq!(seen.expires_in, left.map(Duration::from_millis), "{end}");
        assert_eq!(seen.holders.len(), 2);
    }
    for (reply, kind) in [
        ("[ 7 list ]", ErrorKind::WrongType),
        ("[ 1 ]", ErrorKind::OutcomeUnknown),
    ] {
        server.on_script(&scripts::INSPECT_PERMITS, reply);
        let error = store.front.inspect(&stock()).await.unwrap_err();
        assert_eq!((error.kind(), error.lock_name()), (kind, Some("stock")));
    }
}

#[tokio::test]
async fn the_details_of_a_process_are_published_until_it_takes_them_back() {
    let server = ScriptedServer::start().await;
    let store = server.store().await;
    let id = ClientId::random();
    let info = ClientInfo::new("web", 7, "shop", UNIX_EPOCH + Duration::from_secs(5));
    store.front.announce(&id, Some(&info)).await.unwrap();
    let named = info.run_by(Some("deploy"));
    store.front.announce(&id, Some(&named)).await.unwrap();
    let key = format!("tidelock:client:{}", id.as_str());
    let details = "host web pid 7 program shop since 5000";
    let put = format!(
        "EVAL {} 1 {key} 3600000 {details}",
        scripts::ANNOUNCE.source
    );
    let sent = [put.clone(), format!("{put} user deploy")];
    assert_eq!(server.heard("EVAL"), sent);
    store.front.announce(&id, None).await.unwrap();
    assert_eq!(server.heard("PEXPIRE"), [format!("PEXPIRE {key} 0")]);
}
