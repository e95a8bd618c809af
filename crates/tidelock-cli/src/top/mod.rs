//! `tidelock top`: which locks are held and awaited now, by whom and for how long, and which processes use the store.

pub(crate) mod acquire_times;
mod budget;
pub(crate) mod leaders;
mod look;
pub(crate) mod pace;
pub(crate) mod picture;
mod recording;
#[cfg(test)]
pub(crate) mod sample;
mod scan;
#[cfg(feature = "screen")]
mod screen;
pub(crate) mod text;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use tidelock::Client;

use crate::args::{StoreArgs, duration};
use crate::covers::Shown;
use crate::exit::{self, Failure, Outcome, by_signal, say};
use crate::inspect::{print_line, print_object, with_client};
use crate::top::pace::Looks;
use crate::top::recording::{Recorded, Recorder};
use crate::{interrupt, store};

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
const NO_SCREEN: &str = "\n\nthis build has no screen with keys; for one, in a checkout of tidelock: cargo install --path crates/tidelock-cli --features screen";

/// Without a screen there is no key to press.
const NO_WRITES: &str = "--write is for the screen with keys, which needs a terminal and a build with the feature screen; elsewhere: tidelock unlock --force --owner OWNER NAME";

#[derive(Debug, Args)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(crate) struct TopArgs {
    /// Print once, and ask no process to tell more often
    #[arg(long, conflicts_with = "times")]
    once: bool,
    /// Print this many times, then exit; default: a screen if a person looks at a terminal, else until interrupted
    #[arg(short = 'n', long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    times: Option<u64>,
    /// Time between two prints, or between two pictures of the screen; longer if `top` would cost the store more than one
    /// percent of a core
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    every: Duration,
    /// Also list locks that no process tells of and nobody waits for, such as those of Java services. On Redis this looks at
    /// every key of the server, a few with each look; with --once, at all of them at once
    #[arg(long)]
    scan: bool,
    /// One JSON object per print
    #[arg(long)]
    json: bool,
    /// Let the key u unlock a lock on the screen: its name has to be typed, and it has to be held as shown still
    #[arg(long, conflicts_with_all = ["once", "times", "json"])]
    write: bool,
    /// Also add each picture to this file, as the line that --json prints
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Show the pictures of such a file, and ask no store
    #[arg(long, value_name = "FILE", conflicts_with_all = ["record", "write", "once", "times", "scan"])]
    replay: Option<PathBuf>,
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
        refuse_scan(args, &what)?;
        return on_screen(args, what).await;
    }
    if what.write {
        return Err(Failure::usage(NO_WRITES));
    }
    refuse_scan(args, &what)?;
    print(args, what).await
}

/// Some stores cannot list their locks.
fn refuse_scan(args: &StoreArgs, what: &TopArgs) -> Outcome<()> {
    if what.scan {
        store::refuse_to_list(args)?;
    }
    Ok(())
}

/// Shows it on a screen, until the user quits.
#[cfg(feature = "screen")]
async fn on_screen(args: &StoreArgs, what: TopArgs) -> Outcome {
    if let Some(file) = &what.replay {
        return screen::replay(recording::read(file)?, args, what.every).await;
    }
    let recorder = what.record.as_deref().map(Recorder::open).transpose()?;
    let client = store::connect_to_look(args).await?;
    crate::covers::tell_if_asked(args)?;
    let prefix = store::prefix(args);
    let looks = looks(&client, &prefix, &what);
    let ended = screen::run(&client, looks, args, &what, recorder).await;
    // Nothing is held. The user, who has quit, need not wait for a store that hangs.
    let _ = tokio::time::timeout(GOODBYE, client.close(Duration::ZERO)).await;
    ended
}

fn looks<'a>(client: &'a Client, prefix: &'a str, what: &TopArgs) -> Looks<'a> {
    let looks = Looks::new(client, prefix, what.every);
    if what.scan {
        looks.scanning(what.every)
    } else {
        looks
    }
}

/// Whether stdout is a terminal that can move its cursor.
fn can_be_cleared() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stdout().is_terminal() && !is_dumb
}

/// Prints what is held and awaited. Without `--once` the processes are asked to tell it every second.
async fn print(args: &StoreArgs, what: TopArgs) -> Outcome {
    if let Some(file) = &what.replay {
        return print_all(recording::read(file)?, what.json);
    }
    let mut recorder = what.record.as_deref().map(Recorder::open).transpose()?;
    let (prefix, store) = (store::prefix(args), Shown::of(args)?);
    let times = if what.once { Some(1) } else { what.times };
    let clears = !what.json && times.is_none() && can_be_cleared();
    let (start, end) = match clears {
        true if cfg!(feature = "screen") => (CLEAR, ""),
        true => (CLEAR, NO_SCREEN),
        false => ("", ""),
    };
    with_client(args, async |client| {
        let looks = looks(client, &prefix, &what);
        let mut looks = if what.once { looks.quiet() } else { looks };
        let mut next = tokio::time::Instant::now();
        // One future for the whole loop: a new one in each round would miss a signal that comes while the store is
        // asked.
        let mut interrupted = std::pin::pin!(interrupt::interrupted()?);
        let mut ended_by = None;
        let mut left = times;
        let (mut has_printed, mut is_away) = (false, false);
        while left != Some(0) {
            let looked = async {
                tokio::time::sleep_until(next).await;
                looks.look().await
            };
            // A look at all keys of a large store takes minutes, and one at a store that hangs seconds.
            let (picture, then) = tokio::select! {
                looked = looked => looked,
                number = &mut interrupted => {
                    ended_by = Some(number);
                    break;
                }
            };
            if let Some(error) = looks.refused.take() {
                say(format!(
                    "the processes tell what they do every ten seconds only: {error}"
                ));
            }
            next = then;
            let picture = match picture {
                Ok(picture) => picture,
                // The first look tells whether a look can succeed at all. A script asks for a number of pictures.
                Err(failure) if is_outage(&failure) && has_printed && times.is_none() => {
                    if !std::mem::replace(&mut is_away, true) {
                        say(failure.message);
                    }
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            (has_printed, is_away) = (true, false);
            if let Some(recorder) = &mut recorder {
                recorder.add(&store, &picture)?;
            }
            if what.json {
                print_object(&store, picture.as_json())?;
            } else {
                let text = text::of(&picture, &store.to_string());
                print_line(&format!("{start}{text}{end}"))?;
            }
            left = left.map(|left| left - 1);
        }
        Ok(match ended_by {
            // Something was asked for that was not printed.
            Some(number) if left.is_some() => by_signal(number).into(),
            _ => ExitCode::SUCCESS,
        })
    })
    .await
}

/// Whether the store may answer a later look.
fn is_outage(failure: &Failure) -> bool {
    failure.code == exit::UNAVAILABLE
}

/// Prints recorded pictures one after the other.
fn print_all(pictures: Vec<Recorded>, as_json: bool) -> Outcome {
    for (store, picture) in pictures {
        if as_json {
            print_object(&store, picture.as_json())?;
        } else {
            print_line(&text::of(&picture, &store.to_string()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
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
