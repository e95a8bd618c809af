//! Java's `RLock` of `getNonReentrantLock` and tidelock's lock without re-entry: the same lock as any other of the name, in
//! which each refuses its own holder. Redisson has it since 4.4, so the tests are of its newest version.

use testkit::java::RedissonVersion::Newest;
use testkit::java::monotonic_now_ns;
use tidelock::{AcquireOptions, ErrorKind, Owner};

use crate::load::hammer;
use crate::world::{WAKE_BOUND, World, between};

const NAME: &str = "till";

#[test]
fn non_reentrant_locks_exclude_and_wake_each_other() {
    let world = World::new(Newest);
    let rust = world.client.lock(NAME).non_reentrant();
    let java = world.java.non_reentrant_lock("a", NAME);
    java.lock().unwrap();
    // Redisson refuses the thread that holds it, and tidelock the owner that does.
    let refused = java.try_lock().unwrap_err();
    assert!(
        refused.to_string().contains("IllegalMonitorState"),
        "{refused}"
    );
    assert!(!world.is_free_for_rust(&rust));
    let waiter = world.begin_acquire(&rust);
    crate::topologies::until(|| world.run(rust.inspect()).unwrap().waiters >= Some(1));
    let unlocked = java.unlock().unwrap().started_at_ns;
    let (guard, got) = world.run(waiter).unwrap();
    let took = between(unlocked, got);
    assert!(took < WAKE_BOUND, "Java to Rust: {took:?}");
    assert!(!java.try_lock().unwrap().value);
    assert!(!world.java.lock("b", NAME).try_lock().unwrap().value);
    let mut observer = world.observer();
    let waiter = java.begin_lock_when_free().unwrap();
    observer.look(&["script", "SUBSCRIBE", "script"]).unwrap();
    let released = monotonic_now_ns();
    world.run(guard.release()).unwrap();
    let took = between(released, waiter.wait().unwrap().done_at_ns);
    assert!(took < WAKE_BOUND, "Rust to Java: {took:?}");

    let me = Owner::new();
    let own = || rust.acquire_with(AcquireOptions::new().owner(&me));
    let guard = world.run(own()).unwrap();
    let refused = world.run(own()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidOptions);
    world.run(guard.release()).unwrap();
    assert!(java.try_lock().unwrap().value);
    java.unlock().unwrap();
}

/// 1,200 acquisitions.
#[test]
fn two_java_and_two_rust_processes_without_reentry_never_overlap() {
    assert_eq!(hammer(Newest, "non_reentrant", 150).holds, 1_200);
}
