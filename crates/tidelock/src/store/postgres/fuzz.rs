//! Hooks for the fuzz targets: invariants of PostgreSQL URLs and leases.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "what must hold is asserted"
)]

use std::time::Duration;

use crate::error::Result;
use crate::store::fuzz::FuzzLogin;
use crate::store::postgres::address::Address;

pub(crate) fn url(text: &str) -> Result<FuzzLogin> {
    let (user, password, shown) = Address::login(text)?;
    Ok(FuzzLogin {
        user,
        password,
        shown,
    })
}

/// How long the server keeps a row with this lease.
pub(crate) fn kept(lease: Duration) -> Duration {
    Duration::from_micros(crate::store::postgres::columns::micros(lease).unsigned_abs())
}
