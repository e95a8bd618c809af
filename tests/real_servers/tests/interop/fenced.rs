//! Java and Rust share one fencing counter.

use testkit::java::RedissonVersion;

use crate::world::World;

#[test]
fn tokens_of_java_and_rust_grow_strictly() {
    let world = World::new(RedissonVersion::Newest);
    let lock = world.client.lock("fence").fenced();
    let java = world.java.fenced_lock("a", "fence");
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let guard = world.acquire(&lock);
        let token = guard.token();
        assert_eq!(guard.reenter().token(), token, "a re-entry keeps the token");
        assert!(!java.try_lock().unwrap().value);
        assert_eq!(
            java.token().unwrap().value,
            token.get(),
            "a refusal moved the counter"
        );
        tokens.push(token.get());
        world.run(guard.release()).unwrap();

        tokens.push(java.lock_and_get_token().unwrap().value);
        // Redisson's own re-entry increments the counter.
        tokens.push(java.lock_and_get_token().unwrap().value);
        assert!(!world.is_free_for_rust(&lock));
        assert_eq!(seen(&world), tokens.last().copied());
        java.unlock().unwrap();
        java.unlock().unwrap();
    }
    assert_eq!(tokens, (1..=9).collect::<Vec<_>>());

    java.lock().unwrap();
    assert!(world.run(lock.force_release()).unwrap());
    let guard = world.acquire(&lock);
    assert_eq!(guard.token().get(), 11, "a force release keeps the counter");
    world.run(guard.release()).unwrap();
}

#[test]
fn plain_and_fenced_locks_of_a_name_exclude_each_other() {
    let world = World::new(RedissonVersion::Newest);
    let (plain, fenced) = (
        world.client.lock("both"),
        world.client.lock("both").fenced(),
    );
    let java = (
        world.java.lock("a", "both"),
        world.java.fenced_lock("b", "both"),
    );
    let guard = world.acquire(&plain);
    assert!(!java.1.try_lock().unwrap().value);
    world.run(guard.release()).unwrap();
    let guard = world.acquire(&fenced);
    assert!(!java.0.try_lock().unwrap().value);
    world.run(guard.release()).unwrap();
    java.1.lock().unwrap();
    assert!(!world.is_free_for_rust(&plain));
    java.1.unlock().unwrap();
    java.0.lock().unwrap();
    assert!(!world.is_free_for_rust(&fenced));
    java.0.unlock().unwrap();
}

fn seen(world: &World) -> Option<u64> {
    let snapshot = world
        .run(world.client.lock("fence").fenced().inspect())
        .unwrap();
    snapshot.token.map(tidelock::FencingToken::get)
}
