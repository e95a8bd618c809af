//! Leak tests: no fault or cancellation leaves anything behind in the process or on the server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod books;
mod closing;
mod drops;
mod records;
mod rounds;
