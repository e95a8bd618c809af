//! The conformance suite, on a file.

use tidelock::testing::Fixture;

fn file() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    Fixture::url(super::url(&folder.path().join("locks.db"))).keeping(folder)
}

mod plain {
    tidelock::conformance!(super::file());
}

mod chaos {
    tidelock::conformance!(faces: super::file().through_chaos());
}

#[cfg(feature = "blocking")]
mod threads {
    tidelock::conformance!(blocking: super::file().blocking());
}
