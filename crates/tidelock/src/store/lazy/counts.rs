//! The latches and counting semaphores of a store that may not be open yet.

use crate::error::Result;
use crate::store::lazy::LazySide;
use crate::store::{
    BoxFuture, CountChange, CountChanged, CountKind, Counts, Name, OwnerId, SemaphoreChange, Wait,
    ready,
};

impl Counts for LazySide {
    fn change<'a>(
        &'a self,
        name: &'a Name,
        change: CountChange,
        id: &'a OwnerId,
        settled: &'a [OwnerId],
    ) -> BoxFuture<'a, Result<CountChanged>> {
        // A change that was never sent has nothing to undo, and only a request of a caller opens the store.
        if change == CountChange::Semaphore(SemaphoreChange::Undo) && self.inner().is_none() {
            return ready(Ok(CountChanged {
                changed: false,
                count: 0,
            }));
        }
        self.ask_counts(move |counts| counts.change(name, change, id, settled))
    }

    fn count<'a>(&'a self, name: &'a Name, kind: CountKind) -> BoxFuture<'a, Result<i64>> {
        self.ask_counts(move |counts| counts.count(name, kind))
    }

    fn arm<'a>(&'a self, name: &'a Name, kind: CountKind) -> BoxFuture<'a, Result<Wait>> {
        self.ask_counts(move |counts| counts.arm(name, kind))
    }
}

impl LazySide {
    fn ask_counts<'a, T: Send + 'a>(
        &'a self,
        request: impl FnOnce(&'a dyn Counts) -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        self.ask(|inner| match inner.extensions().need_counts() {
            Ok(counts) => request(counts),
            Err(error) => ready(Err(error)),
        })
    }
}
