//! Renders the results as a page.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::thread;
use std::time::Duration;

use time::OffsetDateTime;

use super::{Column, HOLDERS, Results, TOO_BUSY};
use crate::partitions::Seen;
use crate::store::Store;

const HEAD: &str = "# Storms

Written by `cargo xtask storm --minutes M --write docs/storms.md`; `--store redis --seed N` repeats the round of a seed.

All stores and topologies of [the fault matrix](faults.md) at once, each on servers of its own and with three processes of its own, and on each
one random fault of the matrix after another: the server is killed and comes back with its data or empty, stands still for longer than a lease, is slow, swallows
everything or resets every connection; holders and waiters are killed or frozen; locks are deleted, flushed or forced free; primaries are killed, frozen or replaced by order.
A *round* is one to three faults with the same processes. Besides the tasks of the matrix, each process has HOLDERS tasks that hold a lock for two to
six leases, and another process waits for each of these locks; so one fault takes dozens of locks. After each fault every process must get its locks again within 15 leases.
After each round the checkers of the matrix judge all that the processes wrote down: no two acted on one lock at once, tokens grew, nobody acted on a lock that was no
longer proved, every loss was told in time, no free lock was left waiting, and nothing stayed behind in the store. A round is also red if a server or a process does not start, a process exits unexpectedly or does not shut down cleanly,
or a fault cannot be made, however busy the machine is. What [a store that forgets](guarantees.md) excuses there, it excuses here.
Left out are faults that need a server of another kind: a small disk, a clock of its own, a password; the matrix has them.

";

const COLUMNS: &str = "
*lost*: holds that were lost; each is judged: was it told, and in time. Every bound on a time is widened by 100 ms and twice the longest *stall* of the round.
*strictly*: losses of rounds in which that was less than a third of a lease. *told late*: those of them that were told after the next grant of the lock, as when the store
forgot it, or the holder was frozen. *two at once*: how often two processes acted on one lock at the same time, and for how long at most: only after the store forgot it, or somebody freed it by force. *stall*: the longest
time for which a process that nobody had frozen did not get to run, because the machine was busy. *disturbed*: rounds in which the machine was too busy to judge the bounds on waits. *faults*: those that were made; a round that ends early makes fewer.

";

const PLANTED: &str = "
## Planted bugs

`cargo test -p fault_matrix --test storm` plants each of these bugs in the processes of one round, in which a Redis and a memcached are emptied, and fails if the storm
does not find it. The bugs are in the processes, not in the library. `--lie` plants the bug of that name in any storm.

| `--lie` | planted bug | what the storm sees | test |
| --- | --- | --- | --- |
| `ignores-losses` | the processes act on locks that they have lost | two holders | `a_storm_finds_holders_that_ignore_their_losses` |
| `panics` | the tasks that hold a lock for two to six leases panic when they get it | a process that ended by itself, and the text of its panic | `a_storm_finds_a_process_that_panics` |
";

pub(super) fn page(results: &Results) -> String {
    let mut text = HEAD.replace("HOLDERS", &HOLDERS.to_string());
    let now = OffsetDateTime::now_utc();
    let minutes = results.took.as_secs() / 60;
    let _ = writeln!(text, "- date: {}, in {minutes} minutes", now.date());
    let _ = writeln!(text, "- {}", totals(results));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let lease = seconds(results.lease);
    let in_memory = std::env::temp_dir().starts_with("/dev/shm");
    let disk = if in_memory { "in memory" } else { "on disk" };
    let _ = writeln!(
        text,
        "- a lease of {lease}, on {cores} cores that other programs use too, files {disk}; seeds from {}",
        results.first
    );
    for (store, column) in &results.columns {
        let _ = writeln!(text, "- {store}: {}", column.version);
    }
    red(&mut text, results);
    text.push_str(COLUMNS);
    table(&mut text, results);
    faults(&mut text, results);
    text.push_str(PLANTED);
    text
}

/// All columns together.
pub(super) fn totals(results: &Results) -> String {
    let (mut rounds, mut faults, mut grants, mut red, mut too_busy) = (0, 0, 0, 0, 0);
    let mut strict = 0;
    let mut seen = Seen::default();
    for column in results.columns.values() {
        rounds += column.rounds;
        faults += column.faults.values().sum::<usize>();
        grants += column.grants;
        red += column.red.len();
        too_busy += column.too_busy;
        strict += column.strict;
        seen = seen.and(column.seen);
    }
    format!(
        "{rounds} rounds with {faults} faults, {grants} grants and {} losses, {strict} of them judged with a tolerance of less than a third of a lease; {red} rounds broke a promise. {too_busy} of them were disturbed: the machine \
         was so busy that some milliseconds of work took more than {} ms; in these the bounds on waits and recoveries are not judged, nor waits that ended without an answer of the store, nor whether a lease had to end; \
         all else is: a round counts as broken too if it did not begin or did not come to its end. In {} rounds sentinels \
         promoted a replica although nothing was down, which is judged as one more failover",
        seen.losses,
        TOO_BUSY.as_millis(),
        seen.disturbed
    )
}

fn red(text: &mut String, results: &Results) {
    let mut first = true;
    for (store, column) in &results.columns {
        for (seed, breaches) in &column.red {
            if std::mem::take(&mut first) {
                text.push_str("\n## Red\n\n");
            }
            let _ = writeln!(
                text,
                "- {store}: `cargo xtask storm --store {store} --seed {seed}`"
            );
            for breach in breaches.iter().take(3) {
                let _ = writeln!(text, "  - {}", breach.replace('\n', " "));
            }
        }
    }
}

fn table(text: &mut String, results: &Results) {
    text.push_str("| store | minutes | rounds | faults | grants | lost | strictly | told late | two at once | stall | disturbed | |\n");
    text.push_str(
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: | --- |\n",
    );
    for (store, column) in &results.columns {
        row(text, *store, column);
    }
}

fn row(text: &mut String, store: Store, column: &Column) {
    let seen = column.seen;
    let overlaps = match seen.overlaps {
        0 => "never".to_owned(),
        count => format!("{count}, {}", seconds(seen.longest_overlap)),
    };
    let _ = writeln!(
        text,
        "| {store} | {} | {} | {} | {} | {} | {} | {} | {overlaps} | {} | {} | {} |",
        column.took.as_secs() / 60,
        column.rounds,
        column.faults.values().sum::<usize>(),
        column.grants,
        seen.losses,
        column.strict,
        seen.told_late,
        seconds(column.stall),
        column.too_busy,
        if column.red.is_empty() {
            "kept"
        } else {
            "**red**"
        },
    );
}

/// How often each fault happened, and where.
fn faults(text: &mut String, results: &Results) {
    text.push_str("\n## The faults\n\n| fault | times | on |\n| --- | ---: | --- |\n");
    let mut all: BTreeMap<&str, Vec<(Store, usize)>> = BTreeMap::new();
    for (store, column) in &results.columns {
        for (fault, times) in &column.faults {
            all.entry(fault).or_default().push((*store, *times));
        }
    }
    for (fault, stores) in all {
        let times: usize = stores.iter().map(|(_, times)| times).sum();
        let on = stores
            .iter()
            .map(|(store, times)| format!("{store} {times}"));
        let _ = writeln!(
            text,
            "| {fault} | {times} | {} |",
            on.collect::<Vec<_>>().join(", ")
        );
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::PLANTED;
    use crate::planted;

    /// Without it the page would name a bug or a test that was renamed, and lack a bug that was added.
    #[test]
    fn the_page_names_each_planted_bug_and_its_test() {
        let bugs = planted::in_tests(include_str!("../../tests/storm.rs"));
        assert_eq!(PLANTED.matches("` |\n").count(), bugs.len());
        for (bug, test) in bugs {
            let (begin, end) = (format!("| `{bug}` | "), format!(" | `{test}` |"));
            let names = |row: &str| row.starts_with(&begin) && row.ends_with(&end);
            assert!(PLANTED.lines().any(names), "{bug}, {test}");
        }
        let page = include_str!("../../../../docs/storms.md");
        assert!(page.contains(PLANTED));
    }
}
