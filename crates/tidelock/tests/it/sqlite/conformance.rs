//! The conformance suite, on a file. `tests/real_servers` runs it with injected faults.

use tidelock::testing::Fixture;

fn file() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    Fixture::url(super::url(&folder.path().join("locks.db"))).keeping(folder)
}

mod plain {
    tidelock::conformance!(super::file());
    tidelock::conformance!(once: super::file());
    tidelock::conformance!(election: super::file());
    tidelock::conformance!(ordered election: super::file());
}

#[cfg(feature = "blocking")]
mod threads {
    tidelock::conformance!(blocking: super::file().blocking());
}

/// A fair lock is a lock like any other, and has an order.
mod fair {
    use super::file;

    tidelock::conformance!(faces: file().as_fair());
    tidelock::conformance!(shown fair: file());
}

#[cfg(feature = "blocking")]
mod fair_threads {
    tidelock::conformance!(shown fair: super::file().blocking());
}

/// Each side of a read-write lock is a lock like any other.
mod sides {
    use super::file;

    tidelock::conformance!(faces: file().as_writer());
    tidelock::conformance!(read_write: file());
    tidelock::conformance!(upgrade: file());
}

/// Members of a barrier hold the read side of a lock, and their state is a mark.
mod barrier {
    tidelock::conformance_of_barriers!(super::file());
}

/// A semaphore with one permit is a lock like any other, except that its owner is written in another form.
mod permits {
    use super::file;

    tidelock::conformance!(hashed: file().as_permit());
    tidelock::conformance!(permits: file());
}

#[cfg(feature = "blocking")]
mod sides_threads {
    tidelock::conformance!(read_write: super::file().blocking());
    tidelock::conformance!(upgrade: super::file().blocking());
}
