//! `tidelock top`: which locks are held and awaited now, by whom and for how long, and which processes use the store.

mod look;
#[cfg(any(feature = "screen", feature = "web"))]
pub(crate) mod pace;
pub(crate) mod picture;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(feature = "screen")]
mod screen;
pub(crate) mod text;

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

/// The shortest time between two pictures.
pub(crate) const SHORTEST: Duration = Duration::from_secs(1);

/// Bounds how long the connections are closed after the user has quit the screen, or ended the page.
#[cfg(any(feature = "screen", feature = "web"))]
pub(crate) const GOODBYE: Duration = Duration::from_millis(500);

/// Stands below what is printed again and again, in a build that could show a screen if it had one.
const NO_SCREEN: &str =
    "\n\nthis build has no screen with keys; for one: cargo install tidelock-cli --features screen";

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Print once, and ask no process to tell more often
    #[arg(long, conflicts_with = "times")]
    once: bool,
    /// Print this many times, then exit; default: a screen if a person looks at a terminal, else until interrupted
    #[arg(short = 'n', long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    times: Option<u64>,
    /// Time between two prints, or between two pictures of the screen. If the store is slow, the screen waits longer
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    every: Duration,
    /// One JSON object per print
    #[arg(long)]
    json: bool,
}

/// Shows what is held and awaited: on a screen if a person looks at a terminal, else as text.
pub(crate) async fn top(args: &StoreArgs, what: TopArgs) -> Outcome {
    #[cfg(feature = "screen")]
    if !(what.once || what.json || what.times.is_some())
        && can_be_cleared()
        && std::io::stdin().is_terminal()
        // The lines of the log would move the screen.
        && !(args.verbose > 0 && std::io::stderr().is_terminal())
    {
        return on_screen(args, what.every).await;
    }
    print(args, what).await
}

/// Shows it on a screen, until the user quits.
#[cfg(feature = "screen")]
async fn on_screen(args: &StoreArgs, every: Duration) -> Outcome {
    let client = store::connect_to_look(args).await?;
    crate::covers::tell_if_asked(args)?;
    let ended = screen::run(&client, args, every).await;
    // Nothing is held. The user, who has quit, need not wait for a store that hangs.
    let _ = tokio::time::timeout(GOODBYE, client.close(Duration::ZERO)).await;
    ended
}

/// Whether stdout is a terminal that can move its cursor.
fn can_be_cleared() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stdout().is_terminal() && !is_dumb
}

/// Prints what is held and awaited. Without `--once` the processes are asked to tell it every second.
async fn print(args: &StoreArgs, what: TopArgs) -> Outcome {
    let (prefix, store) = (store::prefix(args), Shown::of(args)?);
    let times = if what.once { Some(1) } else { what.times };
    let clears = !what.json && times.is_none() && can_be_cleared();
    let (start, end) = match clears {
        true if cfg!(feature = "screen") => (CLEAR, ""),
        true => (CLEAR, NO_SCREEN),
        false => ("", ""),
    };
    with_client(args, async |client| {
        let mut tick = tokio::time::interval(what.every.max(SHORTEST));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // One future for the whole loop: a new one in each round would miss a Ctrl-C that comes while the store is
        // asked.
        let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
        let (mut left, mut asked) = (times, Asked::default());
        while left != Some(0) {
            tokio::select! {
                _ = tick.tick() => {}
                _ = &mut interrupted => break,
            }
            if !what.once
                && let Err(error) = asked.again(client).await
            {
                say(format!(
                    "the processes tell what they do every ten seconds only: {error}"
                ));
            }
            let picture = look::look(client, &prefix).await?;
            if what.json {
                print_object(&store, picture.as_json())?;
            } else {
                let text = text::of(&picture, &store.to_string());
                print_line(&format!("{start}{text}{end}"))?;
            }
            left = left.map(|left| left - 1);
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

/// When the processes were asked to tell every second.
#[derive(Debug, Default)]
struct Asked(Option<Instant>);

impl Asked {
    /// Asks them, from time to time. A user who may only read gets what they tell anyway. An error is returned the first
    /// time.
    async fn again(&mut self, client: &Client) -> tidelock::Result<()> {
        if self.0.is_some_and(|asked| asked.elapsed() < ASK_AGAIN) {
            return Ok(());
        }
        let is_first = self.0.replace(Instant::now()).is_none();
        match client.watch_processes().await {
            Err(error) if is_first => Err(error),
            _ => Ok(()),
        }
    }
}
