//! Formats the result, as tables and as a page of the docs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::crew::Change;
use super::judge::Build;
use super::plan::Everywhere;
use super::stores::Store;
use super::verdict::Verdict;
use crate::machine;
use crate::record::Kind;
use crate::samples::{DESCRIPTORS, MEMORY, TASKS, THREADS};
use crate::thirds::{self, Row};

#[derive(Debug)]
pub(crate) struct Page<'a> {
    pub(crate) plan: &'a Everywhere,
    pub(crate) seed: u64,
    pub(crate) machine: &'a [(&'static str, String)],
    pub(crate) verdict: &'a Verdict,
}

/// Appends a line to a string. Writing to a string cannot fail, so the macro discards the result.
macro_rules! line {
    ($out:expr, $($text:tt)*) => { let _ = writeln!($out, $($text)*); };
}

/// The figures that every process has.
const COLUMNS: [&str; 4] = [MEMORY, DESCRIPTORS, THREADS, TASKS];

impl Page<'_> {
    /// All tables.
    pub(crate) fn table(&self) -> String {
        let mut out = String::new();
        self.result(&mut out);
        for problem in &self.verdict.problems {
            line!(out, "\n**Broken:** {problem}");
        }
        self.kinds(&mut out);
        self.stores(&mut out);
        self.changes(&mut out);
        self.errors(&mut out);
        self.left(&mut out);
        self.processes(&mut out);
        self.servers(&mut out);
        out.trim_end().to_owned()
    }

    #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn rate(&self, times: u64) -> f64 {
        times as f64 / self.verdict.length.as_secs_f64()
    }

    fn result(&self, out: &mut String) {
        let verdict = self.verdict;
        let all = verdict.acquisitions();
        let good = verdict.problems.is_empty();
        let word = if good {
            "nothing is broken"
        } else {
            "**broken**"
        };
        line!(out, "| what | result |");
        line!(out, "| --- | ---: |");
        line!(out, "| verdict | {word} |");
        let minutes = verdict.length.as_secs_f64() / 60.0;
        line!(out, "| time | {minutes:.1} minutes |");
        line!(out, "| seed | {} |", self.seed);
        line!(out, "| older build | {} |", self.plan.old_is);
        line!(out, "| stores | {} |", verdict.stores.len());
        line!(out, "| acquisitions | {all} |");
        line!(out, "| acquisitions a second | {:.0} |", self.rate(all));
        let blind = verdict.blind.values().sum::<u64>();
        line!(out, "| looks at servers that failed | {blind} |");
        for (what, times) in &verdict.notes {
            line!(out, "| {what} | {times} |");
        }
    }

    fn kinds(&self, out: &mut String) {
        let titles = Kind::ALL.map(Kind::title).join(" | ");
        line!(out, "\n| acquisitions | {titles} |");
        line!(out, "| --- |{}", " ---: |".repeat(Kind::ALL.len()));
        for store in &self.verdict.stores {
            let cell = |kind| match self.verdict.acquired.get(&(*store, kind)) {
                Some(times) => times.to_string(),
                None => String::new(),
            };
            let cells = Kind::ALL.map(cell).join(" | ");
            line!(out, "| {} | {cells} |", store.name());
        }
    }

    fn stores(&self, out: &mut String) {
        line!(
            out,
            "\n| store | acquisitions | a second | by today's build | by the older build | longest wait | kinds that only today's build has |"
        );
        line!(out, "| --- | ---: | ---: | ---: | ---: | ---: | --- |");
        for store in &self.verdict.stores {
            let by = |build| {
                let times = self.verdict.by_build.get(&(*store, build)).copied();
                times.unwrap_or(0)
            };
            let (today, older) = (by(Build::Today), by(Build::Older));
            let all = today + older;
            let longest = self.verdict.longest.get(store);
            let longest = longest.map_or_else(String::new, |(micros, kind)| {
                format!("{} ms, {}", micros / 1000, kind.title())
            });
            line!(
                out,
                "| {} | {all} | {:.1} | {today} | {older} | {longest} | {} |",
                store.name(),
                self.rate(all),
                self.added(*store)
            );
        }
    }

    /// The kinds that the store refuses to the older build only.
    fn added(&self, store: Store) -> String {
        let refused = &self.verdict.refused;
        let is_added = |kind: &&Kind| {
            refused.contains(&(store, Build::Older, **kind))
                && !refused.contains(&(store, Build::Today, **kind))
        };
        let added = Kind::ALL.iter().filter(is_added);
        added
            .map(|kind| kind.title())
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn changes(&self, out: &mut String) {
        line!(out, "\n| a process | was followed by one of | times |");
        line!(out, "| --- | --- | ---: |");
        for (change, times) in &self.verdict.changes {
            let (how, from, to) = match change {
                Change::Stopped(from, to) => ("stopped", from, to),
                Change::Killed(from, to) => ("killed", from, to),
            };
            line!(
                out,
                "| of the build {}, {how} | the build {} | {times} |",
                from.name(),
                to.name()
            );
        }
    }

    fn errors(&self, out: &mut String) {
        if self.verdict.errors.is_empty() {
            line!(out, "\nNo operation failed.");
            return;
        }
        line!(
            out,
            "\n| store | kind and error | build | times | the first |"
        );
        line!(out, "| --- | --- | --- | ---: | --- |");
        for ((store, what, build), (times, text)) in &self.verdict.errors {
            line!(
                out,
                "| {} | {what} | {} | {times} | {text} |",
                store.name(),
                build.name()
            );
        }
    }

    fn left(&self, out: &mut String) {
        line!(
            out,
            "\n| store | left at the end, when all locks are free |"
        );
        line!(out, "| --- | --- |");
        for (store, left) in &self.verdict.left {
            line!(out, "| {} | {left} |", store.name());
        }
    }

    /// One line for each process: each figure in the first and in the last third.
    fn processes(&self, out: &mut String) {
        let mut all: BTreeMap<&str, BTreeMap<&str, &Row>> = BTreeMap::new();
        for row in self.verdict.rows.iter().filter(|row| is_process(row)) {
            all.entry(&row.who).or_default().insert(row.what, row);
        }
        line!(
            out,
            "\n| process, first and last third | {} |",
            COLUMNS.join(" | ")
        );
        line!(out, "| --- |{}", " ---: |".repeat(COLUMNS.len()));
        for (who, figures) in all {
            let cells =
                COLUMNS.map(|what| figures.get(what).map_or(String::new(), |row| pair(row)));
            line!(out, "| {who} | {} |", cells.join(" | "));
        }
    }

    fn servers(&self, out: &mut String) {
        let servers = self.verdict.rows.iter().filter(|row| !is_process(row));
        out.push_str(&thirds::table("server", servers));
    }

    /// The full text of `docs/soak-everywhere.md`.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        line!(out, "# The last soak on every store\n");
        let wanted = self.plan.acquisitions;
        let wanted = wanted.map_or_else(String::new, |times| format!(" --acquisitions {times}"));
        line!(
            out,
            "Written by `cargo xtask soak-everywhere --minutes {}{wanted} --write docs/soak-everywhere.md`; do not edit.\n",
            self.plan.minutes
        );
        out.push_str(&format!(include_str!("page.md"), lease = self.plan.lease));
        out.push('\n');
        out.push_str(&self.table());
        out.push_str(&machine::table(self.machine));
        out
    }
}

fn is_process(row: &Row) -> bool {
    !row.who.contains("server")
}

fn pair(row: &Row) -> String {
    let mark = if row.is_flat() { "" } else { " **!**" };
    format!("{:.1} → {:.1}{mark}", row.first, row.last)
}
