//! The waiters of one process for one name. One of them, the leader, asks the store for all; the others wait behind it.
//!
//! The algorithm, its states and its lock order are in [`queue`].

pub(crate) mod last_answer;
pub(crate) mod leader;
mod leadership;
mod progress;
pub(crate) mod queue;
pub(crate) mod queued_store;
pub(crate) mod waiter;
pub(crate) mod waiters;

#[cfg(test)]
mod tests;
