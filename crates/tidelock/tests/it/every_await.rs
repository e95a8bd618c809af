//! Every operation is cancelled at each of its await points, on a store whose requests are pending before and after
//! they take effect.

use tidelock::testing::promises::{barrier_faults, counting, every_await, latch};
use tidelock::testing::{Faults, Fixture};

fn pending() -> Fixture {
    Fixture::memory().through(Faults::pending(3))
}

macro_rules! left {
    ($($promise:ident)*) => {$(
        #[tokio::test]
        async fn $promise() {
            every_await::$promise(&pending()).await;
        }
    )*};
}

mod writer {
    use super::{Faults, Fixture, every_await};

    /// A waiter has a place in the store's queue, and the place must be removed with the waiter.
    fn pending() -> Fixture {
        Fixture::memory().as_writer().through(Faults::pending(3))
    }

    left! {
        acquire_cancelled_at_every_await_leaves_nothing
        wait_cancelled_at_every_await_leaves_nothing
    }
}

mod permit {
    use super::{Faults, Fixture, every_await};

    fn pending() -> Fixture {
        Fixture::memory().as_permit().through(Faults::pending(3))
    }

    left! {
        acquire_cancelled_at_every_await_leaves_nothing
        try_acquire_cancelled_at_every_await_leaves_nothing
        wait_cancelled_at_every_await_leaves_nothing
        release_cancelled_at_every_await_still_releases
        extend_cancelled_at_every_await_harms_nothing
    }
}

mod spin {
    use super::{Faults, Fixture, every_await};

    /// A waiter asks again and again, with a timer in between.
    fn pending() -> Fixture {
        Fixture::memory().as_spin().through(Faults::pending(3))
    }

    left! {
        acquire_cancelled_at_every_await_leaves_nothing
        wait_cancelled_at_every_await_leaves_nothing
    }
}

mod fair {
    use super::{Faults, Fixture, every_await};

    fn pending() -> Fixture {
        Fixture::memory().as_fair().through(Faults::pending(3))
    }

    left! {
        acquire_cancelled_at_every_await_leaves_nothing
        wait_cancelled_at_every_await_leaves_nothing
    }
}

left! {
    acquire_cancelled_at_every_await_leaves_nothing
    try_acquire_cancelled_at_every_await_leaves_nothing
    wait_cancelled_at_every_await_leaves_nothing
    release_cancelled_at_every_await_still_releases
    extend_cancelled_at_every_await_harms_nothing
    reentry_cancelled_at_every_await_harms_nothing
    force_release_cancelled_at_every_await_leaves_nothing
    close_cancelled_at_every_await_leaves_nothing
    downgrade_cancelled_at_every_await_leaves_nothing
    upgrade_cancelled_at_every_await_leaves_its_reader_as_it_was
}

#[tokio::test]
async fn an_acquire_of_counted_permits_cancelled_at_every_await_takes_nothing() {
    counting::an_acquire_of_counted_permits_cancelled_at_every_await_takes_nothing(&pending())
        .await;
}

#[tokio::test]
async fn a_wait_for_a_latch_cancelled_at_every_await_leaves_nothing() {
    latch::a_wait_for_a_latch_cancelled_at_every_await_leaves_nothing(&pending()).await;
}

#[tokio::test]
async fn a_count_down_cancelled_at_every_await_counts_at_most_once() {
    latch::a_count_down_cancelled_at_every_await_counts_at_most_once(&pending()).await;
}

#[tokio::test]
async fn a_barrier_cancelled_at_every_await_leaves_nothing() {
    barrier_faults::a_barrier_cancelled_at_every_await_leaves_nothing(&pending()).await;
}
