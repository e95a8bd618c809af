//! Messages, and the waiters that they wake.

use super::*;
use crate::store::Name;
use crate::store::redis::keys;
use crate::types::OwnerMint;

#[tokio::test]
async fn a_waiter_is_woken_by_what_may_have_freed_its_lock() {
    for (channel, payload, wakes) in [
        (LOCK, "0", true),
        (LOCK, "00", true),
        (LOCK, "set", true),
        ("__keyspace@0__:stock", "del", true),
        ("__keyspace@0__:stock", "set", false),
        ("redisson_rwlock:{stock}", "0", true),
        // It follows a message that has woken them.
        ("redisson_rwlock:{stock}", "00", false),
    ] {
        let on = Played::start(PublishModes::Plain);
        on.subscribed(channel);
        let mut wake = on.registry.arm_if_any(channel).unwrap();
        on.publishes(Plain, channel, payload);
        assert_eq!(is_woken(&mut wake), wakes, "{channel} {payload}");
        let seen = on.registry.releases_seen(channel).unwrap();
        assert_eq!(seen.count, u64::from(wakes), "{channel} {payload}");
    }
}

/// A read-write lock may have room for several, and a semaphore too.
#[tokio::test]
async fn all_waiters_are_woken_if_only_the_store_knows_which_is_next() {
    for (channel, all) in [
        (LOCK, false),
        ("redisson_rwlock:{stock}", true),
        ("redisson_sc:{stock}", true),
    ] {
        let on = Played::start(PublishModes::Plain);
        on.subscribed(channel);
        let [mut first, mut second] = [(); 2].map(|()| on.registry.signals.arm(channel));
        on.publishes(Plain, channel, "0");
        let woken = (is_woken(&mut first), is_woken(&mut second));
        assert_eq!(woken, (true, all), "{channel}");
    }
}

/// Otherwise one release would wake two waiters. A message that comes alone must not be taken for a copy.
#[tokio::test]
async fn the_sharded_copy_of_a_plain_message_wakes_nobody() {
    let on = Played::start(PublishModes::Auto);
    on.subscribed(LOCK);
    let mut wake = on.registry.arm_if_any(LOCK).unwrap();
    for (form, payload, wakes) in [
        (Plain, "0", true),
        (Sharded, "00", false),
        (Sharded, "00", true),
        (Plain, "0", true),
        (Sharded, "0", true),
        (Sharded, "01", true),
    ] {
        on.publishes(form, LOCK, payload);
        assert_eq!(is_woken(&mut wake), wakes, "{form:?} {payload}");
    }
    // Those of two servers come in any order.
    on.publishes(Plain, LOCK, "0");
    assert!(is_woken(&mut wake));
    publishes_on(&on.registry, &on.stranger(), Sharded, LOCK, "00");
    assert!(is_woken(&mut wake));
}

#[tokio::test(start_paused = true)]
async fn the_releases_in_both_forms_are_counted_together() {
    let on = Played::start(PublishModes::Auto);
    on.subscribed(LOCK);
    for (form, payload) in [(Plain, "0"), (Sharded, "0")] {
        advance(Duration::from_secs(1)).await;
        on.publishes(form, LOCK, payload);
    }
    let (count, last) = (2, on.registry.timers().now());
    let seen = on.registry.releases_seen(LOCK);
    assert_eq!(seen, Some(ReleasesSeen { count, last }));
}

#[tokio::test]
async fn a_message_to_the_head_of_a_fair_queue_is_for_the_lock_unless_the_head_is_ours() {
    let on = Played::start(PublishModes::Plain);
    let owner = OwnerMint::new().fresh();
    let head = keys::fair_channel(&Name::new("stock").unwrap(), owner.text());
    on.subscribed(LOCK);
    on.subscribed(&head);
    let mut of_lock = on.registry.arm_if_any(LOCK).unwrap();
    on.publishes(Plain, &head, "0");
    assert!(is_woken(&mut of_lock));
    let mut of_head = on.registry.arm_if_any(&head).unwrap();
    on.publishes(Plain, &head, "0");
    assert!(is_woken(&mut of_head) && !is_woken(&mut of_lock));
    let seen = |channel: &str| on.registry.releases_seen(channel).unwrap().count;
    assert_eq!((seen(LOCK), seen(&head)), (1, 1));
}
