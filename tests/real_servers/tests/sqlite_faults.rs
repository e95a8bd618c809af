//! The promises of a `sqlite:` file, with injected faults. They are here and not beside those without faults, because
//! `cargo test` without servers must stay short.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use tidelock::testing::Fixture;

fn file() -> Fixture {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    Fixture::url(url).keeping(folder).through_chaos()
}

mod plain {
    tidelock::conformance!(faces: super::file());
    tidelock::conformance!(once with faults: super::file());
}

mod fair {
    tidelock::conformance!(shown fair: super::file());
}

mod permits {
    tidelock::conformance!(permits faces: super::file());
}

mod sides {
    tidelock::conformance!(read_write: super::file());
    tidelock::conformance!(upgrade: super::file());
}
