//! Several locks as one, and a majority of servers, on real servers.

#![allow(
    clippy::unchecked_time_subtraction,
    reason = "stamps of one clock: a negative time is a failure like any other"
)]

mod all;
mod majority;

/// The whole suite over sets of servers. The servers are shared, because every promise uses distinct names.
mod promises {
    use std::sync::{Arc, Mutex, Weak};

    use testkit::servers::Independents;
    use tidelock::testing::{Faults, Fixture};

    #[allow(clippy::expect_used, reason = "a missing server is a failure")]
    fn servers() -> Arc<Independents> {
        static SHARED: Mutex<Weak<Independents>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().expect("no start has panicked");
        if let Some(running) = shared.upgrade() {
            return running;
        }
        let started = Arc::new(Independents::start(5).expect("servers start"));
        *shared = Arc::downgrade(&started);
        started
    }

    fn parts(count: usize) -> Vec<Fixture> {
        let servers = servers();
        let urls = servers.urls().into_iter().take(count);
        urls.map(|url| Fixture::url(url).keeping(Arc::clone(&servers)))
            .collect()
    }

    mod all_of_one {
        tidelock::conformance!(tidelock::testing::Fixture::all_of(super::parts(1)));
    }

    mod all_of_three {
        tidelock::conformance!(tidelock::testing::Fixture::all_of(super::parts(3)));
    }

    mod majority_of_three {
        tidelock::conformance!(tidelock::testing::Fixture::majority_of(super::parts(3)));
    }

    mod majority_of_five {
        tidelock::conformance!(tidelock::testing::Fixture::majority_of(super::parts(5)));
    }

    /// Each part draws its own faults.
    fn faulty(count: u8) -> Vec<Fixture> {
        let faults = Faults::seeded().shared_by(count);
        let parts = parts(usize::from(count)).into_iter();
        parts.map(|part| part.through(faults.clone())).collect()
    }

    mod chaos_all_of_three {
        tidelock::conformance!(faces: tidelock::testing::Fixture::all_of(super::faulty(3)));
    }

    mod chaos_majority_of_three {
        tidelock::conformance!(faces: tidelock::testing::Fixture::majority_of(super::faulty(3)));
    }

    mod chaos_majority_of_five {
        tidelock::conformance!(faces: tidelock::testing::Fixture::majority_of(super::faulty(5)));
    }

    mod threads_all_of_three {
        tidelock::conformance!(blocking: tidelock::testing::Fixture::all_of(super::parts(3)).blocking());
    }

    mod threads_majority_of_three {
        tidelock::conformance!(blocking: tidelock::testing::Fixture::majority_of(super::parts(3)).blocking());
    }
}
