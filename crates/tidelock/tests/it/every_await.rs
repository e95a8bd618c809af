//! Every operation is cancelled at each of its await points, on a store whose requests are pending before and after
//! they take effect.

use tidelock::testing::{Faults, Fixture};

mod lock {
    use super::Fixture;

    tidelock::conformance_at_every_await!(Fixture::memory());
}

/// A waiter has a place in the store's queue, and the place must be removed with the waiter.
mod writer {
    use super::Fixture;

    tidelock::conformance_at_every_await!(kind: Fixture::memory().as_writer());
}

mod fair {
    use super::Fixture;

    tidelock::conformance_at_every_await!(kind: Fixture::memory().as_fair());
}

/// A waiter asks again and again, with a timer in between.
mod spin {
    use super::Fixture;

    tidelock::conformance_at_every_await!(kind: Fixture::memory().as_spin());
}

mod permit {
    use super::Fixture;

    tidelock::conformance_at_every_await!(kind: Fixture::memory().as_permit());
}

/// A set asks its members one after another or all at once, and may be dropped between any two of their answers.
fn members() -> [Fixture; 3] {
    [(); 3].map(|()| Fixture::memory().through(Faults::pending(1)))
}

mod all_of_three {
    use super::Fixture;

    tidelock::conformance_at_every_await!(set: Fixture::all_of(super::members()));
}

mod majority_of_three {
    use super::Fixture;

    tidelock::conformance_at_every_await!(set: Fixture::majority_of(super::members()));
}

mod kinds {
    use super::Fixture;

    tidelock::conformance_at_every_await!(read_write: Fixture::memory());
    tidelock::conformance_at_every_await!(upgrade: Fixture::memory());
    tidelock::conformance_at_every_await!(permits: Fixture::memory());
    tidelock::conformance_at_every_await!(counting: Fixture::memory());
    tidelock::conformance_at_every_await!(latch: Fixture::memory());
    tidelock::conformance_at_every_await!(barrier: Fixture::memory());
}
