//! The number of permits of a semaphore, as callers change it.

use crate::error::Result;
use crate::store::kinds::is_lock;
use crate::store::sqlite::Sqlite;
use crate::store::sqlite::connection::Durable;
use crate::store::sqlite::permit_records::PermitsChanged;
use crate::store::sqlite::sights;
use crate::store::{BoxFuture, Name, PermitChange, PermitCounter};

impl Sqlite {
    async fn change_permits(&self, name: &Name, change: PermitChange) -> Result<bool> {
        let which = name.clone();
        // On the disk before we return: a power failure must not give a semaphore its former number.
        let changed = self.worker.call(move |database| {
            // Read first: every process may set the number at its start, and most change nothing.
            if database.read(|view| view.permits_are_set(which.as_str(), change))? {
                return Ok(PermitsChanged::Done(false, Vec::new()));
            }
            let changed = database.grow(Durable::Yes, |view| {
                view.change_permits(which.as_str(), change)
            })?;
            if matches!(changed, PermitsChanged::IsLock) {
                sights::remember(database, Some(which.as_str()));
            }
            Ok(changed)
        });
        match changed.await? {
            PermitsChanged::Done(changed, next) => {
                self.wake(name, &next, false);
                Ok(changed)
            }
            PermitsChanged::IsLock => Err(is_lock()),
        }
    }
}

impl PermitCounter for Sqlite {
    fn queues(&self) -> bool {
        true
    }

    fn change<'a>(&'a self, name: &'a Name, change: PermitChange) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.change_permits(name, change))
    }
}
