//! Subscriptions that are not needed any more, or are needed again.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_subscription_without_a_waiter_ends_after_a_while() {
    let on = Played::start(PublishModes::Plain);
    on.subscribed("x");
    let (registry, connection) = (&on.registry, on.connection());
    let wake = registry.arm_if_any("x").unwrap();
    advance(IDLE_SUBSCRIPTION_LIFETIME * 4).await;
    assert!(registry.sweep(&connection) && sends(&connection).is_empty());
    drop(wake);
    registry.idle("x");
    advance(IDLE_SUBSCRIPTION_LIFETIME.saturating_sub(NANOSECOND)).await;
    assert!(registry.sweep(&connection) && sends(&connection).is_empty());
    advance(NANOSECOND).await;
    assert!(registry.sweep(&connection));
    assert_eq!(sends(&connection), ["UNSUBSCRIBE x"]);
    // Messages arrive until the server confirms it.
    assert!(registry.hears_all("x") && !registry.is_live("x"));
    on.ends(Plain, "x");
    assert!(registry.is_empty() && !registry.sweep(&connection));
}

#[tokio::test]
async fn only_a_live_channel_without_a_waiter_is_ended_at_once() {
    let on = Played::start(PublishModes::Plain);
    on.registry.end("unknown");
    on.subscribed("watched");
    on.subscribed("unused");
    let (registry, connection) = (&on.registry, on.connection());
    let _wake = registry.arm_if_any("watched").unwrap();
    drop(on.wants("pending"));
    assert_eq!(sends(&connection), ["SUBSCRIBE pending"]);
    for channel in ["unknown", "watched", "unused", "pending"] {
        registry.end(channel);
    }
    assert_eq!(sends(&connection), ["UNSUBSCRIBE unused"]);
}

/// The first confirmation may be that of the subscription before. The server ends that one after it.
#[tokio::test]
async fn a_channel_that_is_wanted_again_waits_for_the_end_of_its_last_subscription() {
    let on = Played::start(PublishModes::Plain);
    on.subscribed("x");
    let (registry, connection) = (&on.registry, on.connection());
    registry.end("x");
    let mut waiting = on.wants("x").remove(0);
    assert_eq!(sends(&connection), ["UNSUBSCRIBE x", "SUBSCRIBE x"]);
    on.confirms(Plain, "x");
    assert!(!registry.is_live("x"));
    on.ends(Plain, "x");
    assert!(sends(&connection).is_empty(), "it is under way");
    let late = Push::Subscribed(Plain, "x".to_owned());
    registry.on_push(&on.stranger(), late);
    assert!(!registry.is_live("x"), "on another connection");
    assert_eq!(waiting.try_recv(), Err(TryRecvError::Empty));
    on.confirms(Plain, "x");
    assert_eq!(waiting.try_recv(), Ok(()));
    assert!(registry.is_live("x"));
}

/// It was armed before the refusal, and does not ask for a subscription itself.
#[tokio::test(start_paused = true)]
async fn a_waiter_is_subscribed_again_when_the_refusal_is_old() {
    let on = Played::start(PublishModes::Plain);
    let refusal = Error::new(ErrorKind::Refused);
    for channel in ["watched", "unused"] {
        drop(on.wants(channel));
        let connection = on.connection();
        on.registry.refused(&connection, Plain, channel, &refusal);
        connection.orders();
    }
    let (registry, connection) = (&on.registry, on.connection());
    let mut wake = registry.signals.arm("watched");
    advance(REFUSED_FOR.saturating_sub(NANOSECOND)).await;
    assert!(registry.sweep(&connection) && sends(&connection).is_empty());
    assert_eq!(registry.lock().channels.count(), 2);
    advance(NANOSECOND).await;
    assert!(registry.sweep(&connection));
    assert_eq!(sends(&connection), ["SUBSCRIBE watched"]);
    assert_eq!(registry.lock().channels.count(), 1);
    assert!(!is_woken(&mut wake));
    on.confirms(Plain, "watched");
    assert!(is_woken(&mut wake), "it may have missed a message");
}

/// No confirmation of it will come.
#[tokio::test]
async fn a_refused_unsubscribe_keeps_no_channel_and_holds_up_none() {
    let on = Played::start(PublishModes::Plain);
    on.subscribed("x");
    let (registry, connection, x) = (&on.registry, on.connection(), Arc::from("x"));
    registry.end("x");
    registry.stuck(&on.stranger(), Plain, &x);
    assert!(!registry.is_empty());
    registry.stuck(&connection, Plain, &x);
    assert!(registry.is_empty());

    on.subscribed("x");
    registry.end("x");
    let mut waiting = on.wants("x").remove(0);
    connection.orders();
    on.confirms(Plain, "x");
    assert_eq!(waiting.try_recv(), Err(TryRecvError::Empty));
    registry.stuck(&connection, Plain, &x);
    assert_eq!(sends(&connection), ["SUBSCRIBE x"], "for a confirmation");
    on.confirms(Plain, "x");
    assert_eq!(waiting.try_recv(), Ok(()));
}
