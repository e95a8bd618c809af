//! A worker process of the bench: it obeys orders to acquire locks with many tasks, and records when.
//!
//! The peers in other languages speak the same protocol, one line of JSON per message; `interop/README.md` describes
//! it.

mod serve;
mod sides;
mod stamp;
mod words;

pub use serve::serve;
pub use sides::reads;
pub use stamp::{Stamp, now_ns};
pub use words::{Answer, Names, Order, Run};

use std::future::Future;

/// One task's handle to one lock.
pub trait Contender: Send + 'static {
    /// A held lock.
    type Held: Send;

    /// Tells the task's number in its process, before its first acquisition of a run.
    fn number(&mut self, _task: usize) {}

    /// Waits until the lock is acquired.
    fn acquire(&mut self) -> impl Future<Output = anyhow::Result<Self::Held>> + Send;

    /// Releases the lock.
    fn release(&mut self, held: Self::Held) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// A connected client of one lock library.
pub trait Side: Send + 'static {
    /// The handle type of this library.
    type Contender: Contender;

    /// Creates a task's handle to the lock of that name.
    ///
    /// # Errors
    /// The library refuses to create one.
    fn contender(&self, name: &str) -> anyhow::Result<Self::Contender>;
}
