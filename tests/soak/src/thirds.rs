//! Leak check: compares the medians of the last third of a run with those of the first.

use std::fmt::Write as _;
use std::time::Duration;

use crate::plan::names;
use crate::samples::{
    CHANNELS, CONNECTIONS, DESCRIPTORS, ENDLESS, LOCKS, MARKS, MEMORY, OTHERS, Samples, TASKS,
    THREADS,
};

/// After a restart of the server the proxy has the old connections beside the new ones for some seconds. The last third of a
/// shorter run may consist of them.
const PROXY_SETTLES: Duration = Duration::from_secs(30);

/// Tombstones last five minutes. In a shorter run their number still grows, so we do not judge it.
const MARKS_SETTLE: Duration = Duration::from_secs(15 * 60);

/// A waiter listens for releases, and on the channel by which processes see that others wait.
const CHANNELS_OF_A_NAME: f64 = 2.0;

/// The medians of one figure in the first and the last third.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) who: String,
    pub(crate) what: &'static str,
    pub(crate) first: f64,
    pub(crate) last: f64,
    /// The growth that is allowed; `None` if this figure is not judged.
    pub(crate) more: Option<f64>,
}

impl Row {
    pub(crate) fn is_flat(&self) -> bool {
        self.more.is_none_or(|more| self.last <= self.first + more)
    }
}

/// The rows as a table. `of` is the title of the first column.
pub(crate) fn table<'a>(of: &str, rows: impl IntoIterator<Item = &'a Row>) -> String {
    let mut table = format!(
        "\n| {of} | median of | first third | last third | may be more by |\n| --- | --- | ---: | ---: | ---: |\n"
    );
    for row in rows {
        let more = row
            .more
            .map_or_else(|| "not judged".to_owned(), |more| format!("{more:.1}"));
        let mark = if row.is_flat() { "" } else { " **!**" };
        let Row {
            who,
            what,
            first,
            last,
            ..
        } = row;
        // Writing to a string does not fail.
        let _ = writeln!(
            table,
            "| {who} | {what} | {first:.1} | {last:.1}{mark} | {more} |"
        );
    }
    table
}

/// What grew by more than it may, as lines of the report.
pub(crate) fn steep(rows: &[Row]) -> Vec<String> {
    let steep = rows.iter().filter(|row| !row.is_flat());
    let line = |row: &Row| {
        let Row {
            who,
            what,
            first,
            last,
            ..
        } = row;
        format!("not flat: {what} of {who}, from {first:.1} to {last:.1}")
    };
    steep.map(line).collect()
}

/// The figures of a run with Redisson.
pub(crate) fn compare_all(samples: &Samples, length: Duration) -> Vec<Row> {
    let mut rows = compare(samples, length, tolerance);
    allow_for_redisson(&mut rows);
    rows
}

/// The growth of a figure that does not count as a leak, by its owner, its name, its first median and the length of the
/// run. `None`: it is not judged.
pub(crate) type Tolerance = fn(&str, &str, f64, Duration) -> Option<f64>;

/// Drops the first tenth of the run, the warm-up, and compares the first third of the rest with the last.
pub(crate) fn compare(samples: &Samples, length: Duration, tolerance: Tolerance) -> Vec<Row> {
    let warm = length / 10;
    let third = length * 3 / 10;
    let mut rows = Vec::new();
    for ((who, what), values) in &samples.values {
        let within = |from: Duration, till: Duration| {
            let chosen = values
                .iter()
                .filter(move |(at, _)| *at >= from && *at < till);
            median(chosen.map(|(_, value)| *value).collect())
        };
        let first = within(warm, warm + third);
        let last = within(length.saturating_sub(third), length * 2);
        if let (Some(first), Some(last)) = (first, last) {
            rows.push(Row {
                who: who.clone(),
                what,
                first,
                last,
                more: tolerance(who, what, first, length),
            });
        }
    }
    rows
}

/// Raises the limits of the server and the proxy by the connections that Redisson leaks: each is one descriptor at the
/// server and two at the proxy.
fn allow_for_redisson(rows: &mut [Row]) {
    let theirs = |row: &&Row| row.who.starts_with("Redisson") && row.what == DESCRIPTORS;
    let more = |row: &Row| (row.last - row.first).max(0.0);
    let kept: f64 = rows.iter().filter(theirs).map(more).sum();
    for row in rows {
        let times = match (&*row.who, row.what) {
            ("server", DESCRIPTORS | CONNECTIONS) => 1.0,
            ("proxy and driver", DESCRIPTORS) => 2.0,
            _ => continue,
        };
        row.more = row.more.map(|more| more + kept * times);
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn all_names() -> f64 {
    f64::from(u32::try_from(names().len()).unwrap_or(0))
}

/// The growth that does not count as a leak. A Java heap grows up to its limit of 128 MiB even if little of it is in
/// use.
fn tolerance(who: &str, what: &str, first: f64, length: Duration) -> Option<f64> {
    let java = who.starts_with("Redisson");
    match what {
        MEMORY if java => Some(64.0),
        MEMORY if who == "server" => Some(8.0),
        MEMORY => Some(2.0 + first / 10.0),
        // Redisson leaks connections: the more we cut, the more it keeps open.
        DESCRIPTORS if java => None,
        THREADS if java => Some(12.0),
        DESCRIPTORS if who == "proxy and driver" && length < PROXY_SETTLES => None,
        DESCRIPTORS if who == "server" || who == "proxy and driver" => Some(12.0),
        DESCRIPTORS | TASKS => Some(6.0),
        THREADS => Some(1.0),
        CONNECTIONS => Some(12.0),
        LOCKS | ENDLESS => Some(all_names()),
        // We compare with the most that all names need, not with the first third: if a fault empties the channels of
        // the first third, the same load has twice as many in the last.
        CHANNELS => Some(CHANNELS_OF_A_NAME * all_names() - first),
        OTHERS => Some(64.0 + first / 2.0),
        MARKS if length >= MARKS_SETTLE => Some(64.0 + first / 2.0),
        _ => None,
    }
}
