//! A user who is not allowed to run scripts.

use std::time::Duration;

use super::plain;
use crate::error::ErrorKind;
use crate::store::redis::keys;
use crate::store::redis::layouts::scripts;
use crate::store::redis::tests::{ask, ticket};
use crate::store::redis::wire::tests::ScriptedServer;
use crate::store::{
    Attempt, AttemptRequest, LockKind, Name, Released, Renewal, Renewed, ReplicaAck, Store, Ticket,
};
use crate::types::FencingToken;

/// A server that refuses scripts, and a store there.
async fn without_scripts() -> (ScriptedServer, Store) {
    let server = ScriptedServer::start().await;
    let refusal = "-NOPERM this user has no permissions to run the 'evalsha' command";
    server.on("EVALSHA", refusal);
    let store = server.store().await;
    (server, store)
}

fn renewal(ticket: &Ticket, wish: ReplicaAck) -> Renewal {
    Renewal {
        ticket: ticket.clone(),
        lease: Duration::from_secs(20),
        wish,
    }
}

/// The last transaction: what it has written.
fn last_writes(server: &ScriptedServer) -> Vec<String> {
    let all = server.heard("");
    let begun = all.iter().rposition(|request| request == "MULTI").unwrap();
    let writes = all[begun + 1..].iter();
    let writes = writes.take_while(|request| *request != "EXEC");
    writes.cloned().collect()
}

#[tokio::test]
async fn a_user_without_scripts_locks_by_transactions_and_is_refused_once() {
    let (server, store) = without_scripts().await;
    let ask = ask(LockKind::Mutex);
    let (ticket, owner) = (&ask.ticket, ask.ticket.owner.text());
    let grave = keys::tombstone(&ticket.name, owner);
    server.on("GET stock", "nil");
    server.on("PTTL stock", "-2");
    server.on("EXISTS", "0");
    server.on("EXEC", "[ OK ]");
    let granted = plain(&store).attempt(&ask).await.outcome.unwrap();
    assert!(matches!(granted, Attempt::Acquired(_)), "{granted:?}");
    assert_eq!(
        last_writes(&server),
        [format!("SET stock {owner} NX PX 30000")]
    );

    server.on("GET stock", owner);
    server.on("PTTL", "5000");
    server.on("PTTL stock", "5000");
    server.on("EXEC", "[ 1 ]");
    let renewed = plain(&store)
        .renew(&[renewal(ticket, ReplicaAck::Any)])
        .await;
    assert!(matches!(renewed.unwrap()[..], [Renewed::Kept]));
    assert_eq!(last_writes(&server), ["PEXPIRE stock 20000"]);
    assert_eq!(
        plain(&store).release(ticket).await.unwrap(),
        Released::Freed
    );
    assert_eq!(last_writes(&server), ["DEL stock"]);
    server.on("EXEC", "[ 1 OK ]");
    assert_eq!(
        plain(&store).withdraw(ticket).await.unwrap(),
        Released::Freed
    );
    let buried = format!("SET {grave} 1 PX 300000");
    assert_eq!(last_writes(&server), ["DEL stock", buried.as_str()]);

    server.on("TYPE stock", "+string");
    server.on("EXEC", "[ 1 ]");
    assert!(
        plain(&store)
            .force_release(&ticket.name, None)
            .await
            .unwrap()
    );
    assert_eq!(last_writes(&server), ["DEL stock"]);
    let seen = plain(&store).inspect(&ticket.name).await.unwrap();
    assert_eq!(seen.holders[0].owner, owner);
    assert_eq!(server.heard("EVALSHA").len(), 1);
}

/// Otherwise one failed renewal would cost all of them their leases, and one request for each would come too late.
#[tokio::test]
async fn a_batch_without_scripts_is_one_transaction_with_an_answer_for_each_lock() {
    let (server, store) = without_scripts().await;
    let tickets = [ticket(LockKind::Mutex), ticket(LockKind::Mutex)];
    let batch = tickets.each_ref().map(|one| renewal(one, ReplicaAck::Any));
    server.on("GET stock", tickets[0].owner.text());
    server.on("PTTL", "5000");
    server.on("EXEC", "[ 1 0 ]");
    let renewed = plain(&store).renew(&batch).await.unwrap();
    assert!(
        matches!(renewed[..], [Renewed::Kept, Renewed::Gone]),
        "{renewed:?}"
    );
    let grave = keys::tombstone(&tickets[1].name, tickets[1].owner.text());
    let writes = [
        "PEXPIRE stock 20000".to_owned(),
        format!("PEXPIRE {grave} 20000"),
    ];
    assert_eq!(last_writes(&server), writes);
    assert!(plain(&store).renew(&[]).await.unwrap().is_empty());
}

/// Only scripts are acknowledged.
#[tokio::test]
async fn a_strict_policy_gets_nothing_without_scripts() {
    let (server, store) = without_scripts().await;
    let ask = AttemptRequest {
        wish: ReplicaAck::Majority,
        ..ask(LockKind::Mutex)
    };
    let attempt = plain(&store).attempt(&ask).await.outcome.unwrap_err();
    let batch = [renewal(&ask.ticket, ReplicaAck::All)];
    let renewal = plain(&store).renew(&batch).await.unwrap_err();
    for error in [attempt, renewal] {
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(
            error
                .to_string()
                .contains("replicas acknowledge only scripts"),
            "{error}"
        );
    }
    assert_eq!(server.heard("WATCH"), [""; 0]);
}

#[tokio::test]
async fn a_fenced_lock_without_scripts_has_a_token() {
    let (server, store) = without_scripts().await;
    let ask = ask(LockKind::Fenced);
    server.on("GET", "nil");
    server.on("PTTL", "-2");
    server.on("EXISTS", "0");
    server.on("EXEC", "[ 8 OK ]");
    let outcome = plain(&store).attempt(&ask).await.outcome.unwrap();
    let Attempt::Acquired(grant) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(grant.token.map(FencingToken::get), Some(8));
    let owner = ask.ticket.owner.text();
    let writes = [
        "INCR tidelock:token:{stock}:stock".to_owned(),
        format!("SET stock {owner} NX PX 30000"),
    ];
    assert_eq!(last_writes(&server), writes);
}

/// In a cluster too: each slot has a transaction of its own.
#[tokio::test]
async fn locks_of_many_slots_are_renewed_without_scripts_slot_by_slot() {
    let server = ScriptedServer::start().await;
    server.on(
        "EVALSHA",
        "-NOPERM this user has no permissions to run the 'evalsha' command",
    );
    let store = server.cluster().await;
    let batch = ["stock", "price"].map(|name| {
        let ticket = Ticket {
            name: Name::new(name).unwrap(),
            ..ticket(LockKind::Mutex)
        };
        server.on(&format!("GET {name}"), ticket.owner.text());
        renewal(&ticket, ReplicaAck::Off)
    });
    server.on("PTTL", "5000");
    server.on("EXEC", "[ 1 ]");
    for scripts_refused in [1, 0] {
        let before = server.calls(&scripts::PLAIN_RENEW_SLOTS).len();
        let renewed = plain(&store).renew(&batch).await.unwrap();
        assert!(
            matches!(renewed[..], [Renewed::Kept, Renewed::Kept]),
            "{renewed:?}"
        );
        let asked = server.calls(&scripts::PLAIN_RENEW_SLOTS).len() - before;
        assert_eq!(asked, scripts_refused);
    }
}
