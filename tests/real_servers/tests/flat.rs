//! Leak tests: no fault or cancellation leaves anything behind in the process or on the server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "flat/books.rs"]
mod books;
#[path = "flat/closing.rs"]
mod closing;
#[path = "flat/drops.rs"]
mod drops;
#[path = "flat/records.rs"]
mod records;
#[path = "flat/rounds.rs"]
mod rounds;
