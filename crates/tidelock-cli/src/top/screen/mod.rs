//! The live screen of `tidelock top`: the terminal, its keys, and the store that is looked at again and again.

mod columns;
mod command;
mod details;
mod draw;
mod events;
mod queue;
mod rates;
mod rows;
mod state;
mod terminal;
#[cfg(test)]
mod tests;
mod unlocking;
mod view;
mod wrap;

use std::process::ExitCode;
use std::time::Duration;

use crossterm::event::Event;
use ratatui::widgets::TableState;
use tidelock::Client;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::args::StoreArgs;
use crate::covers::Shown;
use crate::exit::{Failure, Outcome, say};
use crate::inspect::print_line;
use crate::store;
use crate::top::pace::Looks;
use crate::top::picture::Picture;
use crate::top::recording::{Recorded, Recorder};
use crate::top::screen::command::ShowCommand;
use crate::top::screen::draw::Colours;
use crate::top::screen::state::{Screen, Step};
use crate::top::screen::terminal::Terminal;
use crate::top::screen::unlocking::{Request, Unlocking};
use crate::top::{SHORTEST, TopArgs};
use crate::unlock::WriteGate;

/// How often the screen is drawn if nothing happens: the age of an old picture grows.
const REDRAWN: Duration = Duration::from_secs(1);

/// SIGHUP.
const HANG_UP: i32 = 1;

/// Bounds the keys that wait until they are read.
const KEYS: usize = 64;

/// Shows the store until the user quits. A store that does not answer keeps the last picture on the screen.
pub(super) async fn run(
    client: &Client,
    looks: Looks<'_>,
    args: &StoreArgs,
    what: &TopArgs,
    recorder: Option<Recorder>,
) -> Outcome {
    let shown = Shown::of(args)?;
    let every = what.every.max(SHORTEST);
    let mut screen = Screen::new(shown.to_string(), ShowCommand::new(args), every);
    let gate = WriteGate::new(client, store::prefix(args), what.write);
    screen.unlocking = gate.is_open().then(Unlocking::default);
    let (sender, pictures) = channel(1);
    let ended = {
        // The signals are awaited before the terminal is changed. Else an early one would leave it as it is.
        let ended = terminated()?;
        // Keys are read while the store is asked: a store that hangs must not hang the screen.
        tokio::select! {
            ended = live(&mut screen, pictures, Some(&gate)) => ended,
            ended = look_again_and_again(looks, sender, recorder, &shown) => ended,
            ended = ended => Ok(ended),
        }
    };
    // A signal or an error ends the screen without waiting for the answer of an unlock that is on its way.
    if let Some(unlocking) = &mut screen.unlocking {
        unlocking.give_up();
    }
    // Also if the terminal is gone: stderr may lead elsewhere.
    for line in screen.unlocking.iter().flat_map(|one| &one.log) {
        say(line);
    }
    if terminal::is_gone() {
        // A write to it may have failed before its signal came.
        return Ok(by_signal(HANG_UP));
    }
    if let Some(command) = &screen.asked_for {
        print_line(command)?;
    }
    ended
}

/// Draws each picture and follows the keys.
async fn live(
    screen: &mut Screen,
    mut pictures: Receiver<Outcome<Picture>>,
    gate: Option<&WriteGate>,
) -> Outcome {
    let colours = Colours(std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()));
    let mut terminal = Terminal::take().map_err(Failure::internal)?;
    let mut gone = std::pin::pin!(terminal::gone().map_err(Failure::internal)?);
    let mut events = events()?;
    let mut redrawn = tokio::time::interval(REDRAWN);
    redrawn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut table = TableState::default();
    let mut asked = Request::None;
    loop {
        screen.now = std::time::Instant::now();
        let mut drawn = screen.drawn;
        terminal
            .screen()
            .draw(|frame| drawn = draw::screen(frame, screen, &mut table, colours))
            .map_err(Failure::internal)?;
        screen.drawn = drawn;
        tokio::select! {
            Some(seen) = pictures.recv() => match seen {
                Ok(picture) => screen.show(picture),
                Err(failure) => screen.trouble = Some(failure.message),
            },
            event = events.recv() => match event {
                Some(Ok(event)) => match screen.on(&event) {
                    Step::Stay => {}
                    Step::Redraw => terminal.screen().clear().map_err(Failure::internal)?,
                    Step::Look(name) => asked = Request::look(gate, name),
                    Step::Unlock(name, expected) => {
                        asked = Request::unlock(gate, name, expected);
                    }
                    Step::Quit => {
                        asked.end(screen).await;
                        return Ok(ExitCode::SUCCESS);
                    }
                },
                Some(Err(error)) => return Err(Failure::internal(error)),
                // Its thread ends after an error only.
                None => return Ok(ExitCode::SUCCESS),
            },
            answer = asked.answer() => screen.answered(answer),
            () = &mut gone => return Ok(by_signal(HANG_UP)),
            _ = redrawn.tick() => {}
        }
    }
}

/// The events of the terminal, read by a thread of its own: the system's read of a terminal blocks. The thread ends with
/// the process.
fn events() -> Outcome<Receiver<std::io::Result<Event>>> {
    let (sender, events) = channel(KEYS);
    let read = move || {
        loop {
            let event = crossterm::event::read();
            let failed = event.is_err();
            if sender.blocking_send(event).is_err() || failed {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("keys".to_owned());
    thread.spawn(read).map_err(Failure::internal)?;
    Ok(events)
}

/// Sends one picture after the other until nobody wants them. Before the first one, an error that no retry changes ends it: such
/// a store can never be shown. After it the picture stays, whatever the error: a server that takes over may refuse this user for
/// a while.
async fn look_again_and_again(
    mut looks: Looks<'_>,
    to: Sender<Outcome<Picture>>,
    mut recorder: Option<Recorder>,
    store: &Shown,
) -> Outcome {
    let mut has_shown = false;
    loop {
        let (seen, next) = looks.look().await;
        match (&seen, &mut recorder) {
            (Err(failure), _) if !has_shown && !failure.is_retryable => {
                return Err(failure.clone());
            }
            (Ok(picture), Some(recorder)) => recorder.add(store, picture)?,
            _ => {}
        }
        has_shown |= seen.is_ok();
        if to.send(seen).await.is_err() {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep_until(next).await;
    }
}

/// Shows recorded pictures with the pauses between them, until the user quits.
pub(super) async fn replay(pictures: Vec<Recorded>, args: &StoreArgs, every: Duration) -> Outcome {
    let store = pictures
        .first()
        .map_or(String::new(), |(store, _)| store.to_string());
    let mut screen = Screen::new(store, ShowCommand::new(args), every.max(SHORTEST));
    let (sender, shown) = channel(1);
    let ended = {
        let ended = terminated()?;
        let feed = async {
            let mut before = None;
            for (_, picture) in pictures {
                let at = picture.at;
                let pause = before.and_then(|before| at.duration_since(before).ok());
                tokio::time::sleep(pause.unwrap_or_default()).await;
                before = Some(at);
                if sender.send(Ok(picture)).await.is_err() {
                    return;
                }
            }
            // The last picture stays.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            ended = live(&mut screen, shown, None) => ended,
            () = feed => Ok(ExitCode::SUCCESS),
            ended = ended => Ok(ended),
        }
    };
    if terminal::is_gone() {
        return Ok(by_signal(HANG_UP));
    }
    ended
}

fn by_signal(number: i32) -> ExitCode {
    ExitCode::from(crate::exit::by_signal(number))
}

/// Ends when the process is asked to end. By default it would end at once, and leave the terminal without echo.
#[cfg(unix)]
fn terminated() -> Outcome<impl Future<Output = ExitCode>> {
    use tokio::signal::unix::{SignalKind, signal};

    let of = |kind| signal(kind).map_err(Failure::internal);
    let mut asked = of(SignalKind::terminate())?;
    let mut hung_up = of(SignalKind::hangup())?;
    let mut interrupted = of(SignalKind::interrupt())?;
    let mut quit = of(SignalKind::quit())?;
    Ok(async move {
        let number = tokio::select! {
            _ = asked.recv() => 15,
            _ = hung_up.recv() => HANG_UP,
            _ = quit.recv() => 3,
            // As Ctrl-C, which a terminal in this mode sends as a key.
            _ = interrupted.recv() => return ExitCode::SUCCESS,
        };
        by_signal(number)
    })
}

#[cfg(not(unix))]
#[allow(clippy::unnecessary_wraps, reason = "as on Unix")]
fn terminated() -> Outcome<impl Future<Output = ExitCode>> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
        ExitCode::SUCCESS
    })
}
