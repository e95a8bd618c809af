//! The reference store keeps every promise: plainly, under faults, and through threads.

mod plain {
    use tidelock::testing::Fixture;

    tidelock::conformance!(Fixture::memory());
}

mod chaos {
    use tidelock::testing::Fixture;

    tidelock::conformance!(faces: Fixture::memory().through_chaos());
}

#[cfg(feature = "blocking")]
mod threads {
    use tidelock::testing::Fixture;

    tidelock::conformance!(blocking: Fixture::memory().blocking());
}
