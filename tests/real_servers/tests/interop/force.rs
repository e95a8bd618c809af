//! Force release in both directions.

use std::time::Duration;

use testkit::java::RedissonVersion;
use tidelock::{AcquireOptions, ErrorKind, LostReason};

use crate::world::World;

with_each_redisson!(
    a_rust_holder_is_told_that_java_forced_it,
    a_java_holder_is_refused_after_rust_forced_it,
);

fn a_rust_holder_is_told_that_java_forced_it(version: RedissonVersion) {
    let world = World::new(version);
    let lock = world.client.lock("forced");
    let java = world.java.lock("a", "forced");
    // The lock is renewed, and a holder learns of its loss, every four seconds.
    let lease = Duration::from_secs(12);
    let guard = world.acquire_with(&lock, AcquireOptions::new().lease(lease));
    assert!(java.force_unlock().unwrap().value);
    assert!(!java.force_unlock().unwrap().value, "it was free already");
    java.lock().unwrap();
    // The renewal after the next one would come after eight seconds.
    let soon = Duration::from_secs(7);
    let reason = world.run(async { tokio::time::timeout(soon, guard.lost()).await });
    assert_eq!(reason, Ok(LostReason::Taken));
    let refused = world.run(guard.release()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Lost);
    assert!(
        java.is_held().unwrap().value,
        "a release after the loss touched the next holder"
    );
    java.unlock().unwrap();
}

fn a_java_holder_is_refused_after_rust_forced_it(version: RedissonVersion) {
    let world = World::new(version);
    let lock = world.client.lock("forced");
    let java = world.java.lock("a", "forced");
    java.lock().unwrap();
    java.lock().unwrap();
    assert!(world.run(lock.force_release()).unwrap());
    assert!(
        !world.run(lock.force_release()).unwrap(),
        "it was free already"
    );
    assert!(!java.is_held().unwrap().value);
    let guard = world.acquire(&lock);
    assert!(java.unlock().unwrap_err().is_not_held());
    assert!(java.is_locked().unwrap().value && guard.is_held());
    world.run(guard.release()).unwrap();
}
