//! The figures as a table, as JSON, and as a page of the docs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::figures::median;
use crate::majority::Majority;
use crate::pairs::{Pairs, Sample};
use crate::wakes::Wakes;

#[derive(Debug)]
pub(crate) struct Report {
    machine: Vec<(&'static str, String)>,
    rounds: usize,
    pub(crate) pairs: Vec<Pairs>,
    pub(crate) majority: Option<Majority>,
    pub(crate) wakes: Vec<Wakes>,
}

fn middle(samples: &[Sample], figure: impl Fn(&Sample) -> f64) -> f64 {
    median(samples.iter().map(figure))
}

/// Writing to a string cannot fail.
macro_rules! line {
    ($out:expr, $($text:tt)*) => { let _ = writeln!($out, $($text)*); };
}

impl Report {
    pub(crate) fn new(machine: Vec<(&'static str, String)>, rounds: usize) -> Self {
        Self {
            machine,
            rounds,
            pairs: Vec::new(),
            majority: None,
            wakes: Vec::new(),
        }
    }

    pub(crate) fn table(&self) -> String {
        let mut out = String::new();
        line!(
            out,
            "| acquire + release | pairs/s | p50 µs | p99 µs | CPU µs |"
        );
        line!(out, "| --- | ---: | ---: | ---: | ---: |");
        for pairs in &self.pairs {
            let tasks = pairs.tasks;
            for (who, samples) in [("tidelock", &pairs.ours), ("bare scripts", &pairs.raw)] {
                line!(
                    out,
                    "| {who}, {tasks} at once | {:.0} | {:.1} | {:.1} | {:.1} |",
                    middle(samples, |s| s.per_second),
                    middle(samples, |s| s.p50),
                    middle(samples, |s| s.p99),
                    middle(samples, |s| s.cpu)
                );
            }
            line!(
                out,
                "| **ratio**, {tasks} at once | {:.2} | {:.2} | {:.2} | {:.2} |",
                pairs.ratio(|s| s.per_second),
                pairs.ratio(|s| s.p50),
                pairs.ratio(|s| s.p99),
                pairs.ratio(|s| s.cpu)
            );
        }
        if let Some(Majority { ours, raw }) = &self.majority {
            let middle = |times: &[f64]| median(times.iter().copied());
            let ratios = ours.iter().zip(raw).map(|(ours, raw)| ours / raw);
            line!(out, "");
            line!(out, "| acquire at five servers | p50 µs |");
            line!(out, "| --- | ---: |");
            line!(out, "| RedLock | {:.1} |", middle(ours));
            line!(out, "| five bare scripts at once | {:.1} |", middle(raw));
            line!(out, "| **ratio** | {:.2} |", median(ratios));
        }
        if !self.wakes.is_empty() {
            line!(out, "");
            line!(
                out,
                "| release to acquired | times | p50 ms | p99 ms | worst ms |"
            );
            line!(out, "| --- | ---: | ---: | ---: | ---: |");
            for wakes in &self.wakes {
                line!(
                    out,
                    "| {} | {} | {:.2} | {:.2} | {:.2} |",
                    wakes.way,
                    wakes.times,
                    wakes.p50 / 1000.0,
                    wakes.p99 / 1000.0,
                    wakes.worst / 1000.0
                );
            }
        }
        out.trim_end().to_owned()
    }

    pub(crate) fn json(&self) -> Value {
        let side = |samples: &[Sample]| {
            json!({
                "pairs_per_s": middle(samples, |s| s.per_second),
                "p50_us": middle(samples, |s| s.p50),
                "p99_us": middle(samples, |s| s.p99),
                "cpu_us": middle(samples, |s| s.cpu),
            })
        };
        let pairs: Vec<Value> = self
            .pairs
            .iter()
            .map(|pairs| {
                json!({
                    "tasks": pairs.tasks,
                    "tidelock": side(&pairs.ours),
                    "bare": side(&pairs.raw),
                    "ratio_pairs_per_s": pairs.ratio(|s| s.per_second),
                    "ratio_p50": pairs.ratio(|s| s.p50),
                })
            })
            .collect();
        let majority = self.majority.as_ref().map(|Majority { ours, raw }| {
            json!({
                "tidelock_p50_us": median(ours.iter().copied()),
                "bare_p50_us": median(raw.iter().copied()),
            })
        });
        let wakes: Vec<Value> = self
            .wakes
            .iter()
            .map(|w| json!({"way": w.way, "times": w.times, "p50_us": w.p50, "p99_us": w.p99, "worst_us": w.worst}))
            .collect();
        let machine: serde_json::Map<String, Value> = self
            .machine
            .iter()
            .map(|(what, is)| ((*what).to_owned(), is.as_str().into()))
            .collect();
        json!({"machine": machine, "rounds": self.rounds, "pairs": pairs, "majority": majority, "wakes": wakes})
    }

    /// The whole of `docs/performance.md`.
    pub(crate) fn page(&self) -> String {
        let mut out = String::new();
        line!(out, "# What a lock costs\n");
        line!(
            out,
            "Written by `cargo xtask bench -- --write docs/performance.md`; do not edit.\n"
        );
        line!(
            out,
            "The bare scripts are the same two that tidelock sends, through the bare driver over one connection. Both sides take\n\
             turns in one run of {} rounds; the figures are medians over the rounds, the ratio is the median of the ratios of each\n\
             round. With one task a spinning process of the lowest priority keeps each core awake, because an idle core takes longer\n\
             to wake up than a lock takes. CPU is the client's own time on a processor for one pair. Absolute times are those of one machine at one moment; expect yours to differ.\n",
            self.rounds
        );
        line!(
            out,
            "Release to acquired: from the call of `release` in one process to the return of `acquire` of a waiter in another,\n\
             for waiters that sleep. The waiters of Rust are in another client of the same program.\n"
        );
        line!(out, "{}\n", self.table());
        line!(out, "| measured on | |\n| --- | --- |");
        for (what, is) in &self.machine {
            line!(out, "| {what} | {is} |");
        }
        out
    }
}
