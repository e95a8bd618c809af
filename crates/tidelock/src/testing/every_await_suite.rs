//! The macro that generates one test per promise about futures that are dropped at each of their await points.

/// Generates one test per promise about operations that are dropped at each of their await points, each with its own
/// fixture, whose requests [pend](crate::testing::Faults::pending).
///
/// - `conformance_at_every_await!(Fixture::memory())` is for the lock.
/// - `conformance_at_every_await!(kind: Fixture::memory().as_fair())` has those that a lock of any kind keeps.
/// - `conformance_at_every_await!(set: …)` is for a set whose members pend: a wrapper around the whole set would not stop
///   between two members.
/// - `read_write`, `upgrade`, `permits`, `counting`, `latch` and `barrier` have those of a store with that kind.
///
/// With [`Fixture::checked_by`](crate::testing::Fixture::checked_by) each test also looks into the store itself.
#[macro_export]
macro_rules! conformance_at_every_await {
    (kind: $fixture:expr) => {
        $crate::conformance_at_every_await!(set: $fixture.through($crate::testing::Faults::pending(2)));
    };
    (set: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; every_await:
            acquire_cancelled_at_every_await_leaves_nothing
            try_acquire_cancelled_at_every_await_leaves_nothing
            wait_cancelled_at_every_await_leaves_nothing
            release_cancelled_at_every_await_still_releases
            extend_cancelled_at_every_await_harms_nothing
            force_release_cancelled_at_every_await_leaves_nothing
            close_cancelled_at_every_await_leaves_nothing
        );
    };
    (read_write: $fixture:expr) => {
        $crate::conformance_at_every_await!(@pending $fixture; every_await:
            downgrade_cancelled_at_every_await_leaves_nothing
        );
        $crate::conformance_at_every_await!(@pending $fixture; every_await_kinds:
            a_side_cancelled_at_every_await_leaves_nothing
        );
    };
    (upgrade: $fixture:expr) => {
        $crate::conformance_at_every_await!(@pending $fixture; every_await:
            upgrade_cancelled_at_every_await_leaves_its_reader_as_it_was
        );
    };
    (permits: $fixture:expr) => {
        $crate::conformance_at_every_await!(@pending $fixture; every_await_kinds:
            permits_cancelled_at_every_await_all_come_back
        );
    };
    (counting: $fixture:expr) => {
        $crate::conformance_at_every_await!(@pending $fixture; counting:
            an_acquire_of_counted_permits_cancelled_at_every_await_takes_nothing
        );
        $crate::conformance_at_every_await!(@pending $fixture; every_await_kinds:
            a_counted_release_cancelled_at_every_await_counts_once_or_not_at_all
        );
    };
    (latch: $fixture:expr) => {
        $crate::conformance_at_every_await!(@pending $fixture; latch:
            a_wait_for_a_latch_cancelled_at_every_await_leaves_nothing
            a_count_down_cancelled_at_every_await_counts_at_most_once
        );
    };
    (barrier: $fixture:expr) => {
        $crate::conformance_at_every_await!(@pending $fixture; barrier_faults:
            a_barrier_cancelled_at_every_await_leaves_nothing
        );
    };
    (@pending $fixture:expr; $file:ident: $($promise:ident)*) => {
        $crate::conformance!(@tests $fixture.through($crate::testing::Faults::pending(2)); $file: $($promise)*);
    };
    ($fixture:expr) => {
        $crate::conformance_at_every_await!(kind: $fixture);
        $crate::conformance_at_every_await!(@pending $fixture; every_await:
            reentry_cancelled_at_every_await_harms_nothing
        );
        $crate::conformance_at_every_await!(@pending $fixture; every_await_kinds:
            a_non_reentrant_lock_cancelled_at_every_await_leaves_nothing
        );
    };
}
