//! Hooks for the fuzz targets: invariants of PostgreSQL URLs and leases.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "what must hold is asserted"
)]

use std::time::Duration;

use super::place::Place;
use crate::backend::fuzz::Login;
use crate::error::Result;

pub(crate) fn url(text: &str) -> Result<Login> {
    let (user, password, shown) = Place::login(text)?;
    Ok(Login {
        user,
        password,
        shown,
    })
}

/// How long the server keeps a row with this lease.
pub(crate) fn kept(lease: Duration) -> Duration {
    Duration::from_micros(super::micros(lease).unsigned_abs())
}
