//! For tests of a service: [`Plug`] cuts a client off from its store, and
//! [`simulated_time`](crate::ClientBuilder::simulated_time) runs it on a clock that a test can pause.
//!
//! Stable, with the cargo feature `test-util`. The URL `memory:NAME?like=redis` needs no feature; see
//! [Testing your service](https://docs.rs/tidelock).

mod plug;

pub use self::plug::Plug;
