//! The channel by which the server counts tidelock's waiters.

use super::*;

fn count(forms: i64, own: Option<bool>) -> ListenerCount {
    ListenerCount { forms, own }
}

#[tokio::test]
async fn a_process_is_counted_once_it_hears_every_form() {
    let on = Played::start(PublishModes::Auto);
    drop(on.wants(LOCK));
    let (registry, connection) = (&on.registry, on.connection());
    connection.orders();
    assert_eq!(registry.counted(LOCK), ListenerCount::NOWHERE);
    on.confirms(Sharded, LOCK);
    assert!(sends(&connection).is_empty());
    assert_eq!(registry.counted(LOCK), count(1, Some(false)));
    on.confirms(Plain, LOCK);
    let joins = format!("SSUBSCRIBE {OWN}");
    assert_eq!(sends(&connection), [&*joins]);
    assert_eq!(registry.counted(LOCK), count(2, None));

    let _wake = registry.arm_if_any(LOCK).unwrap();
    assert!(registry.sweep(&connection) && sends(&connection).is_empty());
    on.ends(Sharded, OWN);
    assert_eq!(registry.counted(LOCK), count(2, None), "an older one");
    on.confirms(Sharded, OWN);
    assert_eq!(registry.counted(LOCK), count(2, Some(true)));
    // The slot has moved.
    on.ends(Sharded, OWN);
    assert_eq!(registry.counted(LOCK), count(2, Some(false)));
    assert!(registry.sweep(&connection));
    assert_eq!(sends(&connection), [joins]);
}

/// Keyspace events are published by the server, in the plain form only.
#[tokio::test]
async fn nobody_is_counted_on_the_channel_of_a_key() {
    let on = Played::start(PublishModes::Auto);
    let channel = "__keyspace@0__:stock";
    drop(on.wants(channel));
    let connection = on.connection();
    connection.orders();
    on.confirms(Plain, channel);
    on.confirms(Sharded, channel);
    assert!(sends(&connection).is_empty());
    assert_eq!(on.registry.counted(channel), count(2, Some(false)));
}

/// It would hide a client that hears the plain form only.
#[tokio::test]
async fn a_process_that_hears_only_the_sharded_form_is_not_counted() {
    for (modes, is_counted) in [(PublishModes::Sharded, false), (PublishModes::Plain, true)] {
        let on = Played::start(modes);
        assert_eq!(on.registry.counts_its_kind(), is_counted);
        drop(on.wants(LOCK));
        let connection = on.connection();
        connection.orders();
        on.confirms(modes.forms()[0], LOCK);
        assert_eq!(!sends(&connection).is_empty(), is_counted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_the_server_does_not_count_tries_again_later() {
    let on = Played::start(PublishModes::Plain);
    on.subscribed(LOCK);
    let (registry, connection) = (&on.registry, on.connection());
    let _wake = registry.arm_if_any(LOCK).unwrap();
    // An error that passes.
    registry.uncounted(&connection, Plain, OWN);
    assert_eq!(registry.counted(LOCK), count(1, Some(false)));
    assert!(registry.counts_its_kind());
    assert!(registry.sweep(&connection));
    assert_eq!(sends(&connection), [format!("SUBSCRIBE {OWN}")]);
    // One that does not.
    registry.uncounted(&connection, Plain, OWN);
    registry.pause_counting();
    advance(REFUSED_FOR.saturating_sub(NANOSECOND)).await;
    assert!(!registry.counts_its_kind());
    assert!(registry.sweep(&connection) && sends(&connection).is_empty());
    advance(NANOSECOND).await;
    assert!(registry.counts_its_kind());
    assert!(registry.sweep(&connection));
    assert_eq!(sends(&connection), [format!("SUBSCRIBE {OWN}")]);
}

/// In between it would hide a client that hears the plain form only.
#[tokio::test]
async fn a_process_is_not_counted_any_more_before_it_leaves_a_form() {
    let on = Played::start(PublishModes::Auto);
    on.subscribed(LOCK);
    on.confirms(Sharded, OWN);
    on.registry.end(LOCK);
    let expected = [
        format!("SUNSUBSCRIBE {OWN}"),
        format!("UNSUBSCRIBE {LOCK}"),
        format!("SUNSUBSCRIBE {LOCK}"),
    ];
    assert_eq!(sends(&on.connection()), expected);
    assert_eq!(on.registry.counted(LOCK), count(2, Some(false)));
}
