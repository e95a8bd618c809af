//! Sets of the reference store keep every promise of a single one. More of them, and on servers, in the proofs.

mod majority_of_three {
    use tidelock::testing::Fixture;

    tidelock::conformance!(Fixture::majority_of([(); 3].map(|()| Fixture::memory())));
}

mod all_of_three_with_faults {
    use tidelock::testing::{Faults, Fixture};

    fn part() -> Fixture {
        Fixture::memory().through(Faults::seeded().shared_by(3))
    }

    tidelock::conformance!(faces: Fixture::all_of([part(), part(), part()]));
}
