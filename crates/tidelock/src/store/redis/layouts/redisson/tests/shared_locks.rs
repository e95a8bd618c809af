//! Sides of read-write locks, and permits of semaphores.

use crate::error::ErrorKind;
use crate::store::redis::keys;
use crate::store::redis::layouts::scripts;
use crate::store::redis::tests::{ask, patient, ticket};
use crate::store::redis::wire::tests::ScriptedServer;
use crate::store::{AttemptRequest, LockKind, Name, PermitChange, Released};

/// A waiter that is patient has a position in the queue for as long as its attempts keep it.
#[tokio::test]
async fn an_attempt_at_a_side_names_its_queue_and_its_hold() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::ACQUIRE_SIDE, "[ 1 '7 0 ]");
    let store = server.store().await;
    let writer = ticket(LockKind::Write).owner;
    let downgrade = AttemptRequest {
        downgrade_of: Some(writer.clone()),
        ..ask(LockKind::Read)
    };
    let mut sent = Vec::new();
    for (ask, kept, of) in [
        (ask(LockKind::Read), "-", "-"),
        (patient(LockKind::Read), "30000", "-"),
        (patient(LockKind::WriteFenced), "30000", "-"),
        (downgrade, "-", writer.text()),
    ] {
        store.front.attempt(&ask).await.outcome.unwrap();
        let owner = ask.ticket.owner.text();
        let (hold, counter) = if ask.ticket.kind.is_read() {
            (format!("{{stock}}:{owner}:rwlock_timeout:1"), "")
        } else {
            ("stock".to_owned(), " redisson_lock_token:{stock}")
        };
        let grave = keys::tombstone(&ask.ticket.name, owner);
        let queue = "tidelock:rw_queue:{stock} tidelock:rw_deadlines:{stock}";
        sent.push(format!(
            "stock {grave} {queue} {hold}{counter} | 30000 {owner} {kept} publish {of}"
        ));
    }
    assert_eq!(server.calls(&scripts::ACQUIRE_SIDE), sent);
}

#[tokio::test]
async fn a_side_and_permits_are_given_back_with_a_tombstone_only_if_they_are_withdrawn() {
    for (kind, script) in [
        (LockKind::Read, &scripts::RELEASE_SIDE),
        (LockKind::Permits(2), &scripts::RELEASE_PERMITS),
    ] {
        let server = ScriptedServer::start().await;
        server.on_script(script, "1");
        let store = server.store().await;
        let ticket = ticket(kind);
        store.front.release(&ticket).await.unwrap();
        store.front.withdraw(&ticket).await.unwrap();
        let owner = ticket.owner.text();
        let (second, named) = if kind.is_read() {
            (keys::read_hold(&ticket).into_owned(), owner.to_owned())
        } else {
            let base = ticket.owner.permit_base();
            ("{stock}:timeout".to_owned(), format!("{base}:2"))
        };
        let grave = keys::tombstone(&ticket.name, owner);
        let sent = [
            format!("stock {second} | {named} publish"),
            format!("stock {second} {grave} | {named} publish 300000"),
        ];
        assert_eq!(server.calls(script), sent);
        for (reply, expected) in [
            ("0", Ok(Released::NotHeld)),
            ("2", Ok(Released::Freed)),
            ("3", Err("freed, but a request on its way")),
            ("4", Err("makes no sense")),
        ] {
            server.on_script(script, reply);
            match (store.front.release(&ticket).await, expected) {
                (Ok(released), Ok(expected)) => assert_eq!(released, expected),
                (Err(error), Err(said)) => {
                    assert!(error.to_string().contains(said), "{error}");
                    assert!(error.outcome_unknown(), "{error}");
                }
                (released, _) => panic!("{kind:?} {reply}: {released:?}"),
            }
        }
    }
}

#[tokio::test]
async fn permits_are_taken_under_what_their_ids_have_in_common() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::ACQUIRE_PERMITS, "1");
    let store = server.store().await;
    let ask = ask(LockKind::Permits(3));
    store.front.attempt(&ask).await.outcome.unwrap();
    let owner = &ask.ticket.owner;
    let grave = keys::tombstone(&ask.ticket.name, owner.text());
    let base = owner.permit_base();
    let sent = format!("stock {{stock}}:timeout {grave} | 30000 {base}:3 publish");
    assert_eq!(server.calls(&scripts::ACQUIRE_PERMITS), [sent]);
}

#[tokio::test]
async fn a_change_of_the_permits_says_whether_it_was_made() {
    let server = ScriptedServer::start().await;
    let store = server.store().await;
    let permits = store.front.extensions().permit_counter.unwrap();
    let plain = store.plain.as_ref().unwrap();
    assert!(plain.front.extensions().permit_counter.is_none());
    // Its waiters have no position in the store.
    assert!(!permits.queues());
    let name = Name::new("stock").unwrap();
    for (change, reply, expected) in [
        (PermitChange::SetIfNew(5), "[ 0 ]", Ok(false)),
        (PermitChange::Set(6), "[ 1 ]", Ok(true)),
        (
            PermitChange::Add(-7),
            "[ 7 list ]",
            Err(ErrorKind::WrongType),
        ),
        (
            PermitChange::Add(8),
            "[ 2 ]",
            Err(ErrorKind::OutcomeUnknown),
        ),
    ] {
        server.on_script(&scripts::CHANGE_PERMITS, reply);
        let changed = permits.change(&name, change).await;
        let changed = changed.map_err(|error| {
            let said = error.to_string();
            assert!(
                said.contains("the key is list") || error.outcome_unknown(),
                "{said}"
            );
            error.kind()
        });
        assert_eq!(changed, expected, "{reply}");
    }
    let sent = ["new 5", "set 6", "add -7", "add 8"]
        .map(|what| format!("stock {{stock}}:timeout | {what} publish"));
    assert_eq!(server.calls(&scripts::CHANGE_PERMITS), sent);
}
