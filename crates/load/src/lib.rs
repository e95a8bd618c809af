//! What a process of the bench does when it is told to: take locks with so many tasks, and note when.
//!
//! The same few lines are spoken by the peers of other languages; `interop/README.md` has them.

mod serve;
mod stamp;
mod words;

pub use serve::serve;
pub use stamp::{Stamp, now_ns};
pub use words::{Answer, Names, Order, Run};

use std::future::Future;

/// One task's way to one lock.
pub trait Contender: Send + 'static {
    /// What stands for a lock that is held.
    type Held: Send;

    /// Waits until it has the lock.
    fn acquire(&mut self) -> impl Future<Output = anyhow::Result<Self::Held>> + Send;

    /// Gives it back.
    fn release(&mut self, held: Self::Held) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// One client of a lock library, connected.
pub trait Side: Send + 'static {
    /// A task of it.
    type Contender: Contender;

    /// A task's way to the lock of that name.
    ///
    /// # Errors
    /// When the library will not make one.
    fn contender(&self, name: &str) -> anyhow::Result<Self::Contender>;
}
