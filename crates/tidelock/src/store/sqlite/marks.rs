//! The marks of a job's slots: a table of its own, which the first mark creates. A file of an earlier tidelock has none.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::store::sqlite::Sqlite;
use crate::store::sqlite::connection::Durable;
use crate::store::sqlite::records::{LockTransaction, millis};
use crate::store::sqlite::timebase::Timebase;
use crate::store::{BoxFuture, Clock, MarkChange, Marks, Name, ready};

/// The ends are times of the wall clock, because a mark outlives a boot of the machine.
const TABLE: &str = "
CREATE TABLE IF NOT EXISTS marks (
    name TEXT NOT NULL,
    slot TEXT NOT NULL,
    mark TEXT NOT NULL,
    written INTEGER NOT NULL,   -- counts the writes of this name
    ends INTEGER NOT NULL,      -- wall clock, milliseconds
    PRIMARY KEY (name, slot)
) WITHOUT ROWID;
";

/// Marks that are kept no longer than this need not survive a power failure.
const KEPT_FOR_A_MOMENT: Duration = Duration::from_secs(60);

/// 2026-01-01: a simulated clock starts on the same day in each run.
const SIMULATED_START: Duration = Duration::from_secs(1_767_225_600);

/// A mark is on the disk before we return, or the job would run a second time after a power failure. What we keep for a
/// moment only, such as the record of a process, may be forgotten then.
fn durability(name: &str, keep: Duration) -> Durable {
    let is_ours = name.starts_with("tidelock:");
    if is_ours && keep <= KEPT_FOR_A_MOMENT {
        Durable::No
    } else {
        Durable::Yes
    }
}

/// The wall clock of this machine.
fn wall_time(clock: Clock) -> SystemTime {
    match clock {
        Clock::Boot => SystemTime::now(),
        Clock::Simulated => {
            let nanos = Timebase::new(clock).now().stamp;
            UNIX_EPOCH + SIMULATED_START + Duration::from_nanos(nanos.unsigned_abs())
        }
    }
}

impl LockTransaction<'_> {
    fn has_marks(&self) -> rusqlite::Result<bool> {
        self.connection
            .prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'marks'")?
            .exists([])
    }

    fn mark(&self, name: &str, slot: &str, now: SystemTime) -> rusqlite::Result<Option<String>> {
        if !self.has_marks()? {
            return Ok(None);
        }
        self.connection
            .prepare_cached("SELECT mark FROM marks WHERE name = ?1 AND slot = ?2 AND ends > ?3")?
            .query_row(params![name, slot, millis(now)], |row| row.get(0))
            .optional()
    }

    /// Gives the slot the mark `after`, if it has `before` now. Expired marks of all names are deleted on the way.
    fn replace_mark(
        &self,
        name: &str,
        slot: &str,
        before: Option<&str>,
        after: &str,
        (now, keep): (SystemTime, Duration),
    ) -> rusqlite::Result<bool> {
        self.connection.execute_batch(TABLE)?;
        if self.mark(name, slot, now)?.as_deref() != before {
            return Ok(false);
        }
        self.connection
            .prepare_cached("DELETE FROM marks WHERE ends <= ?1")?
            .execute([millis(now)])?;
        self.connection
            .prepare_cached(
                "REPLACE INTO marks (name, slot, mark, written, ends) \
                 SELECT ?1, ?2, ?3, coalesce(max(written), 0) + 1, ?4 FROM marks WHERE name = ?1",
            )?
            .execute(params![name, slot, after, millis(now + keep)])?;
        Ok(true)
    }

    fn newest_marks(
        &self,
        name: &str,
        limit: u32,
        now: SystemTime,
    ) -> rusqlite::Result<Vec<(String, String)>> {
        if !self.has_marks()? {
            return Ok(Vec::new());
        }
        self.connection
            .prepare_cached(
                "SELECT slot, mark FROM marks WHERE name = ?1 AND ends > ?2 ORDER BY written DESC LIMIT ?3",
            )?
            .query_map(params![name, millis(now), limit], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect()
    }
}

impl Marks for Sqlite {
    fn now<'a>(&'a self, _name: &'a Name) -> BoxFuture<'a, Result<SystemTime>> {
        ready(Ok(wall_time(self.clock)))
    }

    fn read<'a>(&'a self, name: &'a Name, slot: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        let (name, slot) = (name.clone(), slot.to_owned());
        let now = wall_time(self.clock);
        Box::pin(self.read(move |view| view.mark(name.as_str(), &slot, now)))
    }

    fn replace<'a>(
        &'a self,
        name: &'a Name,
        change: MarkChange<'a>,
    ) -> BoxFuture<'a, Result<bool>> {
        let (name, slot, keep) = (name.clone(), change.slot.to_owned(), change.keep);
        let (before, after) = (change.before.map(str::to_owned), change.after.to_owned());
        let now = wall_time(self.clock);
        let durable = durability(name.as_str(), keep);
        Box::pin(self.write(durable, move |view| {
            let (before, times) = (before.as_deref(), (now, keep));
            view.replace_mark(name.as_str(), &slot, before, &after, times)
        }))
    }

    fn history<'a>(
        &'a self,
        name: &'a Name,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>> {
        let name = name.clone();
        let now = wall_time(self.clock);
        Box::pin(self.read(move |view| view.newest_marks(name.as_str(), limit, now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a power failure a job must not run a second time.
    #[test]
    fn only_our_own_marks_that_are_kept_for_a_moment_need_not_be_on_the_disk() {
        let moment = KEPT_FOR_A_MOMENT;
        let longer = moment + Duration::from_millis(1);
        for (name, keep, durable) in [
            ("tidelock:processes", moment, Durable::No),
            ("tidelock:processes", longer, Durable::Yes),
            ("report", moment, Durable::Yes),
            ("report", longer, Durable::Yes),
        ] {
            assert_eq!(durability(name, keep), durable, "{name} {keep:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_simulated_wall_clock_goes_on_from_its_start() {
        let begun = wall_time(Clock::Simulated);
        assert!(begun > UNIX_EPOCH + SIMULATED_START);
        let second = Duration::from_secs(1);
        tokio::time::advance(second).await;
        assert_eq!(wall_time(Clock::Simulated), begun + second);
    }
}
