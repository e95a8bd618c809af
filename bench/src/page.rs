//! Renders `docs/performance.md`.

use std::fmt::Write as _;

use crate::args::Args;
use crate::chart::Chart;
use crate::goals::Goal;

/// `writeln!` to a string cannot fail, so the result is ignored.
macro_rules! line {
    ($out:expr, $($text:tt)*) => { let _ = writeln!($out, $($text)*); };
}

/// A Markdown table. The first column is the label, the others are figures.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self {
            head: head.iter().map(|&word| word.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn markdown(&self) -> String {
        let mut out = String::new();
        line!(out, "| {} |", self.head.join(" | "));
        let rule = self
            .head
            .iter()
            .enumerate()
            .map(|(at, _)| if at == 0 { "---" } else { "---:" });
        line!(out, "| {} |", rule.collect::<Vec<_>>().join(" | "));
        for row in &self.rows {
            line!(out, "| {} |", row.join(" | "));
        }
        out
    }
}

/// One workload's section of the page.
#[derive(Debug, Default)]
pub(crate) struct Section {
    pub(crate) title: &'static str,
    /// Describes the workload and how to read the figures.
    pub(crate) text: String,
    /// Each table with the line above it, which may be empty.
    pub(crate) tables: Vec<(String, Table)>,
    pub(crate) charts: Vec<Chart>,
    pub(crate) goals: Vec<Goal>,
    /// Written by hand: what a profile shows, what was tried.
    pub(crate) notes: String,
}

/// The whole page.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) machine: Vec<(String, String)>,
    pub(crate) peers: Table,
    pub(crate) sections: Vec<Section>,
    pub(crate) left_out: Vec<(&'static str, String, String)>,
}

impl Page {
    /// Renders the text. It links to the charts in `folder`, next to the page.
    pub(crate) fn markdown(&self, args: &Args, folder: &str) -> String {
        let mut out = String::new();
        line!(out, "# What a lock costs\n");
        line!(
            out,
            "Written by `cargo xtask bench -- --write docs/performance.md`; do not edit.\n"
        );
        line!(out, "{}", INTRODUCTION.trim());
        if args.quick {
            line!(out, "\n**A short run, which measures little.**");
        }
        if !args.only.is_empty() {
            line!(out, "\nOnly {} were run.", args.only.join(", "));
        }
        line!(out, "\n## Targets\n");
        line!(out, "{}", self.targets().markdown());
        for section in &self.sections {
            line!(out, "## {}\n", section.title);
            line!(out, "{}\n", section.text.trim());
            for chart in &section.charts {
                line!(out, "![{}]({folder}/{}.svg)\n", chart.title, chart.file);
            }
            for (about, table) in &section.tables {
                if !about.is_empty() {
                    line!(out, "{about}\n");
                }
                line!(out, "{}", table.markdown());
            }
            if !section.notes.is_empty() {
                line!(out, "{}\n", section.notes.trim());
            }
        }
        line!(out, "## Who was measured\n");
        line!(out, "{}", PEERS.trim());
        line!(out, "\n{}", self.peers.markdown());
        self.write_left_out(&mut out);
        line!(out, "## Measured on\n");
        line!(out, "| | |\n| --- | --- |");
        for (what, is) in &self.machine {
            line!(out, "| {what} | {is} |");
        }
        out
    }

    fn targets(&self) -> Table {
        let mut table = Table::new(&["what", "target", "measured", "verdict"]);
        for goal in self.sections.iter().flat_map(|section| &section.goals) {
            table.row(goal.row());
        }
        table
    }

    fn write_left_out(&self, out: &mut String) {
        if self.left_out.is_empty() {
            return;
        }
        line!(out, "## What did not work\n");
        for (workload, who, why) in &self.left_out {
            // A build error may be a page of compiler output; its first lines name the cause.
            let why: Vec<&str> = why.lines().take(3).map(str::trim).collect();
            line!(out, "- {workload}, {who}: {}", why.join(" / "));
        }
        line!(out, "");
    }
}

const INTRODUCTION: &str = "
Absolute times are those of one machine at one moment; expect yours to differ. What can be compared are the ratios: in each
round everybody takes a turn on the same server, one at a time, in a new random order. The figures are medians over
the rounds, in brackets the smallest and the largest; a ratio is the median of the ratios of each round.

Every hold is noted by the process that has it on the machine's monotonic clock, which all languages can read: asked,
entered, leaving, left. All times of locks come from these notes. In W1 to W8 and in the section on metrics a process of the lowest priority keeps each core awake wherever
one waits for one, because an idle core of a virtual machine takes longer to wake up than a lock takes.
";

const PEERS: &str = "
Each through its own real client and with its own defaults; what was changed is said. Renewed: a lock lives as long as its
holder. All of them check the owner when they release.
";

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn page() -> Page {
        let mut table = Table::new(&["who", "µs"]);
        table.row(["tidelock".to_owned(), "12".to_owned()]);
        Page {
            machine: vec![("cores".into(), "2".into())],
            peers: Table::new(&["who"]),
            sections: vec![Section {
                title: "W9: something",
                text: "\nWhat it is.\n".into(),
                tables: vec![("By the way:".into(), table)],
                charts: Vec::new(),
                goals: vec![Goal::at_most("W9: so much", 1.0, " ×", Some(2.0))],
                notes: "The profile shows it.\n".into(),
            }],
            left_out: vec![("W9", "redsync".into(), "not\nbuilt\nat\nall".into())],
        }
    }

    #[test]
    fn a_page_has_targets_sections_and_what_did_not_work() {
        let args = Args::parse_from(["bench"]);
        let text = page().markdown(&args, "performance");
        let expected = [
            "## Targets\n\n| what | target | measured | verdict |\n| --- | ---: | ---: | ---: |",
            "| W9: so much | ≤ 1.00 × | 2.00 × | **missed** by 2.00 × |",
            "## W9: something\n\nWhat it is.\n\nBy the way:\n\n| who | µs |\n| --- | ---: |\n| tidelock | 12 |\n\nThe profile shows it.\n\n",
            "- W9, redsync: not / built / at\n",
            "| cores | 2 |",
        ];
        for part in expected {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(!text.contains("short run"));
    }

    #[test]
    fn a_short_run_says_so() {
        let args = Args::parse_from(["bench", "--quick", "--only", "W1,W2"]);
        let text = page().markdown(&args, "performance");
        assert!(text.contains("A short run"));
        assert!(text.contains("Only W1, W2 were run."));
    }
}
