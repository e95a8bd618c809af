//! The fair lock: Redisson's `RFairLock`, with a queue that hands the lock over.
//!
//! Hash, queue, deadlines and channels are Redisson's, so that its threads and tidelock's waiters share one queue. Beside
//! them tidelock keeps two keys of its own: which processes are alive, and which grant is not confirmed yet.
//!
//! 1. All waiters of a process for a lock share one subscription, to the channel of its turns. A waiter that finds it live
//!    is put into the queue by its first attempt, any other by its second, after it has subscribed. Only a waiter right
//!    behind Redisson also subscribes to its own channel, the one that Redisson publishes to.
//! 2. The script of a release, or any script that finds the lock free, grants the lock to the first waiter of tidelock
//!    whose process is alive and hears of its turns (`lua/hand_over.lua`). The grant ends soon, unless its owner confirms it. A
//!    waiter of Redisson is woken instead.
//! 3. The message wakes the waiter. Its next attempt finds the grant and confirms it: from here on it has its lease.
//! 4. One beat per process and name shows that the process is alive, finds waiters whose message was lost, and finds a
//!    lock whose holder has died.
//!
//! `docs/model.md` has the model of this hand-over.

mod acquire;
pub(crate) mod beats;
mod release;

#[cfg(test)]
mod tests;
