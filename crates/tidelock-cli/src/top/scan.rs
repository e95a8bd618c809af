//! Lists the locks that no process tells of and nobody waits for, such as those of Java services. Only if the user asks for
//! it: on Redis it looks at every key of the server. It goes on a little with each look, within the budget of the viewer.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use tidelock::{Client, HeldNames};
use tokio::time::Instant;

use crate::exit::{Failure, Outcome};
use crate::inspect::is_of_the_lock;
use crate::top::look::held_row;
use crate::top::picture::{LockRow, Picture, Scanned};

/// The scan goes on for this part of the time between two looks. What it takes counts as work of the look.
const PART: u32 = 100;

/// Bounds how many locks are kept.
const MOST: usize = 1000;

/// A scan of the store, round after round.
#[derive(Debug)]
pub(super) struct Scan {
    prefix: String,
    /// How long it goes on in one look. `None`: until it is through.
    limit: Option<Duration>,
    /// The round that is under way. `None`: the next one has not begun.
    names: Option<HeldNames>,
    /// The names of the last page that have not been looked at.
    page: VecDeque<String>,
    round: u64,
    found: BTreeMap<String, Found>,
    /// The last round that came to its end has kept all that it saw.
    is_whole: bool,
    /// This round has come by more locks than are kept.
    is_cut: bool,
}

/// A lock as it was when the scan came by.
#[derive(Debug)]
struct Found {
    row: LockRow,
    at: Instant,
    round: u64,
}

impl Scan {
    pub(super) fn new(prefix: &str, every: Duration) -> Self {
        Self {
            prefix: prefix.to_owned(),
            limit: Some(every / PART),
            names: None,
            page: VecDeque::new(),
            round: 0,
            found: BTreeMap::new(),
            is_whole: false,
            is_cut: false,
        }
    }

    /// For a viewer that looks once: it waits for all.
    pub(super) fn whole(mut self) -> Self {
        self.limit = None;
        self
    }

    /// Goes on, and adds what was found so far to the picture. An error is a part of the picture, for the rest of it is good;
    /// the next look goes on where it was.
    pub(super) async fn go_on(&mut self, client: &Client, picture: &mut Picture) {
        let failed = self.advance(client, picture).await.err();
        let known: HashSet<&str> = picture.locks.iter().map(|lock| &*lock.name).collect();
        let now = Instant::now();
        let found = self.found.iter();
        let found = found.filter(|(name, _)| !known.contains(&***name));
        let rows: Vec<LockRow> = found.map(|(_, found)| found.row_of(now)).collect();
        picture.locks.extend(rows);
        picture.scan = Some(Scanned {
            locks: self.found.len(),
            is_whole: self.is_whole,
            failed: failed.map(|failed| failed.message),
        });
    }

    async fn advance(&mut self, client: &Client, picture: &Picture) -> Outcome<()> {
        let until = self.limit.map(|limit| Instant::now() + limit);
        let known: HashSet<&str> = picture.locks.iter().map(|lock| &*lock.name).collect();
        while until.is_none_or(|until| Instant::now() < until) {
            if let Some(name) = self.page.front().cloned() {
                if !known.contains(&*name) {
                    self.visit(client, &name, picture).await?;
                }
                // Not before: a name that could not be looked at is the next one again.
                self.page.pop_front();
                continue;
            }
            let pattern = format!("{}*", self.prefix);
            let names = self.names.get_or_insert_with(|| client.list(&pattern));
            match names.next_page().await {
                Some(Ok(page)) => self.page = page.into(),
                Some(Err(error)) => return Err(Failure::from(error)),
                None => {
                    self.end_round();
                    break;
                }
            }
        }
        Ok(())
    }

    async fn visit(&mut self, client: &Client, name: &str, picture: &Picture) -> Outcome<()> {
        if self.found.len() >= MOST && !self.found.contains_key(name) {
            self.is_cut = true;
            return Ok(());
        }
        // Listed names include the prefix.
        let Some(own) = name.strip_prefix(&self.prefix) else {
            return Ok(());
        };
        let seen = match client.lock(own).inspect().await {
            Err(error) if is_of_the_lock(error.kind()) => return Ok(()),
            seen => seen?,
        };
        if !seen.is_locked() {
            self.found.remove(name);
            return Ok(());
        }
        let found = Found {
            row: held_row(&seen, &picture.processes),
            at: Instant::now(),
            round: self.round,
        };
        self.found.insert(name.to_owned(), found);
        Ok(())
    }

    /// What was not found again is not held any more.
    fn end_round(&mut self) {
        let round = self.round;
        self.found.retain(|_, found| found.round == round);
        self.names = None;
        self.round += 1;
        self.is_whole = !std::mem::take(&mut self.is_cut);
    }
}

impl Found {
    /// As it is now, as far as can be said without asking again.
    fn row_of(&self, now: Instant) -> LockRow {
        let mut row = self.row.clone();
        let passed = now - self.at;
        row.expires_in = row.expires_in.map(|left| left.saturating_sub(passed));
        row.seen_ago = Some(passed);
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::sample::picture;

    async fn held(names: impl IntoIterator<Item = String>) -> (Client, Vec<tidelock::Guard>) {
        let client = Client::connect("memory:").await.unwrap();
        let mut guards = Vec::new();
        for name in names {
            guards.push(client.lock(&name).acquire().await.unwrap());
        }
        (client, guards)
    }

    async fn seen(scan: &mut Scan, client: &Client) -> (Scanned, Vec<LockRow>) {
        let mut picture = picture();
        picture.locks.clear();
        scan.go_on(client, &mut picture).await;
        (picture.scan.unwrap(), picture.locks)
    }

    fn names<const N: usize>(names: [&str; N]) -> [String; N] {
        names.map(str::to_owned)
    }

    #[tokio::test]
    async fn a_scan_that_fails_keeps_what_it_has_found_and_goes_on_where_it_was() {
        let (client, guards) = held(names(["a", "b"])).await;
        let mut scan = Scan::new("", Duration::from_secs(1)).whole();
        let (all, rows) = seen(&mut scan, &client).await;
        assert_eq!((all.locks, all.is_whole, rows.len()), (2, true, 2));
        // The next round has read its first page when the store fails.
        scan.names = Some(client.list("*"));
        scan.page = names(["a", "b"]).into();
        drop(guards);
        client.close(Duration::ZERO).await;
        for _ in 0..2 {
            let (failed, rows) = seen(&mut scan, &client).await;
            assert!(failed.failed.is_some(), "{failed:?}");
            assert_eq!((failed.locks, rows.len()), (2, 2));
            assert_eq!(scan.page, names(["a", "b"]));
        }
        scan.page.clear();
        for _ in 0..2 {
            let (failed, _) = seen(&mut scan, &client).await;
            assert!(failed.failed.is_some(), "{failed:?}");
            assert_eq!((failed.locks, scan.round), (2, 1), "the round goes on");
        }
    }

    #[tokio::test]
    async fn a_round_that_keeps_all_comes_after_one_that_could_not() {
        let (client, mut guards) = held((0..=MOST).map(|number| number.to_string())).await;
        let mut scan = Scan::new("", Duration::from_secs(1)).whole();
        let (cut, rows) = seen(&mut scan, &client).await;
        assert_eq!((cut.locks, cut.is_whole, rows.len()), (MOST, false, MOST));
        for guard in guards.drain(..MOST / 2) {
            guard.release().await.unwrap();
        }
        // The first round after that may still have no place for a lock, until those that are free are gone.
        seen(&mut scan, &client).await;
        let (whole, rows) = seen(&mut scan, &client).await;
        assert!(whole.is_whole, "{whole:?}");
        assert_eq!(rows.len(), guards.len());
        client.close(Duration::ZERO).await;
    }

    #[test]
    fn a_found_lock_grows_old_until_its_lease_has_passed() {
        let at = Instant::now();
        let row = LockRow {
            expires_in: Some(Duration::from_secs(30)),
            ..LockRow::default()
        };
        let round = 0;
        let found = Found { row, at, round };
        for (passed, is_overdue) in [(0, false), (29, false), (30, true), (300, true)] {
            let passed = Duration::from_secs(passed);
            let row = found.row_of(at + passed);
            assert_eq!(row.seen_ago, Some(passed));
            assert_eq!(row.is_overdue(), is_overdue, "{passed:?}");
        }
    }
}
