//! The promises. Each function checks one, is named as a sentence, and panics if the store breaks the promise.

pub mod cancel;
pub mod close;
pub mod contract;
pub mod delay;
pub mod every_await;
pub mod fair;
pub mod fenced;
pub mod force;
pub mod lease;
pub mod mutex;
pub mod names;
pub mod options;
pub mod read_write;
pub mod reentry;
pub mod sequencer;
pub mod state;
pub mod wake;
