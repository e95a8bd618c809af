//! Throw-away servers and a TCP proxy for the tests.

pub mod java;
