//! What must hold of whatever stands in a URL of a lock file, and of what the kernel says of clocks and volumes.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "what must hold is asserted"
)]

use std::path::Path;
use std::time::Duration;

use super::rows::{Now, Row, Seen, nanos};
use super::{place, timebase, volume};

/// A path is read as it is written.
pub(crate) fn url(text: &str) {
    if let Ok(path) = place::path_of(text) {
        assert!(path.is_absolute());
        let again = path.to_str().map(place::path_of);
        if let Some(Ok(again)) = again {
            assert_eq!(again, path);
        }
    }
}

pub(crate) fn surroundings(text: &str) {
    let offset = timebase::boottime_offset(text);
    assert!(offset.contains('.'));
    volume::lists_point(text, Path::new("/var/lib/locks.db"));
    volume::listed(text, Path::new("/var/lib"), Some("0:42"));
    volume::unescaped(text);
}

/// How long a row stands that is to stand for a lease, by a clock that shows `stamp` when it is written and that much later.
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
    let seen = Seen::default();
    let (own, foreign) = (row(domain), row("other+0.0"));
    let now = at(written.plus(later));
    // A row of another clock counts for a whole lease from when it was seen first, and no longer.
    assert!(foreign.left("n", written, &seen) <= lease);
    assert!(foreign.left("n", now, &seen) <= foreign.left("n", written, &seen));
    assert!(own.left("n", now, &seen) <= own.left("n", written, &seen));
    own.left("n", written, &seen)
}
