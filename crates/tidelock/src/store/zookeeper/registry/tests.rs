//! Tests of tickets whose create has no answer.

use crate::store::zookeeper::address::Address;
use crate::store::zookeeper::registry::*;
use crate::store::{Background, Clock, Env, LockKind, Timers};
use crate::types::OwnerMint;

const SESSION: i64 = 7;
const LEASE: Duration = Duration::from_secs(9);

fn at(seconds: u64) -> BootInstant {
    BootInstant::from_nanos(1) + Duration::from_secs(seconds)
}

/// A connection that connects to nothing.
fn connection() -> Arc<Connection> {
    let (background, _stop) = Background::start(Clock::Boot).unwrap();
    let env = Env::of_limits(Timers::new(Clock::Boot), background, LEASE);
    let address = Address::parse("zookeeper://127.0.0.1:1").unwrap();
    Arc::new(Connection::new(&env, address, LEASE))
}

/// A ticket whose create was sent and has no answer. Its node ends at the second second.
fn unanswered() -> (NodeRegistry, Ticket, u64) {
    let registry = NodeRegistry::default();
    let ticket = Ticket {
        kind: LockKind::Mutex,
        name: Name::new("stock").unwrap(),
        owner: OwnerMint::new().fresh(),
    };
    let place = NodePlace {
        parent: "/tidelock/stock".to_owned(),
        prefix: "x".to_owned(),
    };
    let sent = registry.create(&ticket, (&connection(), SESSION), &place, at(2), || ());
    let (create, ()) = sent.unwrap().expect("the first create");
    (registry, ticket, create)
}

fn ended_at(registry: &NodeRegistry, now: BootInstant) -> usize {
    registry
        .end(now, |_, _| panic!("the node has no name"))
        .len()
}

/// Nobody has cancelled it. With `Cancelled` the caller would not ask again.
#[test]
fn a_ticket_that_the_lease_task_gives_up_is_in_doubt_and_not_cancelled() {
    let (registry, ticket, _) = unanswered();
    assert_eq!(ended_at(&registry, at(1)), 0);
    registry.node_position(&ticket, SESSION).unwrap();
    assert_eq!(ended_at(&registry, at(2)), 1);
    let error = registry.node_position(&ticket, SESSION).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    let refused = || Ok(Attempt::held(None, LEASE));
    for outcome in [Err(error), refused()] {
        let reply = registry.reply(&ticket, outcome);
        assert!(reply.in_doubt && reply.outcome.is_err_and(|error| error.is_retryable()));
    }
    assert_eq!(ended_at(&registry, at(3)), 0, "its node is deleted once");
    registry
        .leave(&ticket, at(3), true)
        .expect("the node is not deleted yet");
    assert!(registry.reply(&ticket, refused()).in_doubt);
}

#[test]
fn a_ticket_that_its_caller_withdraws_is_cancelled() {
    let (registry, ticket, _) = unanswered();
    registry.leave(&ticket, at(1), true).unwrap();
    let error = registry.node_position(&ticket, SESSION).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(!registry.reply(&ticket, Err(error)).in_doubt);
}

/// Its node is about to be deleted, and others would get the lock while this ticket holds it.
#[test]
fn a_node_that_is_found_too_late_is_not_granted() {
    let (registry, ticket, create) = unanswered();
    assert_eq!(ended_at(&registry, at(2)), 1);
    let node = QueueNode {
        name: "x1".to_owned(),
        zxid: 3,
    };
    registry.created(&ticket, create, node.clone());
    assert!(!registry.grant(&ticket, &node, at(9), at(9)));
}
