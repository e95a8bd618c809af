//! What stands on each page: its facts and tables, as text that is not escaped yet for HTML.

use form_urlencoded::Serializer;
use tidelock::Escaped;

use crate::top::picture::{HolderCell, LockRow, Picture, ProcessRow};
use crate::top::text::{
    self, LOCK_COLUMNS, NUMBERS, OTHERS, PROCESS_COLUMNS, brief, known, safe, shown,
};
use crate::web::lanes::{self, Bar};
use crate::web::leaders;
use crate::web::sampler::Seen;

/// What a page shows. Names are in the query of its address and not in its path: a browser changes the path of a lock that
/// is called `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum View {
    All,
    Lock(String),
    Process(String),
}

impl View {
    /// From the query of an address.
    pub(super) fn of(query: Option<&str>) -> Self {
        let query = query.unwrap_or_default().as_bytes();
        let view = form_urlencoded::parse(query).find_map(|(key, value)| match &*key {
            "lock" => Some(Self::Lock(value.into_owned())),
            "process" => Some(Self::Process(value.into_owned())),
            _ => None,
        });
        view.unwrap_or(Self::All)
    }

    /// Its address below `path`.
    pub(super) fn at(&self, path: &str) -> String {
        let (key, value) = match self {
            Self::All => return path.to_owned(),
            Self::Lock(name) => ("lock", name),
            Self::Process(client) => ("process", client),
        };
        let query = Serializer::new(String::new())
            .append_pair(key, value)
            .finish();
        format!("{path}?{query}")
    }

    /// The lock that it is about.
    pub(super) fn lock(&self) -> Option<&str> {
        match self {
            Self::Lock(name) => Some(name),
            Self::All | Self::Process(_) => None,
        }
    }

    pub(super) fn title(&self) -> String {
        match self {
            Self::All => "locks".to_owned(),
            Self::Lock(name) => format!("lock {}", safe(name)),
            Self::Process(client) => format!("process {}", safe(client)),
        }
    }
}

/// What stands on a page.
#[derive(Debug)]
pub(super) struct Shows {
    pub(super) heading: String,
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) tables: Vec<Table>,
}

#[derive(Debug)]
pub(super) struct Table {
    /// For the address of a part of the page, so it never changes.
    pub(super) id: &'static str,
    pub(super) caption: &'static str,
    pub(super) columns: Vec<&'static str>,
    /// The columns from here on hold numbers.
    pub(super) numbers: usize,
    pub(super) rows: Vec<Row>,
    /// Said in place of rows.
    pub(super) empty: &'static str,
}

#[derive(Debug)]
pub(super) struct Row {
    /// The same row in the next picture has the same key.
    pub(super) key: String,
    /// `gone`, `contended` or nothing. The cells say it in words.
    pub(super) state: &'static str,
    pub(super) cells: Vec<Cell>,
}

#[derive(Debug, Default)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) link: Option<String>,
    /// A picture beside the text, which says the same.
    pub(super) bars: Vec<Bar>,
}

/// Like the cells without characters that cannot be seen, but never cut: two rows must not have one key.
pub(super) fn key(text: &str) -> String {
    Escaped(text).to_string()
}

pub(super) fn cell(text: impl AsRef<str>) -> Cell {
    Cell {
        text: safe(text.as_ref()),
        ..Cell::default()
    }
}

pub(super) fn to(view: &View, text: impl AsRef<str>) -> Cell {
    Cell {
        link: Some(view.at("/")),
        ..cell(text)
    }
}

fn to_lock(lock: &LockRow) -> Cell {
    to(&View::Lock(lock.name.clone()), &lock.name)
}

pub(super) fn to_client(client: &str, text: impl AsRef<str>) -> Cell {
    to(&View::Process(client.to_owned()), text)
}

/// A holder, with a link if its process is known.
fn to_holder(holder: &HolderCell, text: impl AsRef<str>, picture: &Picture) -> Cell {
    let mut processes = picture.processes.iter();
    match processes.find(|process| holder.is_of(process)) {
        Some(process) => to_client(&process.client, text),
        None => cell(text),
    }
}

impl Shows {
    pub(super) fn of(view: &View, picture: &Picture, seen: &Seen) -> Self {
        match view {
            View::All => all(picture),
            View::Lock(name) => {
                let mut locks = picture.locks.iter();
                let mut shows = match locks.find(|lock| lock.name == *name) {
                    Some(lock) => of_lock(lock, picture),
                    None => Self::missing(
                        name,
                        "nobody is known to hold this lock or to wait for it now",
                    ),
                };
                shows.tables.push(lanes::table(name, &seen.timeline));
                shows
            }
            View::Process(client) => {
                let mut processes = picture.processes.iter();
                match processes.find(|process| process.client == *client) {
                    Some(process) => of_process(process, picture),
                    None => Self::missing(client, "this process has ended, or its record has"),
                }
            }
        }
    }

    fn missing(name: &str, why: &str) -> Self {
        Self {
            heading: Escaped(name).to_string(),
            facts: vec![("now", why.to_owned())],
            tables: Vec::new(),
        }
    }
}

fn all(picture: &Picture) -> Shows {
    let processes = picture.processes.len();
    let scan = picture.scan.as_ref();
    let found = scan.map(|scan| {
        let so_far = if scan.is_whole { "" } else { " so far" };
        ("the scan found", format!("{}{so_far}", scan.locks))
    });
    let failed = scan.and_then(|scan| Some(("the scan failed", safe(scan.failed.as_ref()?))));
    Shows {
        heading: "Locks".to_owned(),
        facts: [
            ("held", shown(picture.held())),
            ("contended", picture.contended().to_string()),
            ("waiters", shown(picture.waiters())),
            ("wait p50", text::within(picture.acquire_times.p50)),
            ("wait p99", text::within(picture.acquire_times.p99)),
            ("lost", picture.lost().to_string()),
            (
                "processes",
                match picture.gone() {
                    0 => processes.to_string(),
                    gone => format!("{processes} ({gone} gone)"),
                },
            ),
            ("store answers in", brief(picture.latency)),
            (
                "this viewer costs",
                picture.share.map_or("-".to_owned(), text::percent),
            ),
        ]
        .into_iter()
        .chain(found)
        .chain(failed)
        .collect(),
        tables: vec![
            Table {
                id: "locks",
                caption: "Locks, the longest wait first",
                columns: LOCK_COLUMNS.to_vec(),
                numbers: NUMBERS,
                rows: picture
                    .locks
                    .iter()
                    .map(|lock| lock_row(lock, picture))
                    .collect(),
                empty: "no lock is known to be held or awaited",
            },
            Table {
                id: "processes",
                caption: "Processes that use this store",
                columns: PROCESS_COLUMNS.to_vec(),
                numbers: NUMBERS - 1,
                rows: picture.processes.iter().map(process_row).collect(),
                empty: "no process tells what it does",
            },
            leaders::table(picture, |_| true),
        ],
    }
}

/// The cells are those of `tidelock top`.
fn lock_row(lock: &LockRow, picture: &Picture) -> Row {
    let texts = text::rows_of_lock(lock).into_iter().next();
    let mut cells: Vec<Cell> = texts.into_iter().flatten().map(cell).collect();
    let [name, _, holder, ..] = &mut cells[..] else {
        return Row {
            key: key(&lock.name),
            state: "",
            cells,
        };
    };
    *name = to_lock(lock);
    if let Some(first) = lock.holders.first() {
        *holder = to_holder(first, &holder.text, picture);
    }
    let is_gone = lock.holders.iter().any(|holder| holder.is_gone);
    Row {
        key: key(&lock.name),
        state: match lock.waiters {
            _ if is_gone => "gone",
            0 => "",
            _ => "contended",
        },
        cells,
    }
}

fn process_row(process: &ProcessRow) -> Row {
    let mut cells: Vec<Cell> = text::row_of_process(process).map(cell).into();
    if let Some(first) = cells.first_mut() {
        *first = to_client(&process.client, &process.who);
    }
    Row {
        key: key(&process.client),
        state: if process.is_gone { "gone" } else { "" },
        cells,
    }
}

fn of_lock(lock: &LockRow, picture: &Picture) -> Shows {
    let holders = lock.holders.iter().map(|holder| Row {
        key: key(holder.owner.as_ref().unwrap_or(&holder.who)),
        state: if holder.is_gone { "gone" } else { "" },
        cells: vec![
            to_holder(holder, &holder.who, picture),
            cell(holder.owner.as_deref().unwrap_or("-")),
            cell(match holder.is_gone {
                true => "process gone",
                false if lock.is_overdue() => "has held it",
                false => "holds it",
            }),
        ],
    });
    let [_, kind, _, held, lease, token, waiters, longest] =
        text::rows_of_lock(lock).swap_remove(0);
    Shows {
        heading: Escaped(&lock.name).to_string(),
        facts: vec![
            ("kind", safe(&kind)),
            ("held", held),
            ("lease left", lease),
            ("token", token),
            ("waiters", waiters),
            ("longest wait", longest),
        ],
        tables: vec![
            Table {
                id: "holders",
                caption: "Holders",
                columns: vec!["holder", "owner", "state"],
                numbers: 3,
                rows: holders.collect(),
                empty: "it is free",
            },
            Table {
                id: "waiting",
                caption: "Who waits",
                columns: vec!["process", "waiters", "longest"],
                numbers: 1,
                rows: waiting_rows(lock),
                empty: "nobody is known to wait",
            },
        ],
    }
}

fn waiting_rows(lock: &LockRow) -> Vec<Row> {
    let mut waiting: Vec<Row> = lock
        .waiting
        .iter()
        .map(|one| Row {
            key: key(&one.client),
            state: "",
            cells: vec![
                to_client(&one.client, &one.who),
                cell(one.waiters.to_string()),
                cell(brief(one.longest)),
            ],
        })
        .collect();
    if lock.is_lower_bound {
        waiting.push(Row {
            // No client has this name.
            key: OTHERS.to_owned(),
            state: "",
            cells: vec![cell(OTHERS), cell("?"), cell("-")],
        });
    }
    waiting
}

fn of_process(process: &ProcessRow, picture: &Picture) -> Shows {
    let holds = picture.locks.iter().filter(|lock| {
        let mut holders = lock.holders.iter();
        holders.any(|holder| holder.is_of(process))
    });
    let holds = holds.map(|lock| Row {
        key: key(&lock.name),
        state: "",
        cells: vec![to_lock(lock), cell(known(lock.held_for))],
    });
    let waits = picture.locks.iter().filter_map(|lock| {
        let mut waiting = lock.waiting.iter();
        let one = waiting.find(|one| one.client == process.client)?;
        Some(Row {
            key: key(&lock.name),
            state: "",
            cells: vec![
                to_lock(lock),
                cell(one.waiters.to_string()),
                cell(brief(one.longest)),
            ],
        })
    });
    let [_, told, store, held, waiting, acquired, timed_out, lost] = text::row_of_process(process);
    Shows {
        heading: Escaped(&process.who).to_string(),
        facts: vec![
            ("client", safe(&process.client)),
            (
                "connected since",
                humantime::format_rfc3339_seconds(process.since).to_string(),
            ),
            ("told", told),
            ("store answers in", store),
            ("held", held),
            ("waiting", waiting),
            ("acquired", acquired),
            ("timed out", timed_out),
            ("failed", process.failed.to_string()),
            ("lost", lost),
        ],
        tables: vec![
            Table {
                id: "holds",
                caption: "Locks that it holds",
                columns: vec!["lock", "held"],
                numbers: 1,
                rows: holds.collect(),
                empty: "it tells of none",
            },
            Table {
                id: "waits",
                caption: "Locks that it waits for",
                columns: vec!["lock", "waiters", "longest"],
                numbers: 1,
                rows: waits.collect(),
                empty: "it tells of none",
            },
            leaders::table(picture, |row| row.client == process.client),
        ],
    }
}
