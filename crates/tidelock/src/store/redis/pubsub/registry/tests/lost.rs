//! Subscriptions that are lost with their connection, or move to another server.

use super::*;

/// Its slot has moved.
#[tokio::test]
async fn a_subscription_that_the_server_ends_is_made_again_if_it_is_needed() {
    let on = Played::start(PublishModes::Plain);
    on.subscribed("watched");
    on.subscribed("unused");
    let (registry, connection) = (&on.registry, on.connection());
    let mut wake = registry.arm_if_any("watched").unwrap();
    on.ends(Plain, "watched");
    on.ends(Plain, "unused");
    assert_eq!(sends(&connection), ["SUBSCRIBE watched"]);
    assert_eq!(registry.lock().channels.count(), 1);
    assert!(is_woken(&mut wake), "a message may have been lost");
    on.confirms(Plain, "watched");
    assert!(is_woken(&mut wake), "or one before the confirmation");
}

#[tokio::test]
async fn the_channels_of_a_lost_connection_are_subscribed_to_again_if_they_are_needed() {
    let on = Played::start(PublishModes::Plain);
    on.subscribed("watched");
    on.subscribed("unused");
    let (registry, connection) = (&on.registry, on.connection());
    let mut wake = registry.arm_if_any("watched").unwrap();
    let mut waiting = on.wants("pending").remove(0);
    drop(on.wants("left"));
    registry.disconnected(&connection);
    let mut again = sends(&connection);
    again.sort();
    assert_eq!(again, ["SUBSCRIBE pending", "SUBSCRIBE watched"]);
    assert_eq!(registry.lock().channels.count(), 2);
    on.confirms(Plain, "pending");
    assert_eq!(waiting.try_recv(), Ok(()));
    assert!(!is_woken(&mut wake), "it is woken with the confirmation");
    on.confirms(Plain, "watched");
    assert!(is_woken(&mut wake));
}

/// They were armed before, and do not know that they hear nothing.
#[tokio::test]
async fn waiters_are_woken_once_if_the_next_connection_is_lost_too() {
    let on = Played::start(PublishModes::Plain);
    on.subscribed("x");
    let (registry, connection) = (&on.registry, on.connection());
    let mut wake = registry.arm_if_any("x").unwrap();
    for _ in 0..2 {
        for is_second in [false, true, false] {
            registry.disconnected(&connection);
            assert_eq!(is_woken(&mut wake), is_second);
        }
        on.confirms(Plain, "x");
        assert!(is_woken(&mut wake), "messages may have been missed");
    }
}

#[tokio::test]
async fn nobody_waits_for_a_server_that_cannot_be_reached() {
    let on = Played::start(PublishModes::Plain);
    on.subscribed("x");
    let (registry, connection) = (&on.registry, on.connection());
    let mut wake = registry.arm_if_any("x").unwrap();
    registry.disconnected(&connection);
    let mut waiting = on.wants("x").remove(0);
    let (away, refusal) = (ErrorKind::Unavailable, ErrorKind::Refused);
    registry.unreachable(&connection, &Error::new(away));
    assert_eq!(waiting.try_recv(), Err(TryRecvError::Closed));
    assert!(is_woken(&mut wake), "it polls from now on");
    registry.unreachable(&connection, &Error::new(away));
    assert!(!is_woken(&mut wake), "it polls already");
    registry.unreachable(&connection, &Error::new(refusal));
    assert!(is_woken(&mut wake), "its attempt returns the reason");
}

#[tokio::test]
async fn a_channel_follows_its_slot_to_another_node() {
    let on = Played::start(PublishModes::Auto);
    on.subscribed("x");
    let (registry, old) = (&on.registry, on.connection());
    let mut wake = registry.arm_if_any("x").unwrap();
    assert!(registry.sweep(&old) && sends(&old).is_empty());
    on.cluster.give_all_slots(&loopback(2));
    assert!(registry.sweep(&old));
    // A node ends sharded subscriptions itself.
    assert_eq!(sends(&old), ["UNSUBSCRIBE x"]);
    let new = on.connection();
    assert!(!Arc::ptr_eq(&old, &new));
    assert_eq!(sends(&new), ["SUBSCRIBE x", "SSUBSCRIBE x"]);
    assert!(is_woken(&mut wake), "a message may have been lost");
    let late = Push::Unsubscribed(Sharded, "x".to_owned());
    registry.on_push(&old, late);
    assert!(sends(&new).is_empty() && !is_woken(&mut wake));
    assert!(!registry.sweep(&old), "it has no channel left");
}

/// Another node has it, or the server is not ready.
#[tokio::test]
async fn a_subscription_is_tried_again_only_while_it_is_pending() {
    let on = Played::start(PublishModes::Plain);
    let _waiting = on.wants("x");
    let (registry, connection) = (&on.registry, on.connection());
    connection.orders();
    registry.retry(&connection, Plain, "x");
    assert_eq!(sends(&connection), ["SUBSCRIBE x"]);
    on.confirms(Plain, "x");
    registry.retry(&connection, Plain, "x");
    assert!(sends(&connection).is_empty() && registry.is_live("x"));
}

/// Such a connection was not one of many that the server closes at once.
#[tokio::test]
async fn a_connection_has_served_once_it_has_a_confirmed_subscription() {
    let on = Played::start(PublishModes::Plain);
    let _waiting = on.wants("x");
    let (registry, connection) = (&on.registry, on.connection());
    assert!(!registry.was_served(&connection));
    on.confirms(Plain, "x");
    assert!(registry.was_served(&connection) && !registry.was_served(&on.stranger()));
    registry.end("x");
    assert!(registry.was_served(&connection));
}
