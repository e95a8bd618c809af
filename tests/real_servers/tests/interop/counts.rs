//! Java counts re-entries in the store, Rust in the process; each respects the other's count.

use testkit::java::RedissonVersion;
use tidelock::Lock;

use crate::world::World;

with_each_redisson!(
    rust_stays_out_until_the_last_java_unlock,
    java_stays_out_until_the_last_rust_guard_has_gone,
);

fn rust_stays_out_until_the_last_java_unlock(version: RedissonVersion) {
    let world = World::new(version);
    let lock = world.client.lock("counted");
    let java = world.java.lock("a", "counted");
    let owner = world.java.owner("a").unwrap();
    for _ in 0..3 {
        java.lock().unwrap();
    }
    for count in [3, 2, 1] {
        assert_eq!(holders(&world, &lock), [(owner.clone(), count)]);
        assert!(!world.is_free_for_rust(&lock), "held {count} times");
        assert_eq!(
            java.hold_count().unwrap().value,
            u32::try_from(count).unwrap()
        );
        java.unlock().unwrap();
    }
    assert_eq!(holders(&world, &lock), []);
    assert!(world.is_free_for_rust(&lock));
}

fn java_stays_out_until_the_last_rust_guard_has_gone(version: RedissonVersion) {
    let world = World::new(version);
    let lock = world.client.lock("counted");
    let java = world.java.lock("a", "counted");
    let outer = world.acquire(&lock);
    let inner = outer.reenter();
    assert_eq!(holders(&world, &lock), [(outer.owner_id(), 1)]);
    world.run(outer.release()).unwrap();
    assert!(java.is_locked().unwrap().value);
    assert!(!java.is_held().unwrap().value);
    assert!(!java.try_lock().unwrap().value);
    assert!(java.unlock().unwrap_err().is_not_held());
    assert!(inner.is_held());
    world.run(inner.release()).unwrap();
    assert!(!java.is_locked().unwrap().value);
    assert!(java.try_lock().unwrap().value);
    java.unlock().unwrap();
}

fn holders(world: &World, lock: &Lock) -> Vec<(String, u64)> {
    let seen = world.run(lock.inspect()).unwrap();
    seen.holders
        .into_iter()
        .map(|holder| (holder.owner, holder.holds))
        .collect()
}
