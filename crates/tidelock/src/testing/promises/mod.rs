//! The promises. Each function checks one, is named as a sentence, and panics if the store breaks the promise.

pub mod cancel;
pub mod close;
pub mod contract;
pub mod counting;
pub mod delay;
pub mod downgrade;
pub mod election;
pub mod election_faults;
pub mod every_await;
pub mod fair;
pub mod fenced;
pub mod force;
pub mod latch;
pub mod lease;
pub mod mutex;
pub mod names;
pub mod once;
pub mod once_reports;
pub mod options;
pub mod permit_requests;
pub mod permits;
pub mod read_write;
pub mod reentry;
pub mod sequencer;
pub mod state;
pub mod wake;
