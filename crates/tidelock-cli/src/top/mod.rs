//! `tidelock top`: which locks are held and awaited now, by whom and for how long, and which processes use the store.

mod look;
mod picture;
mod text;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use tidelock::Client;

use crate::args::{StoreArgs, duration};
use crate::covers::Shown;
use crate::exit::{Outcome, say};
use crate::inspect::{print_line, print_object, with_client};
use crate::store;

/// How often the processes are asked for a record every second, which they write for 15 s.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Clears the screen, and begins at its top.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Print once, and ask no process to tell more often
    #[arg(long, conflicts_with = "times")]
    once: bool,
    /// Print this many times, then exit; default: until interrupted
    #[arg(short = 'n', long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    times: Option<u64>,
    /// Time between two prints
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    every: Duration,
    /// One JSON object per print
    #[arg(long)]
    json: bool,
}

/// Prints what is held and awaited. Without `--once` the processes are asked to tell it every second.
pub(crate) async fn top(args: &StoreArgs, what: TopArgs) -> Outcome {
    let (prefix, store) = (store::prefix(args), Shown::of(args)?);
    let times = if what.once { Some(1) } else { what.times };
    let clears = !what.json && times.is_none() && std::io::stdout().is_terminal();
    with_client(args, async |client| {
        let mut tick = tokio::time::interval(what.every.max(Duration::from_secs(1)));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // One future for the whole loop: a new one in each round would miss a Ctrl-C that comes while the store is
        // asked.
        let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
        let (mut left, mut asked) = (times, None);
        while left != Some(0) {
            tokio::select! {
                _ = tick.tick() => {}
                _ = &mut interrupted => break,
            }
            if !what.once {
                ask(client, &mut asked).await;
            }
            let picture = look::look(client, &prefix).await?;
            if what.json {
                print_object(&store, picture.as_json())?;
            } else {
                let start = if clears { CLEAR } else { "" };
                print_line(&format!(
                    "{start}{}",
                    text::of(&picture, &store.to_string())
                ))?;
            }
            left = left.map(|left| left - 1);
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

/// Asks the processes to tell every second, from time to time. A user who may only read gets what they tell anyway.
async fn ask(client: &Client, asked: &mut Option<Instant>) {
    if asked.is_some_and(|asked| asked.elapsed() < ASK_AGAIN) {
        return;
    }
    let is_first = asked.replace(Instant::now()).is_none();
    if let Err(error) = client.watch_processes().await
        && is_first
    {
        say(format!(
            "the processes tell what they do every ten seconds only: {error}"
        ));
    }
}
