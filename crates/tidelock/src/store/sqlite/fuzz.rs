//! Fuzz targets: properties that hold for any text in a `sqlite:` URL, and for any clock or file system data from the
//! kernel.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "what must hold is asserted"
)]

use std::path::Path;
use std::time::Duration;

use crate::store::sqlite::rows::{ForeignRows, Now, Row, nanos};
use crate::store::sqlite::{address, file_system, timebase};

/// A parsed path is absolute and parses to itself.
pub(crate) fn url(text: &str) {
    if let Ok(path) = address::path_of(text) {
        assert!(path.is_absolute());
        let again = path.to_str().map(address::path_of);
        if let Some(Ok(again)) = again {
            assert_eq!(again, path);
        }
    }
}

pub(crate) fn surroundings(text: &str) {
    let offset = timebase::boottime_offset(text);
    assert!(offset.contains('.'));
    file_system::lists_point(text, Path::new("/var/lib/locks.db"));
    file_system::listed(text, Path::new("/var/lib"), Some("0:42"));
    file_system::unescaped(text);
}

/// Returns the lease time left in a row right after it is written with the clock at `stamp`, and checks that it never
/// grows after `later`.
pub(crate) fn kept(lease: Duration, stamp: i64, later: Duration) -> Duration {
    let domain = "machine+0.0";
    let at = |stamp| Now { stamp, domain };
    let written = at(stamp);
    let row = |domain: &str| Row {
        owner: "a:1".to_owned(),
        revision: 1,
        lease: nanos(lease),
        ends: written.plus(lease),
        domain: domain.to_owned(),
        token: None,
    };
    let seen = ForeignRows::default();
    let (own, foreign) = (row(domain), row("other+0.0"));
    let now = at(written.plus(later));
    // A row of another clock counts for one whole lease from the first time we saw it, and no longer.
    assert!(foreign.left("n", written, &seen) <= lease);
    assert!(foreign.left("n", now, &seen) <= foreign.left("n", written, &seen));
    assert!(own.left("n", now, &seen) <= own.left("n", written, &seen));
    own.left("n", written, &seen)
}
