//! The reference store keeps every promise: without faults, with injected faults, and from several threads.

use std::time::Duration;

use tidelock::{AcquireOptions, Client, ErrorKind, Owner};

mod plain {
    use tidelock::testing::Fixture;

    tidelock::conformance!(Fixture::memory());
    tidelock::conformance!(read_write: Fixture::memory());
    tidelock::conformance!(upgrade: Fixture::memory());
    tidelock::conformance!(positions: Fixture::memory());
    tidelock::conformance!(once: Fixture::memory());
    tidelock::conformance!(election: Fixture::memory());
    tidelock::conformance!(ordered election: Fixture::memory());
}

mod barrier {
    use tidelock::testing::Fixture;

    tidelock::conformance_of_barriers!(Fixture::memory());
}

mod barrier_chaos {
    use tidelock::testing::Fixture;

    /// A step has three requests, and each may be faulty several times in a row. It is repeated for no longer than a lease.
    const LEASE: std::time::Duration = std::time::Duration::from_secs(3);

    tidelock::conformance_of_barriers!(faces: Fixture::memory().lease_of(LEASE).through_chaos().simulated());
}

mod barrier_simulated {
    use tidelock::testing::Fixture;

    tidelock::conformance_of_barriers!(Fixture::memory().simulated());
}

/// A double of a store that polls.
#[cfg(feature = "memcached")]
mod like_memcached {
    use tidelock::testing::Fixture;

    tidelock::conformance_of_barriers!(none: Fixture::memory_like("memcached").simulated());

    tidelock::conformance!(Fixture::memory_like("memcached").simulated());
    tidelock::conformance!(no once: Fixture::memory_like("memcached").simulated());
    tidelock::conformance!(no election: Fixture::memory_like("memcached").simulated());
}

/// A double of a store that keeps a queue.
#[cfg(feature = "zookeeper")]
mod like_zookeeper {
    use tidelock::testing::Fixture;

    tidelock::conformance!(Fixture::memory_like("zookeeper").simulated());
    tidelock::conformance!(read_write: Fixture::memory_like("zookeeper").simulated());
    tidelock::conformance_of_barriers!(Fixture::memory_like("zookeeper").simulated());
}

mod chaos {
    use tidelock::testing::Fixture;

    tidelock::conformance!(faces: Fixture::memory().through_chaos().simulated());
    tidelock::conformance!(read_write: Fixture::memory().through_chaos().simulated());
    tidelock::conformance!(upgrade: Fixture::memory().through_chaos().simulated());
    tidelock::conformance!(shown fair: Fixture::memory().through_chaos().simulated());
    tidelock::conformance!(once with faults: Fixture::memory().through_chaos().simulated());
}

/// A fair lock is a lock like any other, and has an order.
mod fair {
    use tidelock::testing::Fixture;

    tidelock::conformance!(Fixture::memory().as_fair().simulated());
    tidelock::conformance!(shown fair: Fixture::memory().simulated());
}

/// A spin lock is a lock like any other, except that nothing wakes its waiters.
mod spin {
    use tidelock::testing::Fixture;

    tidelock::conformance!(Fixture::memory().as_spin().simulated());
    tidelock::conformance!(spin: Fixture::memory().simulated());
}

mod spin_chaos {
    use tidelock::testing::Fixture;

    tidelock::conformance!(spin: Fixture::memory().through_chaos().simulated());
}

/// A writer is exclusive as the holder of any lock is, and waits in the store's queue.
mod writer {
    use tidelock::testing::Fixture;

    tidelock::conformance!(Fixture::memory().as_writer().simulated());
}

/// A semaphore with one permit is a lock like any other, except that its owner is written in another form.
#[cfg(feature = "redis")]
mod permits {
    use tidelock::testing::Fixture;

    tidelock::conformance!(hashed: Fixture::memory_like("redis").as_permit());
    tidelock::conformance!(permits: Fixture::memory());
}

mod permits_chaos {
    use tidelock::testing::Fixture;

    tidelock::conformance!(permits faces: Fixture::memory().through_chaos());
}

mod counting {
    use tidelock::testing::Fixture;

    tidelock::conformance!(counting: Fixture::memory());
}

mod counting_chaos {
    use tidelock::testing::Fixture;

    tidelock::conformance!(counting faces: Fixture::memory().through_chaos());
}

mod latch {
    use tidelock::testing::Fixture;

    tidelock::conformance!(latch: Fixture::memory());
}

mod latch_chaos {
    use tidelock::testing::Fixture;

    tidelock::conformance!(latch faces: Fixture::memory().through_chaos());
}

#[cfg(feature = "blocking")]
mod threads {
    use tidelock::testing::Fixture;

    tidelock::conformance!(blocking: Fixture::memory().blocking());
    tidelock::conformance!(read_write: Fixture::memory().blocking());
    tidelock::conformance!(upgrade: Fixture::memory().blocking());
    tidelock::conformance!(shown fair: Fixture::memory().blocking());
    tidelock::conformance!(spin: Fixture::memory().blocking());
}

/// The sweep of names that nobody uses comes with an acquisition. It keeps the counter of the lock that is acquired.
#[tokio::test]
async fn a_look_shows_the_token_of_a_lock_also_after_a_sweep() {
    let client = Client::connect("memory:").await.unwrap();
    for number in 0..5_000 {
        let lock = client.lock(&format!("order:{number}")).fenced();
        let held = lock.acquire().await.unwrap();
        let seen = lock.inspect().await.unwrap();
        assert_eq!(seen.token, Some(held.token()), "{number}");
        held.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_semaphore_with_the_name_of_an_earlier_lock_is_freed_if_it_is_held_as_seen() {
    let client = Client::connect("memory:").await.unwrap();
    let held = client.lock("stock").acquire().await.unwrap();
    held.release().await.unwrap();
    let semaphore = client.semaphore("stock");
    semaphore.set_permits_if_new(1).await.unwrap();
    let _permit = semaphore.acquire().await.unwrap();
    let lock = client.lock("stock");
    let seen = lock.inspect().await.unwrap();
    assert!(lock.force_release_if(&seen).await.unwrap(), "{seen:?}");
}

/// The upgradeable guard is not the owner's own, but the owner reads beside it. So the upgrade would wait for itself.
#[tokio::test(start_paused = true)]
async fn an_owner_that_reads_does_not_upgrade_the_guard_of_another() {
    let builder = Client::builder().simulated_time();
    let client = builder.connect("memory:").await.unwrap();
    let sides = client.read_write_lock("prices");
    let me = AcquireOptions::new().owner(&Owner::new());
    let shared = sides.upgradeable_read().acquire().await.unwrap();
    let refused = async || {
        let patient = me.clone().wait(Duration::from_secs(60));
        let error = sides.upgrade_with(&shared, patient).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    };
    let reader = sides.read().acquire_with(me.clone()).await.unwrap();
    refused().await;
    reader.release().await.unwrap();
    let writer = sides.upgrade_with(&shared, me.clone()).await.unwrap();
    let reader = sides.downgrade_with(writer, me.clone()).await.unwrap();
    refused().await;
    reader.release().await.unwrap();
    let writer = sides.upgrade_with(&shared, me.clone()).await.unwrap();
    writer.release().await.unwrap();
    assert!(shared.is_held());
}
