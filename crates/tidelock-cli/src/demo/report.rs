//! The result of an act.

use std::time::Duration;

use serde::Serialize;

use super::seller::Sales;

/// The result of one act, as JSON. A field that does not apply is null.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    act: u8,
    store: String,
    stock: u64,
    sold: Option<u64>,
    oversold: Option<u64>,
    refused_late_writes: Option<u64>,
    sales_per_s: Option<f64>,
    wait_p50_ms: Option<f64>,
    wait_p99_ms: Option<f64>,
}

impl Report {
    pub(crate) fn new(act: u8, store: String, stock: u64, sales: Sales, time: Duration) -> Self {
        let Sales {
            sold,
            refused,
            mut waits_us,
        } = sales;
        waits_us.sort_unstable();
        Self {
            act,
            store,
            stock,
            sold: Some(sold),
            oversold: Some(sold.saturating_sub(stock)),
            refused_late_writes: (act == 3).then_some(refused),
            sales_per_s: Some(tenths(as_float(sold) / time.as_secs_f64())),
            wait_p50_ms: percentile(&waits_us, 50),
            wait_p99_ms: percentile(&waits_us, 99),
        }
    }

    /// The result of an act that this store does not support.
    pub(crate) fn not_applicable(act: u8, store: String, stock: u64) -> Self {
        Self {
            act,
            store,
            stock,
            sold: None,
            oversold: None,
            refused_late_writes: None,
            sales_per_s: None,
            wait_p50_ms: None,
            wait_p99_ms: None,
        }
    }

    /// The first expectation that the act did not meet.
    pub(crate) fn broken_promise(&self) -> Option<String> {
        let (sold, stock) = (self.sold?, self.stock);
        match self.act {
            1 if sold <= stock => Some("act 1 did not oversell without a lock".to_owned()),
            2 | 3 if sold != stock => Some(format!("act {} sold {sold} of {stock}", self.act)),
            3 if self.refused_late_writes == Some(0) => {
                Some("act 3 refused no late write".to_owned())
            }
            _ => None,
        }
    }
}

/// All results as a table, for people.
pub(crate) fn table(reports: &[Report]) -> String {
    let mut lines = vec![format!(
        "{:<22} {:>7} {:>7} {:>9} {:>8} {:>9} {:>10} {:>10}",
        "", "stock", "sold", "oversold", "refused", "sales/s", "wait p50", "wait p99"
    )];
    for report in reports {
        let title = match report.act {
            1 => "1  without a lock",
            2 => "2  with the lock",
            _ => "3  with fencing",
        };
        if report.sold.is_none() {
            lines.push(format!(
                "{title:<22} {:>7} not applicable: this store has no tokens",
                report.stock
            ));
            continue;
        }
        lines.push(format!(
            "{title:<22} {:>7} {:>7} {:>9} {:>8} {:>9} {:>10} {:>10}",
            report.stock,
            whole(report.sold),
            whole(report.oversold),
            whole(report.refused_late_writes),
            report
                .sales_per_s
                .map(|n| format!("{n:.0}"))
                .unwrap_or_default(),
            millis(report.wait_p50_ms),
            millis(report.wait_p99_ms),
        ));
    }
    if let Some(first) = reports.first() {
        lines.push(format!("store: {}", first.store));
    }
    lines.join("\n")
}

fn whole(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), |n| n.to_string())
}

fn millis(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), |n| format!("{n:.1} ms"))
}

fn percentile(sorted_us: &[u64], percent: usize) -> Option<f64> {
    let last = sorted_us.len().checked_sub(1)?;
    Some(as_float(sorted_us[last * percent / 100]) / 1000.0)
}

#[allow(
    clippy::cast_precision_loss,
    reason = "counts of a demo, far below 2^52"
)]
fn as_float(number: u64) -> f64 {
    number as f64
}

fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}
