//! Tests of what the registry knows of tickets, without a server.

use futures_util::FutureExt;
use futures_util::future::AbortHandle;

use crate::store::zookeeper::address::Address;
use crate::store::zookeeper::registry::*;
use crate::store::{Background, Clock, Env, Grant, LockKind, Timers};
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

/// A ticket of a client of its own.
fn fresh() -> Ticket {
    Ticket {
        kind: LockKind::Mutex,
        name: Name::new("stock").unwrap(),
        owner: OwnerMint::new().fresh(),
    }
}

/// The create that this ticket sends in that session. `None`: it sends none.
fn sent(
    registry: &NodeRegistry,
    ticket: &Ticket,
    session: i64,
    ends: BootInstant,
) -> Result<Option<u64>> {
    let place = NodePlace {
        parent: "/tidelock/stock".to_owned(),
        prefix: "x".to_owned(),
    };
    let mut is_sent = false;
    let here = (&connection(), session);
    let create = registry.create(ticket, here, &place, ends, || is_sent = true)?;
    assert_eq!(create.is_some(), is_sent);
    Ok(create.map(|(create, ())| create))
}

/// A ticket whose create was sent and has no answer. Its node ends at the second second.
fn unanswered() -> (NodeRegistry, Ticket, u64) {
    let (registry, ticket) = (NodeRegistry::default(), fresh());
    let create = sent(&registry, &ticket, SESSION, at(2)).unwrap();
    (registry, ticket, create.expect("the first create"))
}

fn node(number: i64) -> QueueNode {
    QueueNode {
        name: format!("x{number}"),
        zxid: number,
    }
}

/// A ticket with a node, which ends at the second second.
fn waiting() -> (NodeRegistry, Ticket, QueueNode) {
    let (registry, ticket, create) = unanswered();
    registry.created(&ticket, create, node(3));
    (registry, ticket, node(3))
}

/// The end of the ticket's hold, as an operator sees it.
fn shown_end(registry: &NodeRegistry) -> Option<BootInstant> {
    registry.ends("/tidelock/stock", &node(3).name)
}

/// A watch, and how to see whether it was ended.
fn watch() -> (WatchTask, AbortHandle) {
    let (handle, _) = AbortHandle::new_pair();
    (WatchTask(handle.clone()), handle)
}

/// Whether the lease task was woken since the last call.
fn is_woken(registry: &NodeRegistry) -> bool {
    registry.notify.notified().now_or_never().is_some()
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
    registry.created(&ticket, create, node(3));
    assert!(!registry.grant(&ticket, &node(3), at(9), at(9)));
}

/// The session executes its requests in order, so a second node would be one that nobody deletes.
#[test]
fn a_ticket_sends_one_create_in_a_session_and_another_one_in_the_next() {
    let (registry, ticket, first) = unanswered();
    let position = |session| registry.node_position(&ticket, session).unwrap();
    assert_eq!(sent(&registry, &ticket, SESSION, at(2)).unwrap(), None);
    assert_eq!(position(SESSION), NodePosition::Unknown(first));
    assert_eq!(position(SESSION + 1), NodePosition::Nowhere);
    let second = sent(&registry, &ticket, SESSION + 1, at(2)).unwrap();
    assert!(second.is_some_and(|second| second != first));
    assert_eq!(position(SESSION), NodePosition::Nowhere);
}

#[test]
fn a_late_reply_to_an_older_create_changes_nothing() {
    let (registry, ticket, first) = unanswered();
    let second = sent(&registry, &ticket, SESSION + 1, at(2)).unwrap();
    let second = second.expect("another session");
    let position = || registry.node_position(&ticket, SESSION + 1).unwrap();
    registry.created(&ticket, first, node(3));
    registry.gone(&ticket, first);
    assert_eq!(position(), NodePosition::Unknown(second));
    registry.created(&ticket, second, node(4));
    registry.gone(&ticket, first);
    registry.lost(&ticket, &node(3));
    assert_eq!(position(), NodePosition::At(node(4)));
    registry.lost(&ticket, &node(4));
    assert_eq!(position(), NodePosition::Nowhere);
    let third = sent(&registry, &ticket, SESSION + 1, at(2)).unwrap();
    registry.gone(&ticket, third.expect("it has no node"));
    assert_eq!(position(), NodePosition::Nowhere);
}

#[test]
fn a_ticket_that_was_withdrawn_sends_no_create_and_is_not_granted() {
    let (registry, ticket, own) = waiting();
    let left = registry.leave(&ticket, at(1), true).expect("it has a node");
    assert_eq!((left.node, left.granted), (Some(own.clone()), false));
    assert!(!registry.grant(&ticket, &own, at(9), at(9)));
    let error = sent(&registry, &ticket, SESSION + 1, at(9)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

/// A release is repeated if its reply is lost, and then the node must still be known.
#[test]
fn a_release_forgets_nothing_before_the_node_is_gone() {
    let (registry, ticket, own) = waiting();
    assert!(registry.grant(&ticket, &own, at(9), at(9)));
    for is_marked in [false, true] {
        let left = registry.leave(&ticket, at(1), false).expect("it holds");
        assert!(left.granted);
        assert_eq!(left.marked, is_marked);
        registry.marks(&ticket, &node(4));
        let left = registry.leave(&ticket, at(1), false).expect("it holds");
        assert_eq!(left.marked, is_marked, "that was another node");
        registry.marks(&ticket, &own);
    }
    assert!(registry.node_position(&ticket, SESSION).is_ok());
    assert!(registry.connection(&ticket).is_some());
    assert!(registry.leave(&fresh(), at(1), false).is_none());
}

#[test]
fn a_node_holds_only_after_its_grant_and_in_its_session() {
    let (registry, ticket, own) = waiting();
    let held = |session| registry.held(&ticket, session);
    let holder = || registry.holder(&ticket.name, &ticket.owner);
    assert_eq!((held(SESSION), holder()), (None, None));
    assert!(!registry.extend(&ticket, &own, at(9), at(9)));
    assert!(!registry.grant(&ticket, &node(4), at(9), at(9)));
    assert!(registry.grant(&ticket, &own, at(9), at(9)));
    let path = "/tidelock/stock/x3".to_owned();
    assert_eq!(held(SESSION), Some((own.clone(), path)));
    assert_eq!(held(SESSION + 1), None);
    assert_eq!(holder(), Some(own));
    assert!(!registry.extend(&ticket, &node(4), at(9), at(9)));
    registry.clear();
    assert_eq!((held(SESSION), holder()), (None, None));
}

#[test]
fn a_lease_replaces_the_time_of_a_waiter_and_is_never_shortened() {
    let (registry, ticket, own) = waiting();
    assert!(!registry.waits(&ticket, &node(4), at(99), None));
    assert!(registry.waits(&ticket, &own, at(20), None));
    assert!(registry.waits(&ticket, &own, at(10), None));
    assert_eq!(ended_at(&registry, at(19)), 0, "the longest time counts");
    assert_eq!(shown_end(&registry), None, "it holds nothing");
    for (ends, shown) in [(9, 9), (7, 9), (11, 11)] {
        assert!(registry.grant(&ticket, &own, at(ends), at(ends)));
        assert_eq!(shown_end(&registry), Some(at(shown)));
    }
    for (ends, shown) in [(8, 11), (12, 12)] {
        assert!(registry.extend(&ticket, &own, at(ends), at(ends)));
        assert_eq!(shown_end(&registry), Some(at(shown)));
    }
    assert_eq!(registry.ends("/tidelock/stock", "x4"), None);
    assert_eq!(registry.ends("/tidelock/safe", &own.name), None);
}

#[test]
fn a_watch_ends_with_the_next_one_a_grant_or_a_release() {
    let (registry, ticket, own) = waiting();
    let arm = || {
        let (task, handle) = watch();
        assert!(registry.waits(&ticket, &own, at(9), Some(task)));
        handle
    };
    let first = arm();
    assert!(!first.is_aborted());
    let second = arm();
    assert!(first.is_aborted() && !second.is_aborted());
    registry.leave(&ticket, at(1), false);
    assert!(second.is_aborted());
    let third = arm();
    registry.grant(&ticket, &own, at(9), at(9));
    assert!(third.is_aborted());
}

#[test]
fn a_node_whose_session_has_ended_needs_no_delete() {
    let (registry, ticket, own) = waiting();
    registry.grant(&ticket, &own, at(9), at(9));
    let ended = registry.end(at(9), |_, _| panic!("its session has ended"));
    let [one] = &ended[..] else {
        panic!("one node has ended")
    };
    assert!(matches!(one.how, EndCause::SessionEnded));
    assert_eq!(one.ticket, ticket);
    let position = registry.node_position(&ticket, SESSION).unwrap();
    assert_eq!(position, NodePosition::Nowhere, "nobody has withdrawn it");
}

#[test]
fn the_lease_task_wakes_for_the_first_end_and_earlier_if_one_comes_before() {
    let registry = NodeRegistry::default();
    assert_eq!(registry.next_check(), BootInstant::FAR);
    let ticket = fresh();
    let create = sent(&registry, &ticket, SESSION, at(5)).unwrap();
    assert!(is_woken(&registry));
    assert!(!is_woken(&registry), "once");
    assert_eq!(registry.next_check(), at(5));
    for (ends, wakes) in [(6, false), (5, false), (4, true)] {
        sent(&registry, &fresh(), SESSION, at(ends)).unwrap();
        assert_eq!(is_woken(&registry), wakes, "{ends}");
    }
    assert_eq!(registry.next_check(), at(4));
    registry.created(&ticket, create.expect("the first create"), node(3));
    for (ends, keep_alive, wakes) in [(9, 9, false), (9, 3, true), (3, 9, false)] {
        assert!(registry.grant(&ticket, &node(3), at(ends), at(keep_alive)));
        assert_eq!(is_woken(&registry), wakes, "{ends}, {keep_alive}");
    }
    for (keep_alive, wakes) in [(4, false), (3, true)] {
        assert!(registry.extend(&ticket, &node(3), at(9), at(keep_alive)));
        assert_eq!(is_woken(&registry), wakes, "{keep_alive}");
    }
}

/// The end of a hold that is shorter than the wait before it.
#[test]
fn a_grant_wakes_the_lease_task_for_its_own_end() {
    let (registry, ticket, own) = waiting();
    registry.next_check();
    is_woken(&registry);
    assert!(registry.grant(&ticket, &own, at(1), at(9)));
    assert!(is_woken(&registry));
}

#[test]
fn a_withdrawal_is_remembered_for_a_minute() {
    for (later, is_known) in [(60, true), (61, false)] {
        let (registry, ticket) = (NodeRegistry::default(), fresh());
        registry.leave(&ticket, at(1), true);
        registry.leave(&fresh(), at(later), true);
        let known = registry.node_position(&ticket, SESSION);
        assert_eq!(known.is_err(), is_known, "{later}");
    }
}

#[test]
fn a_grant_stays_a_grant_although_its_ticket_was_given_up() {
    let (registry, ticket, _) = unanswered();
    assert_eq!(ended_at(&registry, at(2)), 1);
    let reply = registry.reply(&ticket, Ok(Attempt::Acquired(Grant::default())));
    assert!(!reply.in_doubt && reply.outcome.is_ok());
}
