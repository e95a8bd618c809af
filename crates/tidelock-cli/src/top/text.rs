//! A picture as text, safe for a terminal.

use std::fmt::Write;
use std::time::Duration;

use tidelock::Escaped;

use crate::inspect::rounded;
use crate::top::acquire_times::{AcquireTimes, Quantile};
use crate::top::leaders::{TASK_COLUMNS, TASK_NUMBERS, TaskRow};
use crate::top::picture::{LockRow, Picture, ProcessRow, Scanned, Sum};

/// Stands in a cell whose value is unknown.
const UNKNOWN: &str = "-";

/// Stands where nobody tells who waits.
pub(crate) const OTHERS: &str = "? who tells nothing, such as a Java service";

/// The columns of [`rows_of_lock`].
pub(crate) const LOCK_COLUMNS: [&str; 8] = [
    "lock",
    "kind",
    "holder",
    "held",
    "lease left",
    "token",
    "waiters",
    "longest",
];

/// The columns of [`row_of_process`].
pub(crate) const PROCESS_COLUMNS: [&str; 8] = [
    "process",
    "told",
    "store",
    "held",
    "waiting",
    "acquired",
    "timed out",
    "lost",
];

/// The columns of locks and of processes from here on hold numbers, those before it words.
pub(crate) const NUMBERS: usize = 3;

/// The whole picture. `store`: its URL, without a password.
pub(super) fn of(picture: &Picture, store: &str) -> String {
    let mut text = head(picture, store);
    let rows = picture.locks.iter().flat_map(rows_of_lock).collect();
    table(&mut text, LOCK_COLUMNS, NUMBERS, rows);
    let rows = picture.processes.iter().map(row_of_process).collect();
    table(&mut text, PROCESS_COLUMNS, NUMBERS, rows);
    let rows = picture.tasks.iter().map(TaskRow::cells).collect();
    table(&mut text, TASK_COLUMNS, TASK_NUMBERS, rows);
    text.truncate(text.trim_end().len());
    text
}

/// Two lines about the whole store.
pub(super) fn head(picture: &Picture, store: &str) -> String {
    let (held, waiters) = (shown(picture.held()), shown(picture.waiters()));
    let gone = match picture.gone() {
        0 => String::new(),
        gone => format!(" ({gone} gone)"),
    };
    let share = match picture.share {
        Some(share) => format!("  viewer costs {}", percent(share)),
        None => String::new(),
    };
    let scan = picture.scan.as_ref().map(found_by).unwrap_or_default();
    format!(
        "tidelock top  {}  answers in {}  {}{share}\nheld {held}  contended {}  waiters {waiters}  lost {}  processes {}{gone}  {}{scan}\n",
        Escaped(store),
        brief(picture.latency),
        humantime::format_rfc3339_seconds(picture.at),
        picture.contended(),
        picture.lost(),
        picture.processes.len(),
        waits(picture.acquire_times),
    )
}

/// How long the calls waited that have got a lock.
pub(crate) fn waits(times: AcquireTimes) -> String {
    format!("wait p50 {} p99 {}", within(times.p50), within(times.p99))
}

/// With a `+` if it may be longer.
pub(crate) fn within(quantile: Option<Quantile>) -> String {
    quantile.map_or(UNKNOWN.to_owned(), |quantile| {
        let more = if quantile.is_longer { "+" } else { "" };
        format!("{}{more}", exact(quantile.bound))
    })
}

/// As [`brief`], and not less than it is: calls have not waited 2 ms at most if the bound is 2.5 ms.
fn exact(bound: Duration) -> String {
    match u32::try_from(bound.as_micros()) {
        Ok(micros @ 1_000..1_000_000) => format!("{}ms", f64::from(micros) / 1000.0),
        _ => brief(bound),
    }
}

fn found_by(scan: &Scanned) -> String {
    let so_far = if scan.is_whole { "" } else { " so far" };
    let failed = match &scan.failed {
        Some(why) => format!("  scan failed: {}", safe(why)),
        None => String::new(),
    };
    format!("  scan found {}{so_far}{failed}", scan.locks)
}

/// A part of a core. Rounded up: it is the most that it may be.
pub(crate) fn percent(share: f64) -> String {
    let tenths = (share * 1000.0).ceil().max(1.0);
    format!("at most {:.1} % of a core", tenths / 10.0)
}

/// With a `+` if there may be more.
pub(crate) fn shown(Sum(number, is_lower_bound): Sum) -> String {
    format!("{number}{}", if is_lower_bound { "+" } else { "" })
}

/// The lock, and below it who waits. Not escaped.
pub(crate) fn rows_of_lock(lock: &LockRow) -> Vec<[String; 8]> {
    let gone = lock.holders.iter().any(|holder| holder.is_gone);
    let holder = match &lock.holders[..] {
        [] => "free".to_owned(),
        [one] => one.who.clone(),
        [first, rest @ ..] => format!("{} and {} more", first.who, rest.len()),
    };
    let holder = match lock.expires_in {
        Some(left) if gone => format!("{holder}: process gone, free in {}", brief(left)),
        _ if gone => format!("{holder}: process gone"),
        _ if lock.is_overdue() => {
            let ago = known(lock.seen_ago);
            format!("{holder}: seen {ago} ago, the lease it had then is over")
        }
        _ => holder,
    };
    let waiters = match lock.waiters {
        0 => UNKNOWN.to_owned(),
        waiters => shown(Sum(waiters, lock.is_lower_bound)),
    };
    let mut rows = vec![[
        lock.name.clone(),
        lock.kind.clone(),
        holder,
        known(lock.held_for),
        known(lock.expires_in),
        lock.token
            .map_or(UNKNOWN.to_owned(), |token| token.to_string()),
        waiters,
        known(lock.longest),
    ]];
    let mut tree: Vec<(String, String, String)> = lock
        .waiting
        .iter()
        .map(|one| (one.who.clone(), one.waiters.to_string(), brief(one.longest)))
        .collect();
    if lock.is_lower_bound {
        tree.push((OTHERS.to_owned(), "?".to_owned(), UNKNOWN.to_owned()));
    }
    let last = tree.len();
    for (at, (who, waiters, longest)) in (1..).zip(tree) {
        let branch = if at == last { "└ " } else { "├ " };
        let mut row: [String; 8] = Default::default();
        row[2] = format!("{branch}{who}");
        row[6] = waiters;
        row[7] = longest;
        rows.push(row);
    }
    rows
}

/// Not escaped.
pub(crate) fn row_of_process(process: &ProcessRow) -> [String; 8] {
    let told = brief(process.age);
    [
        process.who.clone(),
        if process.is_gone {
            format!("gone for {told}")
        } else {
            format!("{told} ago")
        },
        brief(process.latency),
        process.held.to_string(),
        process.waiting.to_string(),
        process.acquired.to_string(),
        process.timed_out.to_string(),
        process.lost.to_string(),
    ]
}

pub(crate) fn known(time: Option<Duration>) -> String {
    time.map_or(UNKNOWN.to_owned(), brief)
}

/// Two units at most: `12s 400ms`, `2h 3m`.
pub(crate) fn brief(time: Duration) -> String {
    let time = match time.as_secs() {
        0 if time < Duration::from_millis(1) => {
            Duration::from_micros(u64::try_from(time.as_micros()).unwrap_or_default() / 10 * 10)
        }
        0 => Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or_default()),
        1..60 => rounded(time),
        60..3600 => Duration::from_secs(time.as_secs()),
        _ => Duration::from_secs(time.as_secs() / 60 * 60),
    };
    let text = humantime::format_duration(time).to_string();
    let units: Vec<&str> = text.split(' ').take(2).collect();
    units.join(" ")
}

/// The most characters of a cell. Anybody who may write to the store may have written it, and a format of more than 65,535
/// columns panics.
const WIDEST: usize = 160;

/// A cell as a terminal may get it.
pub(crate) fn safe(cell: &str) -> String {
    cut(Escaped(cell).to_string())
}

fn cut(cell: String) -> String {
    match cell.char_indices().nth(WIDEST) {
        Some((end, _)) => format!("{}…", &cell[..end]),
        None => cell,
    }
}

/// Columns with two spaces between them; those from `numbers` on hold numbers.
fn table(text: &mut String, header: [&str; 8], numbers: usize, rows: Vec<[String; 8]>) {
    if rows.is_empty() {
        return;
    }
    let header = header.map(str::to_uppercase);
    let rows = std::iter::once(header).chain(rows);
    let rows: Vec<[String; 8]> = rows.map(|row| row.map(|cell| safe(&cell))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; 8] = std::array::from_fn(|column| width(column).unwrap_or_default());
    text.push('\n');
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            // A String takes everything.
            let _ = if column < numbers {
                write!(line, "{cell:<width$}  ")
            } else {
                write!(line, "{cell:>width$}  ")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests;
