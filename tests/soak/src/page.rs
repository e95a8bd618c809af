//! Formats the result, as a table and as a page of the docs.

use std::fmt::Write as _;

use crate::faults;
use crate::machine;
use crate::plan::{FAST, LEASE, SLOW, Soak};
use crate::thirds;
use crate::verdict::Verdict;

#[derive(Debug)]
pub(crate) struct Page<'a> {
    pub(crate) plan: &'a Soak,
    pub(crate) seed: u64,
    pub(crate) machine: &'a [(&'static str, String)],
    pub(crate) verdict: &'a Verdict,
}

/// Appends a line to a string. Writing to a string cannot fail, so the macro discards the result.
macro_rules! line {
    ($out:expr, $($text:tt)*) => { let _ = writeln!($out, $($text)*); };
}

impl Page<'_> {
    /// The table of all figures.
    pub(crate) fn table(&self) -> String {
        let mut out = String::new();
        self.result(&mut out);
        self.checks(&mut out);
        self.holds(&mut out);
        self.faults(&mut out);
        out.push_str(&thirds::table("of", &self.verdict.rows));
        out.trim_end().to_owned()
    }

    fn result(&self, out: &mut String) {
        let verdict = self.verdict;
        let seconds = verdict.length.as_secs_f64();
        let all = verdict.acquisitions();
        line!(out, "| what | result |");
        line!(out, "| --- | ---: |");
        let verdict_word = if verdict.problems.is_empty() {
            "nothing is broken"
        } else {
            "**broken**"
        };
        line!(out, "| verdict | {verdict_word} |");
        line!(out, "| time | {:.1} minutes |", seconds / 60.0);
        line!(out, "| seed | {} |", self.seed);
        line!(out, "| processes at a time | {} |", verdict.processes);
        line!(out, "| acquisitions | {all} |");
        #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
        let rate = all as f64 / seconds;
        line!(out, "| acquisitions a second | {rate:.0} |");
        line!(out, "| commands through the proxy | {} |", verdict.commands);
        line!(out, "| faults | {} |", verdict.faults.values().sum::<u64>());
    }

    fn checks(&self, out: &mut String) {
        let verdict = self.verdict;
        let count = |what: &str| verdict.counts.get(what).copied().unwrap_or(0);
        line!(
            out,
            "| two that were sure of one moment | {} |",
            count("overlap")
        );
        line!(
            out,
            "| the same, one of them granted before its lock was deleted | {} |",
            count("overlaps after a deletion")
        );
        line!(
            out,
            "| the same, one of them Redisson 3.15.6 | {} |",
            count("overlaps of Redisson 3.15.6")
        );
        line!(
            out,
            "| tokens, each larger than all before | {} |",
            count("tokens")
        );
        line!(out, "| tokens that were not | {} |", count("token"));
        line!(
            out,
            "| late holders refused by their token | {} |",
            count("late holders refused by their token")
        );
        line!(
            out,
            "| holds whose lock was deleted, and that were to hear of it | {} |",
            count("holds whose lock was deleted")
        );
        line!(
            out,
            "| losses told late by processes that stood still | {} |",
            verdict.frozen_late
        );
        line!(
            out,
            "| locks that Redisson kept and had forgotten, deleted | {} |",
            verdict.forgotten
        );
        for (who, millis) in &verdict.longest {
            line!(out, "| longest wait, {who} | {millis} ms |");
        }
        line!(
            out,
            "| last lock gone after the end | {} ms |",
            verdict.left_after.as_millis()
        );
    }

    fn holds(&self, out: &mut String) {
        let verdict = self.verdict;
        line!(out, "\n| acquisitions, ends and errors | times |");
        line!(out, "| --- | ---: |");
        for (who, times) in &verdict.acquired {
            line!(out, "| acquired by {who} | {times} |");
        }
        for (how, times) in &verdict.ended {
            line!(out, "| {how} | {times} |");
        }
        let dropped = verdict.counts.get("acquires dropped").copied().unwrap_or(0);
        line!(out, "| acquires dropped at a random moment | {dropped} |");
        for (kind, times) in &verdict.errors {
            line!(out, "| error {kind} | {times} |");
        }
    }

    fn faults(&self, out: &mut String) {
        line!(out, "\n| fault | times |");
        line!(out, "| --- | ---: |");
        for kind in faults::kinds() {
            let times = self.verdict.faults.get(kind).copied().unwrap_or(0);
            line!(out, "| {kind} | {times} |");
        }
    }

    /// The full text of `docs/soak.md`.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        let lease = LEASE.as_secs();
        line!(out, "# The last long soak\n");
        line!(
            out,
            "Written by `cargo xtask soak --minutes {} --write docs/soak.md`; do not edit.\n",
            self.plan.minutes
        );
        out.push_str(&format!(
            include_str!("page.md"),
            lease = lease,
            fast = FAST,
            slow = SLOW
        ));
        out.push('\n');
        out.push_str(&self.table());
        out.push_str(&machine::table(self.machine));
        out
    }
}
