//! Tests of plain locks beside a scripted server.

mod tables;
mod transactions;

use std::time::Duration;

use crate::error::ErrorKind;
use crate::snapshot::{Holder, Snapshot};
use crate::store::redis::keys;
use crate::store::redis::layouts::scripts;
use crate::store::redis::tests::{ask, assert_released, patient, ticket};
use crate::store::redis::wire::tests::ScriptedServer;
use crate::store::{Attempt, Awaited, Backend, LockKind, Name, Released, Store};
use crate::types::FencingToken;

const EVENTS: &str = "__keyspace@0__:stock";

/// The callers' side of the store, for its plain locks.
fn plain(store: &Store) -> &dyn Backend {
    &*store.plain.as_ref().unwrap().front
}

#[tokio::test]
async fn an_attempt_declares_what_its_script_needs() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::PLAIN_ACQUIRE, "[ 1 '7 0 ]");
    let (single, cluster) = (server.store().await, server.cluster().await);
    let counter = "tidelock:token:{stock}:stock";
    for (store, kind, is_buried) in [
        (&single, LockKind::Mutex, false),
        (&single, LockKind::Fenced, true),
        (&cluster, LockKind::Mutex, true),
    ] {
        let ask = ask(kind);
        plain(store).attempt(&ask).await.outcome.unwrap();
        let owner = ask.ticket.owner.text();
        let mut declared = vec!["stock".to_owned()];
        if is_buried {
            declared.push(keys::tombstone(&ask.ticket.name, owner));
        }
        if kind.is_fenced() {
            declared.push(counter.to_owned());
        }
        let sent = format!("{} | 30000 {owner}", declared.join(" "));
        assert_eq!(server.calls(&scripts::PLAIN_ACQUIRE).pop(), Some(sent));
    }
}

#[tokio::test]
async fn a_release_counts_those_who_listen_unless_the_server_tells_nobody() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::PLAIN_ACQUIRE, "[ 0 5000 ]");
    server.on_script(&scripts::PLAIN_RELEASE, "1");
    // A waiter learns whether the server publishes events.
    server.on("CONFIG GET", "[ notify-keyspace-events ' ]");
    let (store, cluster) = (server.store().await, server.cluster().await);
    let mut sent = Vec::new();
    for (store, kind, told, buried) in [
        (&store, LockKind::Mutex, true, false),
        (&store, LockKind::Fenced, true, true),
        (&cluster, LockKind::Mutex, true, true),
        (&store, LockKind::Mutex, false, false),
    ] {
        if !told {
            plain(store).attempt(&patient(kind)).await.outcome.unwrap();
        }
        let ticket = ticket(kind);
        let owner = ticket.owner.text();
        plain(store).release(&ticket).await.unwrap();
        plain(store).withdraw(&ticket).await.unwrap();
        let (released, withdrawn) = if told {
            (format!(" {EVENTS}"), EVENTS)
        } else {
            (String::new(), "-")
        };
        let grave = keys::tombstone(&ticket.name, owner);
        let declared = if buried {
            format!("stock {grave}")
        } else {
            "stock".to_owned()
        };
        sent.push(format!("stock | {owner}{released}"));
        sent.push(format!("{declared} | {owner} {withdrawn} 300000"));
    }
    assert_eq!(server.calls(&scripts::PLAIN_RELEASE), sent);
}

#[tokio::test]
async fn each_reply_to_a_release_says_what_became_of_a_plain_lock() {
    let awaited = |others, polled| {
        Released::Awaited(Awaited {
            others,
            polled,
            ..Awaited::default()
        })
    };
    for (holder, reply, expected) in [
        (None, "0", Ok(Released::NotHeld)),
        (None, "1", Ok(Released::Freed)),
        (None, "[ 0 ]", Ok(Released::Freed)),
        (None, "[ 2 ]", Ok(awaited(2, false))),
        // Another client that polls, which nobody can count.
        (Some("redsync"), "1", Ok(awaited(0, true))),
        (Some("redsync"), "0", Ok(Released::NotHeld)),
        (None, "3", Err("freed, but a request on its way")),
        (None, "2", Err("makes no sense")),
        (None, "[ x ]", Err("makes no sense")),
    ] {
        let server = ScriptedServer::start().await;
        let store = server.store().await;
        if let Some(holder) = holder {
            let refusal = format!("[ 0 5000 {holder} ]");
            server.on_script(&scripts::PLAIN_ACQUIRE, &refusal);
            let outcome = plain(&store).attempt(&ask(LockKind::Mutex)).await.outcome;
            assert!(
                matches!(&outcome, Ok(Attempt::Held(wait)) if wait.recheck == Some(Duration::from_millis(5001))),
                "{outcome:?}"
            );
        }
        server.on_script(&scripts::PLAIN_RELEASE, reply);
        let released = plain(&store).release(&ticket(LockKind::Mutex)).await;
        assert_released(released, expected, reply);
    }
}

/// The next process to release learns in this way when the other client has had its turn.
#[tokio::test]
async fn a_release_beside_a_client_that_polls_listens_to_the_events_of_the_lock() {
    let server = ScriptedServer::start().await;
    server.on("CONFIG GET", "[ notify-keyspace-events Kgx ]");
    server.on_script(&scripts::PLAIN_ACQUIRE, "[ 0 5000 redsync ]");
    server.on_script(&scripts::PLAIN_RELEASE, "1");
    let store = server.store().await;
    let ask = ask(LockKind::Mutex);
    plain(&store).attempt(&ask).await.outcome.unwrap();
    assert_eq!(server.heard("SUBSCRIBE"), [""; 0]);
    plain(&store).release(&ask.ticket).await.unwrap();
    server.hears(&format!("SUBSCRIBE {EVENTS}"), 1).await;
}

/// A plain lock has one holder. What was seen without one is not as it was seen, whatever there is now.
#[tokio::test]
async fn a_forced_release_asks_only_for_a_lock_that_was_seen_with_one_holder() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::PLAIN_FORCE_RELEASE, "1");
    let store = server.store().await;
    let name = Name::new("stock").unwrap();
    let seen = |owners: &[&str], token: Option<u64>| {
        let mut seen = Snapshot::free("stock");
        seen.holders = owners.iter().map(|owner| Holder::new(*owner, 1)).collect();
        seen.token = token.map(FencingToken::new);
        Some(seen)
    };
    for (seen, freed) in [
        (None, true),
        (seen(&["me"], None), true),
        (seen(&["me"], Some(7)), true),
        (seen(&[], Some(7)), false),
        (seen(&["me", "you"], None), false),
    ] {
        let asked = plain(&store).force_release(&name, seen.as_ref());
        assert_eq!(asked.await.unwrap(), freed, "{seen:?}");
    }
    let sent = [
        "stock | ",
        "stock | me",
        "stock | me tidelock:token:{stock}:stock 7",
    ];
    assert_eq!(server.calls(&scripts::PLAIN_FORCE_RELEASE), sent);
    for (reply, expected) in [("0", Ok(false)), ("2", Err(ErrorKind::OutcomeUnknown))] {
        server.on_script(&scripts::PLAIN_FORCE_RELEASE, reply);
        let freed = plain(&store).force_release(&name, None).await;
        assert_eq!(freed.map_err(|error| error.kind()), expected);
    }
}

/// Only a refusal of scripts themselves is a reason to go without: a server that is full would run the transaction neither.
#[tokio::test]
async fn another_error_of_a_script_is_reported_and_the_next_request_uses_one_again() {
    let server = ScriptedServer::start().await;
    server.in_turn("EVALSHA", &["-OOM full", "1"]);
    let store = server.store().await;
    let ask = ask(LockKind::Mutex);
    let error = plain(&store).attempt(&ask).await.outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    plain(&store).attempt(&ask).await.outcome.unwrap();
    assert_eq!(server.calls(&scripts::PLAIN_ACQUIRE).len(), 2);
    assert_eq!(server.heard("WATCH"), [""; 0]);
}
