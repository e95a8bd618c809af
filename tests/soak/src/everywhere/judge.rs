//! The judge: reads the records of all processes from one pipe, in the order in which they were written.
//!
//! Nothing but this pipe is between a holder and its judge, so telling costs a holder one system call, and ten million
//! acquisitions can be judged on the machine that makes them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{CWD, FileType, Mode};
use tempfile::TempDir;

use super::book::{Book, Finding, Process, process};
use super::stores::Store;
use crate::record::{Kind, Record, SIZE, What, micros, now};

/// The size of the pipe: room for what all processes tell while the judge waits for a core.
const PIPE: usize = 1 << 20;

/// The judge stops to list what is broken after this many lines: one mistake makes many.
const LINES: usize = 200;

/// A limit for the judge to come to the end of the pipe.
const PATIENCE: Duration = Duration::from_secs(60);

/// The library that a process was built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Build {
    Today,
    Older,
}

impl Build {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Today => "today",
            Self::Older => "older",
        }
    }
}

/// The names of one store, or of one process if its store is in its memory.
type Names = (Store, Option<Process>);

#[derive(Debug, Default)]
pub(crate) struct Seen {
    places: HashMap<u16, Store>,
    builds: HashMap<Process, Build>,
    books: HashMap<Names, HashMap<(&'static str, u16), Book>>,
    doomed: HashSet<Process>,
    /// When a process of the store was last killed.
    killed: HashMap<Store, u64>,
    lease: u64,
    pub(crate) acquired: BTreeMap<(Store, Kind), u64>,
    pub(crate) by_build: BTreeMap<(Store, Build), u64>,
    pub(crate) notes: BTreeMap<&'static str, u64>,
    pub(crate) refused: BTreeSet<(Store, Build, Kind)>,
    /// The number of tasks of each place, and the longest wait in each store in microseconds, and for
    /// what.
    pub(crate) tasks: HashMap<u16, u64>,
    pub(crate) longest: BTreeMap<Store, (u64, Kind)>,
    pub(crate) broken: Vec<String>,
    /// The last mark that the driver has put into the pipe.
    mark: u64,
}

impl Seen {
    pub(crate) fn acquisitions(&self) -> u64 {
        self.acquired.values().sum()
    }

    fn note(&mut self, what: &'static str) {
        *self.notes.entry(what).or_default() += 1;
    }

    fn breaks(&mut self, line: String) {
        if self.broken.len() < LINES {
            println!("BROKEN: {line}");
            self.broken.push(line);
        }
    }

    fn take(&mut self, record: &Record) {
        let who = process(record);
        let Some(store) = self.places.get(&record.slot).copied() else {
            self.mark = record.mark;
            return;
        };
        // A process that is about to be killed may still count down a latch. Without this record the latch would seem to open
        // too early.
        let counts_down = record.what == What::Counts && !store.is_private();
        if self.doomed.contains(&who) && !counts_down {
            return;
        }
        let names = (store, store.is_private().then_some(who));
        let build = self.builds.get(&who).copied().unwrap_or(Build::Today);
        match record.what {
            What::Dooms => {
                self.doomed.insert(who);
                self.killed.insert(store, record.from);
                self.void(names, who);
            }
            What::Ends => {
                for claim in self.void(names, who) {
                    self.breaks(format!(
                        "{}: a process ended and still claims {claim}",
                        store.name()
                    ));
                }
            }
            What::Reports => {
                self.tasks.insert(record.slot, record.token);
                let told = (record.mark, record.kind);
                let longest = self.longest.entry(store).or_insert(told);
                *longest = told.max(*longest);
            }
            What::Refuses => {
                self.refused.insert((store, build, record.kind));
            }
            What::Drops => self.note("acquisitions dropped at a random moment"),
            What::TimesOut => self.note("latches and barriers to which too few came in time"),
            _ => {
                if record.what == What::Loses {
                    self.note("holds that were told lost");
                }
                let counts = matches!(record.what, What::Enters | What::Passes);
                if counts && record.counted {
                    *self.acquired.entry((store, record.kind)).or_default() += 1;
                    *self.by_build.entry((store, build)).or_default() += 1;
                }
                self.judge(names, record);
            }
        }
    }

    fn judge(&mut self, names: Names, record: &Record) {
        let killed = self.killed.get(&names.0).copied();
        let excused = killed.is_some_and(|at| record.from < at + self.lease + 1_000_000);
        let books = self.books.entry(names).or_default();
        let book = books.entry((record.kind.group(), record.name)).or_default();
        for finding in book.take(record, excused) {
            match finding {
                Finding::Note(what) => self.note(what),
                Finding::Broken(line) => self.breaks(format!(
                    "{} {}-{}: {line}",
                    names.0.name(),
                    record.kind.group(),
                    record.name
                )),
            }
        }
    }

    fn void(&mut self, names: Names, who: Process) -> Vec<String> {
        if names.1.is_some() {
            let books = self.books.remove(&names).into_iter();
            let books = books.flat_map(HashMap::into_values);
            return books.flat_map(|mut book| book.void(who)).collect();
        }
        let books = self.books.entry(names).or_default().values_mut();
        books.flat_map(|book| book.void(who)).collect()
    }
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Seen>,
    marked: Condvar,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The judge, as seen by the driver.
#[derive(Debug)]
pub(crate) struct Judge {
    shared: Arc<Shared>,
    pipe: File,
    path: PathBuf,
    marks: u64,
    _dir: TempDir,
}

/// A place that no process has.
const DRIVER: u16 = u16::MAX;

impl Judge {
    pub(crate) fn start(lease: Duration) -> Result<Self> {
        let dir = TempDir::with_prefix("tidelock-")?;
        let path = dir.path().join("judge");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, mode, 0).context("making the pipe")?;
        // Open for both, so that it never ends: not all writers are there from the beginning to the end.
        let pipe = OpenOptions::new().read(true).write(true).open(&path)?;
        rustix::pipe::fcntl_setpipe_size(&pipe, PIPE).context("the size of the pipe")?;
        let shared = Arc::new(Shared::default());
        shared.seen().lease = micros(lease);
        let (reads, sees) = (pipe.try_clone()?, Arc::clone(&shared));
        thread::spawn(move || {
            if let Err(error) = read(reads, &sees) {
                sees.seen().breaks(format!("the judge: {error:#}"));
            }
        });
        Ok(Self {
            shared,
            pipe,
            path,
            marks: 0,
            _dir: dir,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.shared.seen()
    }

    /// Call this before the process is started.
    pub(crate) fn begins(&self, who: Process, store: Store, build: Build) {
        let mut seen = self.seen();
        seen.tasks.remove(&who.0);
        seen.places.insert(who.0, store);
        seen.builds.insert(who, build);
    }

    /// Call this before the process is killed: what it has done by then counts, and what it does after that does not.
    pub(crate) fn dooms(&self, who: Process) -> Result<()> {
        self.tell(What::Dooms, who, 0)
    }

    /// Call this after the process has ended by itself.
    pub(crate) fn ended(&self, who: Process) -> Result<()> {
        self.tell(What::Ends, who, 0)
    }

    /// Waits until all records that are in the pipe have been judged.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.marks += 1;
        let mark = self.marks;
        self.tell(What::Ends, (DRIVER, 0), mark)?;
        let waited = self
            .shared
            .marked
            .wait_timeout_while(self.seen(), PATIENCE, |seen| seen.mark < mark);
        let (seen, _) = waited.unwrap_or_else(PoisonError::into_inner);
        ensure!(seen.mark >= mark, "the judge is behind");
        Ok(())
    }

    fn tell(&self, what: What, who: Process, mark: u64) -> Result<()> {
        let mut record = Record::new(what, Kind::Lock);
        (record.slot, record.generation) = who;
        record.from = now();
        record.mark = mark;
        (&self.pipe).write_all(&record.bytes())?;
        Ok(())
    }
}

fn read(pipe: File, shared: &Shared) -> Result<()> {
    let mut pipe = BufReader::with_capacity(SIZE * 1024, pipe);
    let mut bytes = [0; SIZE];
    loop {
        pipe.read_exact(&mut bytes)?;
        let record = Record::read(&bytes).context("bytes that are no record")?;
        let mut seen = shared.seen();
        seen.take(&record);
        if record.slot == DRIVER {
            shared.marked.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_down_shortly_before_a_kill_counts() {
        let mut seen = Seen {
            places: HashMap::from([(1, Store::Redis), (2, Store::Redis)]),
            ..Seen::default()
        };
        let tells = |what, slot| Record {
            slot,
            amount: 1,
            ..Record::new(what, Kind::Latch)
        };
        let (set, count) = (tells(What::Sets, 1), tells(What::Counts, 1));
        let (doomed, last) = (tells(What::Dooms, 2), tells(What::Counts, 2));
        for record in [set, count, count, doomed, last, set] {
            seen.take(&record);
        }
        assert!(seen.broken.is_empty(), "{:?}", seen.broken);
    }
}
