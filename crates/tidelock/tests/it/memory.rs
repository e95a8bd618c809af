//! The reference store keeps every promise: without faults, with injected faults, and from several threads.

mod plain {
    use tidelock::testing::Fixture;

    tidelock::conformance!(Fixture::memory());
    tidelock::conformance!(read_write: Fixture::memory());
}

/// A double of a store that polls.
#[cfg(feature = "memcached")]
mod like_memcached {
    use tidelock::testing::Fixture;

    tidelock::conformance!(Fixture::memory_like("memcached"));
}

/// A double of a store that keeps a queue.
#[cfg(feature = "zookeeper")]
mod like_zookeeper {
    use tidelock::testing::Fixture;

    tidelock::conformance!(Fixture::memory_like("zookeeper"));
    tidelock::conformance!(read_write: Fixture::memory_like("zookeeper"));
}

mod chaos {
    use tidelock::testing::Fixture;

    tidelock::conformance!(faces: Fixture::memory().through_chaos());
    tidelock::conformance!(read_write: Fixture::memory().through_chaos());
    tidelock::conformance!(shown fair: Fixture::memory().through_chaos());
}

/// A fair lock is a lock like any other, and has an order.
mod fair {
    use tidelock::testing::Fixture;

    tidelock::conformance!(Fixture::memory().as_fair());
    tidelock::conformance!(shown fair: Fixture::memory());
}

/// A writer is exclusive as the holder of any lock is, and waits in the store's queue.
mod writer {
    use tidelock::testing::Fixture;

    tidelock::conformance!(Fixture::memory().as_writer());
}

#[cfg(feature = "blocking")]
mod threads {
    use tidelock::testing::Fixture;

    tidelock::conformance!(blocking: Fixture::memory().blocking());
    tidelock::conformance!(read_write: Fixture::memory().blocking());
    tidelock::conformance!(shown fair: Fixture::memory().blocking());
}
