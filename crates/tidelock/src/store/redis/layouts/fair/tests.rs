//! Tests of fair locks beside a scripted server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::beats::RedisBeat;
use crate::error::ErrorKind;
use crate::store::beats::{BEAT, Beat};
use crate::store::redis::keys;
use crate::store::redis::layouts::scripts;
use crate::store::redis::pubsub::channel_router::ChannelRouter;
use crate::store::redis::pubsub::subscriber::{PublishModes, Subscriber};
use crate::store::redis::tests::{LEASE, ask, patient, ticket};
use crate::store::redis::topology::connection::{Connection, ConnectionRuntime};
use crate::store::redis::topology::router::Router;
use crate::store::redis::topology::tests::endpoint_to;
use crate::store::redis::wire::tests::{LIMIT, ScriptedServer};
use crate::store::{Attempt, AttemptRequest, LockKind, Name, OwnerId, Released, Ticket, Wake};
use crate::types::OwnerMint;

/// The keys of a queue, as the scripts get them.
const QUEUE: &str = "redisson_lock_queue:{stock} redisson_lock_timeout:{stock}";

#[tokio::test]
async fn an_attempt_at_a_fair_lock_says_whether_its_caller_queues() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::FAIR_ACQUIRE, "[ 1 '7 0 ]");
    let store = server.store().await;
    let again = AttemptRequest {
        armed_by: Some(0),
        ..patient(LockKind::Fair)
    };
    let mut sent = Vec::new();
    for (ask, waits) in [
        (ask(LockKind::Fair), "- -"),
        (ask(LockKind::FairFenced), "- -"),
        (patient(LockKind::Fair), "queues -"),
        (again, "queues again"),
    ] {
        store.front.attempt(&ask).await.outcome.unwrap();
        let owner = ask.ticket.owner.text();
        let grave = keys::tombstone(&ask.ticket.name, owner);
        let counter = if ask.ticket.kind.is_fenced() {
            " redisson_lock_token:{stock}"
        } else {
            ""
        };
        let beside = "tidelock:alive:{stock} tidelock:granted:{stock}";
        sent.push(format!(
            "stock {grave} {QUEUE} {beside}{counter} | 30000 {owner} {waits} publish"
        ));
    }
    assert_eq!(server.calls(&scripts::FAIR_ACQUIRE), sent);
}

/// The script grants the lock only to a waiter whose process hears of its turn.
#[tokio::test]
async fn a_waiter_hears_of_its_turns_or_gets_an_error() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::FAIR_ACQUIRE, "[ 0 5000 ]");
    let store = server.store().await;
    let ask = patient(LockKind::Fair);
    let turns = keys::turns::turn_channel(&ask.ticket.name, ask.ticket.owner.client());
    let hears = |kind| {
        let ticket = Ticket {
            kind,
            ..ask.ticket.clone()
        };
        let releases = store.front.extensions().releases.unwrap();
        releases.hears_turns(&ticket)
    };
    assert!(!hears(LockKind::Fair));
    let outcome = store.front.attempt(&ask).await.outcome.unwrap();
    let Attempt::Held(wait) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(wait.wake.is_some());
    assert_eq!(wait.recheck, Some(Duration::from_millis(5001)));
    assert!(hears(LockKind::Fair) && !hears(LockKind::Mutex));
    let subscribed = format!("SUBSCRIBE {turns}");
    assert_eq!(server.heard(&subscribed), [subscribed.as_str()]);
    // The holder is a client of tidelock, so its own channel is not needed.
    let own = keys::fair_channel(&ask.ticket.name, ask.ticket.owner.text());
    assert_eq!(server.heard(&format!("SUBSCRIBE {own}")), [""; 0]);
    assert_eq!(server.calls(&scripts::FAIR_ACQUIRE).len(), 1);

    let refuses = ScriptedServer::start().await;
    refuses.on("SUBSCRIBE", "-NOPERM no");
    let store = refuses.store().await;
    let error = store.front.attempt(&ask).await.outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.to_string().contains("&redisson_lock__channel:*"),
        "{error}"
    );
    assert_eq!(refuses.calls(&scripts::FAIR_ACQUIRE), [""; 0]);
}

/// Its user may lack the right to listen. A lease that has 2 ms left is not the sign of another waiter's turn, -2.
#[tokio::test]
async fn a_caller_that_does_not_wait_for_a_fair_lock_subscribes_to_nothing() {
    let server = ScriptedServer::start().await;
    let store = server.store().await;
    for (left, recheck) in [(2, Duration::from_millis(3)), (-2, LEASE)] {
        server.on_script(&scripts::FAIR_ACQUIRE, &format!("[ 0 {left} ]"));
        let outcome = store.front.attempt(&ask(LockKind::Fair)).await.outcome;
        let Ok(Attempt::Held(wait)) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(wait.wake.is_none());
        assert_eq!(wait.recheck, Some(recheck), "{left}");
    }
    assert_eq!(server.heard("SUBSCRIBE"), [""; 0]);
}

#[tokio::test]
async fn a_waiter_behind_redisson_listens_to_its_own_channel_and_asks_again() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::FAIR_ACQUIRE, "[ 0 -2 x ]");
    let store = server.store().await;
    let ask = patient(LockKind::Fair);
    let own = keys::fair_channel(&ask.ticket.name, ask.ticket.owner.text());
    // The second attempt finds the subscription.
    for attempts in [2, 3] {
        let outcome = store.front.attempt(&ask).await.outcome.unwrap();
        assert!(
            matches!(&outcome, Attempt::Held(wait) if wait.recheck == Some(Duration::from_secs(30))),
            "{outcome:?}"
        );
        let calls = server.calls(&scripts::FAIR_ACQUIRE);
        assert_eq!(calls.len(), attempts);
        assert!(calls[1].ends_with("queues again publish"), "{calls:?}");
        assert_eq!(server.heard(&format!("SUBSCRIBE {own}")).len(), 1);
    }
    // A caller who does not wait has no place behind Redisson.
    let at_once = AttemptRequest {
        patience: Duration::ZERO,
        ticket: ticket(LockKind::Fair),
        ..ask
    };
    store.front.attempt(&at_once).await.outcome.unwrap();
    assert_eq!(server.calls(&scripts::FAIR_ACQUIRE).len(), 4);
}

/// While a slot migrates, a node refuses a script with several keys of which one is missing.
#[tokio::test]
async fn a_release_declares_the_queue_unless_a_node_may_refuse_it() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::FAIR_RELEASE, "1");
    let ticket = ticket(LockKind::Fair);
    let owner = ticket.owner.text();
    let grave = keys::tombstone(&ticket.name, owner);
    let mut sent = Vec::new();
    for (store, released, how) in [
        (
            server.store().await,
            format!("stock {QUEUE} tidelock:granted:{{stock}}"),
            "publish",
        ),
        (server.cluster().await, "stock".to_owned(), "settling"),
    ] {
        store.front.release(&ticket).await.unwrap();
        store.front.withdraw(&ticket).await.unwrap();
        let args = format!("{owner} redisson_lock__channel:{{stock}} {how}");
        sent.push(format!("{released} | {args}"));
        let all = format!("stock {QUEUE} tidelock:granted:{{stock}} {grave}");
        sent.push(format!("{all} | {args} 300000"));
    }
    assert_eq!(server.calls(&scripts::FAIR_RELEASE), sent);
}

#[tokio::test]
async fn each_reply_to_a_release_says_what_became_of_a_fair_lock() {
    let server = ScriptedServer::start().await;
    let store = server.store().await;
    for (reply, expected) in [
        ("0", Ok(Released::NotHeld)),
        ("1", Ok(Released::Freed)),
        ("4", Ok(Released::WrongType)),
        ("3", Err("freed, but a request on its way")),
        ("2", Err("makes no sense")),
    ] {
        server.on_script(&scripts::FAIR_RELEASE, reply);
        match (store.front.release(&ticket(LockKind::Fair)).await, expected) {
            (Ok(released), Ok(expected)) => assert_eq!(released, expected),
            (Err(error), Err(said)) => {
                assert!(error.outcome_unknown(), "{error}");
                assert!(error.to_string().contains(said), "{error}");
            }
            (released, _) => panic!("{reply}: {released:?}"),
        }
    }
}

/// The beats of one process, whose waiters have armed their wakes.
struct BeatingProcess {
    beat: RedisBeat,
    name: Name,
    /// The youngest waiter is the first.
    owners: Vec<OwnerId>,
}

impl BeatingProcess {
    fn at(server: &ScriptedServer) -> Self {
        let (endpoint, background) = endpoint_to(server.address(), LIMIT);
        let channel_router = ChannelRouter::One(Arc::clone(&endpoint));
        let ways = PublishModes::Plain;
        let subscriber = Subscriber::new(&channel_router, ways, &background);
        let (mint, mut owners) = (OwnerMint::new(), Vec::new());
        owners.resize_with(3, || mint.fresh());
        owners.reverse();
        Self {
            beat: RedisBeat {
                router: Router::One(Connection::new(endpoint, ConnectionRuntime::Caller)),
                channel_router,
                ways,
                subscriber: Arc::new(subscriber),
            },
            name: Name::new("stock").unwrap(),
            owners,
        }
    }

    fn turns(&self) -> String {
        keys::turns::turn_channel(&self.name, self.owners[0].client())
    }

    /// The wakes of its waiters.
    async fn wakes(&self) -> Vec<Wake> {
        let turns = self.turns();
        let mut wakes = Vec::new();
        for owner in &self.owners {
            let own = keys::fair_channel(&self.name, owner.text());
            let armed = self.beat.subscriber.arm_for_turn(&turns, &own, LIMIT);
            wakes.push(armed.await.unwrap());
        }
        wakes
    }

    async fn beats(&self) -> Duration {
        self.beat.beat(&self.name, &self.owners, &mut ()).await
    }
}

/// Tells for each of them whether it was woken.
fn woken(wakes: &mut [Wake]) -> Vec<bool> {
    let each = wakes.iter_mut();
    each.map(|wake| wake.woken().now_or_never().is_some())
        .collect()
}

#[tokio::test]
async fn a_beat_shows_the_waiters_of_the_process_and_wakes_those_that_lost_their_place() {
    let server = ScriptedServer::start().await;
    let process = BeatingProcess::at(&server);
    let mut wakes = process.wakes().await;
    let [youngest, second, oldest] = &process.owners[..] else {
        panic!("three waiters");
    };
    let reply = format!("[ 500 0 {second} ]");
    server.on_script(&scripts::FAIR_BEAT, &reply);
    assert_eq!(process.beats().await, Duration::from_millis(501));
    assert_eq!(woken(&mut wakes), [false, true, false]);
    let client = oldest.client();
    let sent = format!(
        "stock {QUEUE} tidelock:alive:{{stock}} | publish {client} {youngest} {second} {oldest}"
    );
    assert_eq!(server.calls(&scripts::FAIR_BEAT), [sent]);
    for (reply, pause) in [
        ("[ 500 3 ]", Duration::from_millis(5)),
        // The process hears of its turns, so none of its waiters asks out of turn.
        ("[ -2 0 ]", Duration::from_secs(1)),
        ("[ x 0 ]", BEAT),
        ("[ 500 ]", BEAT),
        ("-OOM full", BEAT),
    ] {
        server.on_script(&scripts::FAIR_BEAT, reply);
        assert_eq!(process.beats().await, pause, "{reply}");
        assert_eq!(woken(&mut wakes), [false; 3], "{reply}");
    }
}

/// A release passes over such a process, and its waiters would sleep for as long as they knew the lock to be held.
#[tokio::test]
async fn the_oldest_waiter_of_a_deaf_process_asks_once_the_lock_is_free() {
    let server = ScriptedServer::start().await;
    let process = BeatingProcess::at(&server);
    let mut wakes = process.wakes().await;
    // From now on it hears nothing. The waiters have their wakes from before.
    process.beat.subscriber.close();
    for (reply, expected) in [
        ("[ 500 0 ]", [false; 3]),
        ("[ -2 0 ]", [false, false, true]),
    ] {
        server.on_script(&scripts::FAIR_BEAT, reply);
        process.beats().await;
        assert_eq!(woken(&mut wakes), expected, "{reply}");
    }
}
