//! Whatever happens on the way, nothing piles up: not in the process, not on the server.
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
