//! Releases, withdrawals and forced releases.

use super::held;
use crate::error::ErrorKind;
use crate::snapshot::{Holder, Snapshot};
use crate::store::redis::keys;
use crate::store::redis::layouts::scripts;
use crate::store::redis::tests::{ask, assert_released, ticket};
use crate::store::redis::wire::tests::ScriptedServer;
use crate::store::{Awaited, LockKind, Name, Released, Ticket};
use crate::types::FencingToken;

#[tokio::test]
async fn a_release_says_no_more_than_its_script_needs() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::RELEASE, "1");
    let store = server.store().await;
    let mut sent = Vec::new();
    for (kind, released, withdrawn) in [
        (LockKind::Mutex, "", " publish 300000"),
        (LockKind::Fenced, "", " publish 300000"),
        (LockKind::Spin, " publish - spins", " publish 300000 spins"),
    ] {
        let ticket = ticket(kind);
        let owner = ticket.owner.text();
        store.front.release(&ticket).await.unwrap();
        sent.push(format!("stock | {owner}{released}"));
        store.front.withdraw(&ticket).await.unwrap();
        // A withdrawal declares what the attempt has declared.
        let grave = keys::tombstone(&ticket.name, owner);
        let declared = if kind.is_fenced() {
            format!("stock {grave}")
        } else {
            "stock".to_owned()
        };
        sent.push(format!("{declared} | {owner}{withdrawn}"));
    }
    assert_eq!(server.calls(&scripts::RELEASE), sent);
}

/// It has declared all that it ever declares, so the server would refuse it again and again.
#[tokio::test]
async fn a_release_with_nothing_more_to_declare_is_sent_once() {
    for (kind, withdraws) in [(LockKind::Mutex, false), (LockKind::Fenced, true)] {
        let server = ScriptedServer::start().await;
        let call = format!("EVALSHA {}", scripts::RELEASE.sha());
        let undeclared = "-ERR script tried accessing undeclared key";
        server.in_turn(&call, &[undeclared, "1"]);
        let store = server.store().await;
        let ticket = ticket(kind);
        let ended = if withdraws {
            store.front.withdraw(&ticket)
        } else {
            store.front.release(&ticket)
        };
        assert!(ended.await.is_err(), "{kind:?}");
        assert_eq!(server.calls(&scripts::RELEASE).len(), 1, "{kind:?}");
    }
}

#[tokio::test]
async fn each_reply_to_a_release_says_what_became_of_the_lock() {
    let awaited = |others, foreign| {
        Released::Awaited(Awaited {
            others,
            foreign,
            ..Awaited::default()
        })
    };
    for (reply, expected) in [
        ("0", Ok(Released::NotHeld)),
        ("1", Ok(Released::Freed)),
        // The user may not publish: the lock is free all the same.
        ("2", Ok(Released::Freed)),
        ("3", Err("freed, but a request on its way")),
        ("4", Ok(Released::WrongType)),
        ("5", Err("makes no sense")),
        ("[ 0 0 ]", Ok(Released::Freed)),
        ("[ 2 1 ]", Ok(awaited(2, 1))),
        ("[ 2 0 ]", Ok(awaited(2, 2))),
        // The server could not tell tidelock's waiters from others.
        ("[ 2 -1 ]", Ok(awaited(2, 0))),
        ("[ 2 ]", Err("makes no sense")),
        ("[ 2 x ]", Err("makes no sense")),
    ] {
        let server = ScriptedServer::start().await;
        server.on_script(&scripts::RELEASE, reply);
        let store = server.store().await;
        let released = store.front.release(&ticket(LockKind::Mutex)).await;
        assert_released(released, expected, reply);
    }
}

/// Nobody counts a client that asks again and again. Otherwise the next task of this process would always ask first.
#[tokio::test]
async fn a_spin_lock_that_another_client_has_held_leaves_it_turns() {
    for (is_other, kind, reply, expected) in [
        (true, LockKind::Spin, "1", Some((0, true))),
        (true, LockKind::Spin, "[ 2 2 ]", Some((2, true))),
        (true, LockKind::Spin, "0", None),
        (true, LockKind::Mutex, "1", None),
        (false, LockKind::Spin, "1", None),
        (false, LockKind::Spin, "[ 2 2 ]", Some((2, false))),
    ] {
        let server = ScriptedServer::start().await;
        let store = server.store().await;
        let ask = ask(LockKind::Spin);
        let other = ticket(LockKind::Spin);
        let holder = if is_other { &other } else { &ask.ticket };
        let reply_to_ask = format!("[ 0 5000 {}:9 ]", holder.owner.client());
        server.on_script(&scripts::ACQUIRE, &reply_to_ask);
        held(&*store.front, &ask).await;
        server.on_script(&scripts::RELEASE, reply);
        let ticket = Ticket { kind, ..ask.ticket };
        let seen = match store.front.release(&ticket).await.unwrap() {
            Released::Awaited(awaited) => Some((awaited.others, awaited.polled)),
            _ => None,
        };
        assert_eq!(seen, expected, "{kind:?} {reply}");
    }
}

#[tokio::test]
async fn a_forced_release_names_the_holders_that_were_seen() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::FORCE_RELEASE, "[ 1 ]");
    let store = server.store().await;
    let name = Name::new("stock").unwrap();
    let mut seen = Snapshot::free("stock");
    seen.holders = vec![Holder::new("u:1", 1), Holder::new("u:2", 1)];
    let mut fenced = seen.clone();
    fenced.token = Some(FencingToken::new(7));
    for seen in [None, Some(&seen), Some(&fenced)] {
        assert!(store.front.force_release(&name, seen).await.unwrap());
    }
    let start = "stock | redisson_lock__channel:{stock} publish";
    let counter = "redisson_lock_token:{stock}";
    let sent = [
        start.to_owned(),
        format!("{start} {counter} - u:1 u:2"),
        format!("{start} {counter} 7 u:1 u:2"),
    ];
    assert_eq!(server.calls(&scripts::FORCE_RELEASE), sent);
    for (reply, expected) in [
        ("[ 0 ]", Ok(false)),
        ("[ 2 ]", Ok(true)),
        ("[ 3 write ]", Err(ErrorKind::WrongType)),
        ("-WRONGTYPE no", Err(ErrorKind::WrongType)),
        ("[ 4 ]", Err(ErrorKind::OutcomeUnknown)),
    ] {
        server.on_script(&scripts::FORCE_RELEASE, reply);
        let freed = store.front.force_release(&name, None).await;
        let freed = freed.map_err(|error| {
            let is_named = error.kind() != ErrorKind::WrongType || error.lock_name().is_some();
            assert!(is_named, "{error}");
            error.kind()
        });
        assert_eq!(freed, expected, "{reply}");
    }
}
