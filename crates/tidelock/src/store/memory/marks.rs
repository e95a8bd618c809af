//! The marks of a job's slots.

use std::time::SystemTime;

use crate::error::Result;
use crate::store::memory::Memory;
use crate::store::{BoxFuture, MarkChange, Marks, Name, ready};

impl Marks for Memory {
    fn now<'a>(&'a self, _name: &'a Name) -> BoxFuture<'a, Result<SystemTime>> {
        ready(Ok(self.world.wall_time()))
    }

    fn read<'a>(&'a self, name: &'a Name, slot: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        let mut records = self.world.lock();
        let marks = records.marks(name, self.timers.now());
        ready(Ok(marks.get(slot).map(|mark| mark.text.clone())))
    }

    fn replace<'a>(
        &'a self,
        name: &'a Name,
        change: MarkChange<'a>,
    ) -> BoxFuture<'a, Result<bool>> {
        let now = self.timers.now();
        let mut records = self.world.lock();
        let marks = records.marks(name, now);
        let same = marks.get(change.slot).map(|mark| &*mark.text) == change.before;
        if same {
            marks.put(change.slot, change.after, now + change.keep);
        }
        ready(Ok(same))
    }

    fn history<'a>(
        &'a self,
        name: &'a Name,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>> {
        let mut records = self.world.lock();
        ready(Ok(records.marks(name, self.timers.now()).newest(limit)))
    }
}
