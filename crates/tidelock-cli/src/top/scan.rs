//! Lists the locks that no process tells of and nobody waits for, such as those of Java services. Only if the user asks for
//! it: on Redis it looks at every key of the server. It goes on a little with each look, within the budget of the viewer.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use tidelock::{Client, HeldNames};
use tokio::time::Instant;

use crate::exit::Outcome;
use crate::top::look::{held_row, is_of_the_lock};
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
    /// A round has come to its end.
    is_whole: bool,
    /// There were more locks than are kept.
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

    /// Goes on, and adds what was found so far to the picture.
    pub(super) async fn go_on(&mut self, client: &Client, picture: &mut Picture) -> Outcome<()> {
        let until = self.limit.map(|limit| Instant::now() + limit);
        let known: HashSet<&str> = picture.locks.iter().map(|lock| &*lock.name).collect();
        while until.is_none_or(|until| Instant::now() < until) {
            if let Some(name) = self.page.pop_front() {
                if !known.contains(&*name) {
                    self.visit(client, name, picture).await?;
                }
                continue;
            }
            let pattern = format!("{}*", self.prefix);
            let names = self.names.get_or_insert_with(|| client.list(&pattern));
            match names.next_page().await {
                Some(Ok(page)) => self.page = page.into(),
                Some(Err(error)) => {
                    self.names = None; // the next look begins a round
                    return Err(error.into());
                }
                None => {
                    self.end_round();
                    break;
                }
            }
        }
        let now = Instant::now();
        let found = self.found.iter();
        let found = found.filter(|(name, _)| !known.contains(&***name));
        let rows: Vec<LockRow> = found.map(|(_, found)| found.row_of(now)).collect();
        picture.locks.extend(rows);
        picture.scan = Some(Scanned {
            locks: self.found.len(),
            is_whole: self.is_whole && !self.is_cut,
        });
        Ok(())
    }

    async fn visit(&mut self, client: &Client, name: String, picture: &Picture) -> Outcome<()> {
        if self.found.len() >= MOST && !self.found.contains_key(&name) {
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
            self.found.remove(&name);
            return Ok(());
        }
        let found = Found {
            row: held_row(&seen, &picture.processes),
            at: Instant::now(),
            round: self.round,
        };
        self.found.insert(name, found);
        Ok(())
    }

    /// What was not found again is not held any more.
    fn end_round(&mut self) {
        let round = self.round;
        self.found.retain(|_, found| found.round == round);
        self.names = None;
        self.round += 1;
        self.is_whole = true;
    }
}

impl Found {
    /// As it is now, as far as can be said without asking again.
    fn row_of(&self, now: Instant) -> LockRow {
        let mut row = self.row.clone();
        let passed = now - self.at;
        // A lease that would be over has been renewed, or the lock is free: nobody knows until the scan comes by again.
        row.expires_in = row.expires_in.and_then(|left| left.checked_sub(passed));
        row
    }
}
