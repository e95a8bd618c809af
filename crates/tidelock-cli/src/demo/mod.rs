//! `tidelock demo`: several processes sell one stock: without a lock, with a lock, and with fencing.

mod act;
mod crew;
mod report;
pub(crate) mod seller;
mod stock;

use std::process::ExitCode;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use self::act::Stage;
use self::report::Report;
use crate::args::{DemoArgs, Manner, StoreArgs};
use crate::exit::{Failure, Outcome, by_signal};
use crate::inspect::print_line;
use crate::store;

/// Runs the three acts. On a signal or an error it terminates the sellers and removes the stock file.
pub(crate) async fn demo(args: &StoreArgs, what: DemoArgs) -> Outcome {
    if what.processes * what.workers < 2 {
        return Err(Failure::usage(
            "a single seller cannot oversell: say more --processes or more --workers",
        ));
    }
    // We connect once before the first act, so that an unreachable store is reported as such.
    store::connect_silently(args)
        .await?
        .close(std::time::Duration::ZERO)
        .await;
    tokio::select! {
        played = play(args, &what) => played,
        number = interrupted() => Ok(ExitCode::from(by_signal(number))),
    }
}

#[cfg(unix)]
async fn interrupted() -> i32 {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut int), Ok(mut term), Ok(mut hup)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
        signal(SignalKind::hangup()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = int.recv() => 2,
        _ = term.recv() => 15,
        _ = hup.recv() => 1,
    }
}

#[cfg(not(unix))]
async fn interrupted() -> i32 {
    match tokio::signal::ctrl_c().await {
        Ok(()) => 2,
        Err(_) => std::future::pending().await,
    }
}

async fn play(args: &StoreArgs, what: &DemoArgs) -> Outcome {
    let folder = tempfile::tempdir().map_err(Failure::internal)?;
    let bars = MultiProgress::new();
    let mut reports = Vec::new();
    for (number, manner, title) in [
        (1, Manner::Careless, "without a lock"),
        (2, Manner::Locked, "with the lock"),
        (3, Manner::Fenced, "with fencing"),
    ] {
        let stage = Stage {
            store: args,
            what,
            folder: folder.path(),
            bar: bars.add(bar(what.stock, &format!("act {number}  {title}"))),
        };
        let report = stage.play(number, manner).await?;
        stage.bar.abandon();
        if what.json {
            print_line(&serde_json::to_string(&report).map_err(Failure::internal)?)?;
        }
        reports.push(report);
    }
    if !what.json {
        print_line(&report::table(&reports))?;
    }
    judge(&reports)
}

fn bar(stock: u64, title: &str) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{prefix:24} {bar:40} {pos:>7} of {len} sold  {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(stock).with_style(style);
    bar.set_prefix(title.to_owned());
    bar
}

/// Fails if an act did not have the expected result: then the demo is broken, or worse, the lock.
fn judge(reports: &[Report]) -> Outcome {
    match reports.iter().find_map(Report::broken_promise) {
        Some(broken) => Err(Failure::internal(format!("demo: {broken}"))),
        None => Ok(ExitCode::SUCCESS),
    }
}
