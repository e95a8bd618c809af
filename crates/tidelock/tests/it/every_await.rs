//! Every await point of every operation is left in turn, on a store whose requests pend on their way there and back.

use tidelock::testing::{Faults, Fixture, promises::every_await};

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

    /// Who waits has a place in the store, which has to go with it.
    fn pending() -> Fixture {
        Fixture::memory().as_writer().through(Faults::pending(3))
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
}
