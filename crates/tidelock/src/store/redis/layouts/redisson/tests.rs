//! Tests of Redisson's locks beside a scripted server: attempts, what a refusal says to a waiter, and renewals.

mod releases;
mod shared_locks;

use std::time::Duration;

use crate::error::ErrorKind;
use crate::store::redis::keys;
use crate::store::redis::layouts::scripts;
use crate::store::redis::tests::{ask, patient, ticket};
use crate::store::redis::wire::tests::ScriptedServer;
use crate::store::{
    Attempt, AttemptRequest, Backend, LockKind, Renewal, Renewed, ReplicaAck, Wait,
};

const NO_CHANNELS: &str =
    "-NOPERM this user has no permissions to access one of the channels used as arguments";

/// The refusal of an attempt that finds the lock held.
async fn held(front: &dyn Backend, ask: &AttemptRequest) -> Wait {
    match front.attempt(ask).await.outcome.unwrap() {
        Attempt::Held(wait) => wait,
        Attempt::Acquired(grant) => panic!("{grant:?}"),
    }
}

/// The script tells a caller that sleeps how it hears of the release, and one that spins who the holder is.
#[tokio::test]
async fn an_attempt_says_how_its_caller_waits() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::ACQUIRE, "[ 1 '7 2 ]");
    let store = server.store().await;
    let armed = AttemptRequest {
        armed_by: Some(0),
        ..patient(LockKind::Mutex)
    };
    let fenced = AttemptRequest {
        spare: 2,
        ..ask(LockKind::Fenced)
    };
    let mut sent = Vec::new();
    for (ask, waits) in [
        (&ask(LockKind::Mutex), ""),
        (&ask(LockKind::Spin), " spins"),
        (&patient(LockKind::Spin), " spins"),
        // It has a wake already.
        (&armed, " sleeps"),
    ] {
        store.front.attempt(ask).await.outcome.unwrap();
        sent.push(format!("stock | 30000 {}{waits}", ask.ticket.owner.text()));
    }
    store.front.attempt(&fenced).await.outcome.unwrap();
    let owner = fenced.ticket.owner.text();
    let declared = [
        keys::tombstone(&fenced.ticket.name, owner),
        keys::token(&fenced.ticket.name),
    ];
    sent.push(format!("stock {} | 30000 {owner} - 3", declared.join(" ")));
    assert_eq!(server.heard("SUBSCRIBE"), [""; 0]);
    // From the first waiter on there is a subscription, which those may use who do not wait.
    for ask in [patient(LockKind::Mutex), ask(LockKind::Mutex)] {
        store.front.attempt(&ask).await.outcome.unwrap();
        sent.push(format!("stock | 30000 {} sleeps", ask.ticket.owner.text()));
    }
    assert_eq!(server.calls(&scripts::ACQUIRE), sent);
    let lock = "SUBSCRIBE redisson_lock__channel:{stock}";
    assert_eq!(server.heard(lock), [lock]);
}

#[tokio::test]
async fn a_waiter_listens_to_the_head_of_a_queue_of_redisson_and_asks_again() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::ACQUIRE, "[ 0 5000 u:7 ]");
    let store = server.store().await;
    for (ask, attempts, subscriptions) in [
        (patient(LockKind::Mutex), 2, 1),
        // The subscription is there.
        (patient(LockKind::Mutex), 3, 1),
    ] {
        let wait = held(&*store.front, &ask).await;
        // Redisson may not tell of the release.
        let recheck = wait.recheck.unwrap();
        assert!(recheck <= Duration::from_millis(250), "{recheck:?}");
        assert_eq!(server.calls(&scripts::ACQUIRE).len(), attempts);
        let head = server.heard("SUBSCRIBE redisson_lock__channel:{stock}:u:7");
        assert_eq!(head.len(), subscriptions);
    }
    // Neither does a caller who does not wait subscribe, nor one who hears of no queue.
    for (ask, reply, attempts) in [
        (ask(LockKind::Mutex), "[ 0 5000 u:8 ]", 4),
        (patient(LockKind::Mutex), "[ 0 5000 ' ]", 5),
        (patient(LockKind::Mutex), "[ 0 5000 ]", 6),
    ] {
        server.on_script(&scripts::ACQUIRE, reply);
        held(&*store.front, &ask).await;
        assert_eq!(server.calls(&scripts::ACQUIRE).len(), attempts, "{reply}");
    }
    let other = server.heard("SUBSCRIBE redisson_lock__channel:{stock}:u:8");
    assert_eq!(other, [""; 0]);
}

/// The holder may die without a release, and a limit that was written by hand may be far away.
#[tokio::test]
async fn a_waiter_asks_again_when_the_lease_of_the_holder_ends() {
    let server = ScriptedServer::start().await;
    let store = server.store().await;
    for (kind, reply, recheck) in [
        (LockKind::Mutex, "[ 0 5000 ]", 5001),
        (LockKind::Mutex, "[ 0 -1 ]", 30_000),
        (LockKind::Mutex, "[ 0 60000 ]", 30_000),
        (LockKind::Permits(1), "[ 0 500 ]", 501),
        (LockKind::Permits(1), "[ 0 0 ]", 1),
        (LockKind::Permits(1), "[ 0 -1 ]", 30_000),
        // Its attempts keep its place in the queue.
        (LockKind::Read, "[ 0 20000 ]", 10_000),
        (LockKind::Write, "[ 0 500 ]", 501),
        (LockKind::Spin, "[ 0 5000 u:7 ]", 5001),
    ] {
        server.on("EVALSHA", reply);
        let wait = held(&*store.front, &patient(kind)).await;
        assert_eq!(
            wait.recheck,
            Some(Duration::from_millis(recheck)),
            "{reply}"
        );
        assert_eq!(wait.wake.is_some(), !kind.is_spin(), "{kind:?}");
    }
}

#[tokio::test]
async fn only_a_waiter_that_hears_nothing_polls() {
    let deaf = ScriptedServer::start().await;
    deaf.on("SUBSCRIBE", NO_CHANNELS);
    let hears = ScriptedServer::start().await;
    let stores = [deaf.store().await, hears.store().await];
    for server in [&deaf, &hears] {
        server.on_script(&scripts::ACQUIRE, "[ 0 5000 ]");
    }
    let armed = |ask: AttemptRequest| AttemptRequest {
        armed_by: Some(0),
        ..ask
    };
    for (ask, when_deaf, when_it_hears) in [
        (patient(LockKind::Mutex), 250_050, 5_001_000),
        // Its wake is from a time when it could hear.
        (armed(patient(LockKind::Mutex)), 250_050, 5_001_000),
        (armed(ask(LockKind::Mutex)), 250_050, 5_001_000),
        // It asks again at once, or gives up.
        (ask(LockKind::Mutex), 5_001_000, 5_001_000),
    ] {
        for (store, micros) in stores.iter().zip([when_deaf, when_it_hears]) {
            let wait = held(&*store.front, &ask).await;
            assert_eq!(wait.recheck, Some(Duration::from_micros(micros)));
        }
    }
    for (reply, recheck) in [("[ 0 1000 ]", 100), ("[ 0 60000 ]", 1000), ("[ 0 50 ]", 51)] {
        deaf.on_script(&scripts::ACQUIRE, reply);
        let wait = held(&*stores[0].front, &patient(LockKind::Mutex)).await;
        assert_eq!(
            wait.recheck,
            Some(Duration::from_millis(recheck)),
            "{reply}"
        );
    }
}

fn renewal(kind: LockKind, seconds: u64) -> Renewal {
    Renewal {
        ticket: ticket(kind),
        lease: Duration::from_secs(seconds),
        wish: ReplicaAck::Off,
    }
}

#[tokio::test]
async fn each_lock_of_a_batch_has_its_own_lease_and_its_own_answer() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::RENEW, "[ 1 0 ]");
    server.on_script(&scripts::RENEW_SIDE, "[ 1 ]");
    server.on_script(&scripts::RENEW_PERMITS, "-NOPERM no");
    let store = server.store().await;
    let batch = [
        renewal(LockKind::Mutex, 30),
        renewal(LockKind::Read, 20),
        renewal(LockKind::Fair, 10),
        renewal(LockKind::Permits(2), 5),
    ];
    let renewed = store.front.renew(&batch).await.unwrap();
    match &renewed[..] {
        // The user may have lost the rights to the keys of permits only.
        [
            Renewed::Kept,
            Renewed::Kept,
            Renewed::Gone,
            Renewed::Failed(_),
        ] => {}
        other => panic!("{other:?}"),
    }
    let [lock, reader, fair, permits] = batch.each_ref().map(|one| &one.ticket.owner);
    let sent = format!("stock stock | 30000 {lock} 10000 {fair} publish");
    assert_eq!(server.calls(&scripts::RENEW), [sent]);
    let hold = format!("{{stock}}:{reader}:rwlock_timeout:1");
    let sent = format!("stock {hold} | 20000 {reader} publish");
    assert_eq!(server.calls(&scripts::RENEW_SIDE), [sent]);
    let sent = format!("stock {{stock}}:timeout | 5000 {}:2", permits.permit_base());
    assert_eq!(server.calls(&scripts::RENEW_PERMITS), [sent]);
    // The server refuses everything: an outage, which is reported as one.
    for script in [&scripts::RENEW, &scripts::RENEW_SIDE] {
        server.on_script(script, "-NOPERM no");
    }
    let error = store.front.renew(&batch[..2]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(store.front.renew(&[]).await.unwrap().is_empty());
}

/// The server checks the rights to all keys before a script runs. So one forbidden name would cost the others their leases.
#[tokio::test]
async fn a_refused_batch_is_renewed_lock_by_lock_and_a_single_lock_once() {
    let server = ScriptedServer::start().await;
    let store = server.store().await;
    let batch = [renewal(LockKind::Mutex, 30), renewal(LockKind::Mutex, 30)];
    let call = format!("EVALSHA {}", scripts::RENEW.sha());
    server.in_turn(&call, &["-NOPERM no", "[ 1 ]", "-NOPERM no"]);
    let renewed = store.front.renew(&batch).await.unwrap();
    assert!(
        matches!(&renewed[..], [Renewed::Kept, Renewed::Failed(error)] if error.kind() == ErrorKind::Refused)
    );
    assert_eq!(server.calls(&scripts::RENEW).len(), 3);
    let error = store.front.renew(&batch[..1]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(server.calls(&scripts::RENEW).len(), 4);
    // A reply for another number of locks says nothing of any of them.
    server.on_script(&scripts::RENEW, "[ 1 ]");
    assert!(
        store
            .front
            .renew(&batch)
            .await
            .unwrap_err()
            .outcome_unknown()
    );
}
