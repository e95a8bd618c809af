//! The rights that Redisson's locks need.

use super::{REFUSED, finding, healthy};
use crate::error::ErrorKind;
use crate::snapshot::Severity;
use crate::store::redis::layouts::scripts;
use crate::store::redis::wire::script::Script;

use Severity::{Advice, Danger, Good};

fn call(script: &Script) -> String {
    format!("EVALSHA {}", script.sha())
}

/// The finding about a subject at a server that refuses such requests.
async fn without(request: &str, subject: &str) -> (Severity, String) {
    let server = healthy().await;
    server.on(request, REFUSED);
    let seen = finding(&server.store().await, &format!("rights: {subject}")).await;
    assert!(seen.advice.is_some(), "{request}");
    (seen.severity, seen.found)
}

#[tokio::test]
async fn a_user_who_cannot_lock_or_wake_waiters_is_a_danger() {
    let deaf = "messages can be sent, and not be heard";
    for (request, subject, found) in [
        (&*call(&scripts::ACQUIRE), "scripts", "refused"),
        (&*call(&scripts::RENEW), "scripts", "refused"),
        (&*call(&scripts::RELEASE), "scripts", "refused"),
        ("PUBLISH redisson_lock", "channels", "refused"),
        ("SUBSCRIBE redisson_lock", "channels", deaf),
    ] {
        let seen = without(request, subject).await;
        assert_eq!(seen, (Danger, found.to_owned()), "{request}");
    }
}

/// A user who lacks one right must learn which part of the library does without it.
#[tokio::test]
async fn a_right_that_only_some_locks_need_is_named() {
    for (request, subject, found) in [
        ("PUBSUB numsub tidelock", "counting", "refused"),
        ("SUBSCRIBE tidelock", "counting", "refused"),
        (&*call(&scripts::TRY_COUNTER), "fencing", "refused"),
        ("HLEN", "other locks", "refused: hlen"),
        ("LINDEX", "other locks", "refused: lindex"),
        ("PUBLISH redisson_rw", "other locks", "refused: PUBLISH"),
        ("RPUSH", "fair locks", "refused: RPUSH"),
        ("ZADD redisson_lock", "fair locks", "refused: ZADD"),
        ("HKEYS", "read-write locks", "refused: HKEYS"),
        ("DECR ", "latches", "refused: DECR"),
        ("PUBLISH redisson_count", "latches", "refused: PUBLISH"),
        ("DECRBY", "semaphores", "refused: DECRBY"),
        ("ZCARD {", "semaphores", "refused: ZCARD"),
        ("PUBLISH redisson_sc", "semaphores", "refused: PUBLISH"),
        ("WAIT", "replicas", "refused"),
    ] {
        let seen = without(request, subject).await;
        assert_eq!(seen, (Advice, found.to_owned()), "{request}");
    }
}

#[tokio::test]
async fn what_an_operator_may_not_do_is_named() {
    for (request, found) in [
        (&*call(&scripts::INSPECT), "show (+hgetall)"),
        ("GET redisson", "tokens (+get)"),
        ("PUBSUB numsub redisson", "waiters (+pubsub|numsub)"),
        ("SCAN", "ls (+scan)"),
        ("HSCAN", "ls (+hscan)"),
        (&*call(&scripts::FORCE_RELEASE), "unlock (+type +del)"),
    ] {
        let seen = without(request, "operators").await;
        assert_eq!(seen, (Advice, format!("refused: {found}")), "{request}");
    }
}

/// The script replies for each lock by itself, also with an error.
#[tokio::test]
async fn a_renewal_that_fails_within_its_script_is_found() {
    for (reply, severity) in [("[ NOPERM ]", Danger), ("[ 1 ]", Good), ("[ 0 ]", Good)] {
        let server = healthy().await;
        server.on_script(&scripts::RENEW, reply);
        let seen = finding(&server.store().await, "rights: scripts").await;
        assert_eq!(seen.severity, severity, "{reply}");
    }
}

/// Otherwise the doctor would leave a number without a time to live, or look for a lock that it does not have.
#[tokio::test]
async fn the_doctor_does_not_go_on_with_what_it_could_not_make() {
    let server = healthy().await;
    server.on("SET tidelock:latch", REFUSED);
    server.on("SET tidelock:semaphore", REFUSED);
    server.on_script(&scripts::ACQUIRE, REFUSED);
    let store = server.store().await;
    for subject in ["rights: latches", "rights: semaphores"] {
        assert_eq!(finding(&store, subject).await.found, "refused: SET");
    }
    for request in ["DECR".to_owned(), call(&scripts::FORCE_RELEASE)] {
        assert_eq!(server.heard(&request), [""; 0]);
    }
}

#[tokio::test]
async fn a_counter_that_moves_by_one_only_costs_speed_and_no_token() {
    let server = healthy().await;
    server.on_script(&scripts::TRY_COUNTER, "2");
    let seen = finding(&server.store().await, "rights: fencing").await;
    assert_eq!(seen.severity, Advice);
    assert_eq!(seen.advice.as_deref(), Some("allow +incrby"));
}

/// Another finding says that the server is a replica.
#[tokio::test]
async fn a_replica_that_waits_for_no_replicas_is_no_missing_right() {
    let server = healthy().await;
    server.on("WAIT", "-ERR WAIT cannot be used with replica instances.");
    let seen = finding(&server.store().await, "rights: replicas").await;
    assert_eq!(seen.severity, Good);
    server.on("WAIT", "-LOADING no");
    let error = server.store().await.front.diagnose().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

/// Dragonfly refuses keys that a script does not declare. The locks of this user declare them then.
#[tokio::test]
async fn the_probe_declares_its_tombstone_once_the_server_asks_for_it() {
    let server = healthy().await;
    let undeclared = "-ERR script tried accessing undeclared key";
    server.in_turn(&call(&scripts::ACQUIRE), &[undeclared, "1"]);
    let seen = finding(&server.store().await, "rights: scripts").await;
    assert_eq!(seen.severity, Good);
    let is_declared = |call: &String| call.contains(" tidelock:withdrawn:");
    let acquired = server.calls(&scripts::ACQUIRE);
    let first_two: Vec<bool> = acquired.iter().take(2).map(is_declared).collect();
    assert_eq!(first_two, [false, true], "{acquired:?}");
    assert!(is_declared(&server.calls(&scripts::RELEASE)[0]));
}

#[tokio::test]
async fn another_refusal_of_the_probe_is_no_reason_to_declare_more() {
    let server = healthy().await;
    server.on_script(&scripts::ACQUIRE, REFUSED);
    finding(&server.store().await, "rights: scripts").await;
    let acquired = server.calls(&scripts::ACQUIRE);
    let is_declared = |call: &String| call.contains(" tidelock:withdrawn:");
    assert!(!acquired.iter().any(is_declared), "{acquired:?}");
}

/// Another name may be a lock of the user, or one that the user may not touch.
#[tokio::test]
async fn the_probe_goes_on_with_the_lock_that_it_has_taken() {
    let server = healthy().await;
    finding(&server.store().await, "rights: scripts").await;
    let locks = |script: &Script| {
        let calls = server.calls(script).into_iter();
        let locks = calls.map(|call| call.split(' ').next().unwrap().to_owned());
        locks.collect::<Vec<_>>()
    };
    let acquired = locks(&scripts::ACQUIRE);
    let [first, second] = &acquired[..] else {
        panic!("two probes: {acquired:?}");
    };
    assert!(first.contains("probe:{") && first != second);
    for (script, lock) in [
        (&scripts::RENEW, first),
        (&scripts::RELEASE, first),
        (&scripts::INSPECT, second),
        (&scripts::FORCE_RELEASE, second),
    ] {
        assert_eq!(locks(script), [lock.as_str()]);
    }
    let listed = server.heard(&format!("HSCAN {second} "));
    assert_eq!(listed.len(), 1);
}

/// In a cluster there are two forms of messages, and a client that hears one of them is woken by it only.
#[tokio::test]
async fn a_form_of_messages_that_is_missing_in_a_cluster_is_found() {
    for (request, subject, found) in [
        ("SPUBLISH redisson_lock", "channels", "refused: SPUBLISH"),
        (
            "SSUBSCRIBE redisson_lock",
            "channels",
            "messages can be sent in both forms, and not be heard in both",
        ),
        ("PUBSUB shardnumsub tidelock", "counting", "refused"),
        (
            "PUBSUB shardnumsub redisson",
            "operators",
            "refused: waiters (+pubsub|shardnumsub)",
        ),
        (
            "SPUBLISH redisson_rwlock",
            "other locks",
            "refused: SPUBLISH",
        ),
    ] {
        let server = healthy().await;
        server.on(request, REFUSED);
        let store = server.cluster().await;
        let seen = finding(&store, &format!("rights: {subject}")).await;
        assert_eq!(seen.found, found, "{request}");
        assert_ne!(seen.severity, Good, "{request}");
    }
}
