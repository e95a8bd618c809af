//! `tidelock hold`: holds a lock until standard input ends. The caller is a script or a program in another language.

use std::io::{ErrorKind, IsTerminal, Read, StdinLock};
use std::pin::pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tidelock::{Client, Escaped, Guard, LostReason};
use tokio::sync::oneshot;

use crate::acquire::{Held, Wanted};
use crate::args::{HoldArgs, StoreArgs};
use crate::exit::{self, Failure, Outcome, by_signal, interrupted_by, say};
use crate::inspect::print_line;
use crate::release::{release_and_close, unconfirmed};
use crate::{block_on, covers, other_end, store};

/// How soon an input that cannot be waited for is read again.
const AGAIN: Duration = Duration::from_millis(20);

/// How soon a terminal that another job has is read again.
const IN_BACKGROUND: Duration = Duration::from_millis(200);

/// Signals within this time after the first one are the same request: `timeout` sends its signal twice.
const TOGETHER: Duration = Duration::from_secs(1);

/// Acquires the lock, says so on stdout, and releases it at the end of stdin.
pub(crate) fn hold(args: &StoreArgs, what: HoldArgs) -> Outcome {
    if let Some(input) = input_that_ends_at_once() {
        return Err(Failure::usage(format!(
            "{}: standard input is {input}, which ends at once, so the lock would be released at once; give it a pipe that stays open, or use `tidelock run`",
            what.name
        )));
    }
    #[cfg(unix)]
    crate::run::signals::go_on_in_background(); // before any thread starts
    block_on(hold_to_the_end(args, what))
}

async fn hold_to_the_end(args: &StoreArgs, what: HoldArgs) -> Outcome {
    let mut signals = Interrupts::catch()?;
    let begun = Instant::now();
    let client = tokio::select! {
        client = store::connect_as("tidelock", args, what.wait.unwrap_or_default()) => client.map_err(|failure| failure.on_lock(&what.name))?,
        number = signals.next() => return Ok(ExitCode::from(interrupted_by(number))),
    };
    covers::tell(args)?;
    let wanted = Wanted {
        name: &what.name,
        which: &what.which,
        fenced: what.fenced,
        wait: what.wait,
        begun,
        max_hold: what.max_hold,
        conflict_exit_code: what.conflict_exit_code,
    };
    let acquired = tokio::select! {
        held = wanted.acquire(args, &client) => held.map(Ok),
        number = signals.next() => Ok(Err(interrupted_by(number))),
    };
    let done = match acquired {
        Ok(Ok(held)) => keep(held, &mut signals).await,
        Ok(Err(interrupted)) => Ok((ExitCode::from(interrupted), None)),
        Err(failure) => Err(failure),
    };
    match done {
        Ok((code, Some(guard))) => {
            leave(&client, guard).await?;
            Ok(code)
        }
        done => {
            client.close(Duration::ZERO).await;
            done.map(|(code, _)| code)
        }
    }
}

/// Says that the lock is held, and waits for the end of the input, or for signals. Returns the exit code, and the guard to
/// release.
async fn keep(held: Held, signals: &mut Interrupts) -> Outcome<(ExitCode, Option<Guard>)> {
    let Held { guard, token, .. } = held;
    let token = token.map(|token| format!(" {token}"));
    let held = format!("held {}{}", guard.name(), token.unwrap_or_default());
    let is_left = other_end::is_gone(&std::io::stdin());
    // A caller that reads "held" begins its work, and looks for the loss at its end.
    if !guard.is_held() {
        let reason = guard.lost().await;
        return Err(lost(guard.name(), reason));
    }
    // If nobody reads stdout, nobody knows that the lock is held: the error drops the guard.
    print_line(&Escaped(&held))?;
    let is_person = std::io::stdin().is_terminal();
    let mut loss = pin!(guard.lost());
    let mut end = pin!(end_of_input());
    let mut first: Option<Instant> = None;
    let code = loop {
        let number = tokio::select! {
            biased; // a loss is reported, even if the input ends at the same moment
            reason = &mut loss => return Err(lost(guard.name(), reason)),
            () = &mut end => break ExitCode::SUCCESS,
            number = signals.next() => number,
        };
        match first {
            // A person has no other work under the lock. A caller may have: the signals of a service manager and of Ctrl-C
            // come to it too, and it needs the lock while it ends its work.
            None if !is_person => {
                first = Some(Instant::now());
                say(format!(
                    "{}: still held until the input ends; a second signal releases it at once",
                    guard.name()
                ));
            }
            Some(at) if at.elapsed() < TOGETHER => {}
            earlier => {
                if earlier.is_some() {
                    print_lost(guard.name());
                }
                break ExitCode::from(by_signal(number));
            }
        }
    };
    if is_left {
        say(format!(
            "{}: standard input had ended before the lock was held: releasing it at once",
            guard.name()
        ));
    }
    Ok((code, Some(guard)))
}

/// Releases the lock and closes the client.
async fn leave(client: &Client, guard: Guard) -> Outcome<()> {
    let name = guard.name().to_owned();
    match release_and_close(client, guard).await {
        Some(Ok(())) => Ok(()),
        // A process that was frozen may see the end of its input before it sees the loss.
        Some(Err(error)) => Err(match error.lost_reason() {
            Some(reason) => lost(&name, reason),
            None => Failure::of_lock(error, &name),
        }),
        None => Err(Failure::new(exit::UNAVAILABLE, unconfirmed(&name))),
    }
}

fn lost(name: &str, reason: LostReason) -> Failure {
    print_lost(name);
    Failure::new(exit::LOST, format!("{name}: lost: {reason}"))
}

/// Says on stdout that the lock is lost. If nobody reads it any more, nobody has to stop.
fn print_lost(name: &str) {
    let _ = print_line(&Escaped(format_args!("lost {name}")));
}

/// Standard input that ends at once, although other processes have it open: `/dev/null`, as that of a job in the background
/// of a script, of a cron job and of a service, or a file.
#[cfg(unix)]
fn input_that_ends_at_once() -> Option<&'static str> {
    use std::fs::{File, metadata};
    use std::os::fd::AsFd;
    use std::os::unix::fs::{FileTypeExt, MetadataExt};

    let input = std::io::stdin().as_fd().try_clone_to_owned().ok()?;
    let input = File::from(input).metadata().ok()?;
    if input.file_type().is_file() {
        return Some("a file");
    }
    let null = metadata("/dev/null").ok()?;
    let is_null = input.file_type().is_char_device() && input.rdev() == null.rdev();
    is_null.then_some("/dev/null")
}

/// The standard library does not tell a file from a pipe here.
#[cfg(not(unix))]
fn input_that_ends_at_once() -> Option<&'static str> {
    None
}

/// Resolves at the end of standard input. A thread reads it: tokio's own reader would keep the process from exiting
/// while the input is open.
async fn end_of_input() {
    let (ended, end) = oneshot::channel();
    let read = move || {
        read_to_the_end();
        let _ = ended.send(());
    };
    if std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(read)
        .is_err()
    {
        say("standard input cannot be read: releasing the lock");
        return;
    }
    let _ = end.await;
}

/// Reads standard input, and ignores what it reads.
fn read_to_the_end() {
    let mut buffer = [0; 4096];
    let mut input = std::io::stdin().lock();
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => {}
                // Whether a read waits is a property that all processes with this input share, and each of them may
                // have changed it. If we took it for the end, we would release the lock while the caller works.
                ErrorKind::WouldBlock => wait_for(&input),
                _ if is_in_background(&error, &input) => std::thread::sleep(IN_BACKGROUND),
                _ => {
                    say(format!(
                        "standard input cannot be read ({error}): releasing the lock"
                    ));
                    return;
                }
            },
        }
    }
}

/// Waits until there is something to read, or the input has ended.
fn wait_for(input: &StdinLock<'_>) {
    #[cfg(unix)]
    {
        use rustix::event::{PollFd, PollFlags, poll};

        if poll(&mut [PollFd::new(input, PollFlags::IN)], None).is_ok() {
            return;
        }
    }
    #[cfg(not(unix))]
    let _ = input;
    std::thread::sleep(AGAIN);
}

/// Whether the read failed because another job had the terminal. It may have given it to this one since. A terminal that has hung
/// up has no such job.
#[cfg(unix)]
fn is_in_background(error: &std::io::Error, input: &StdinLock<'_>) -> bool {
    use rustix::io::Errno;
    use rustix::termios::tcgetpgrp;

    error.raw_os_error() == Some(Errno::IO.raw_os_error()) && tcgetpgrp(input).is_ok()
}

#[cfg(not(unix))]
fn is_in_background(_: &std::io::Error, _: &StdinLock<'_>) -> bool {
    false
}

/// The signals that ask the command to end.
#[cfg(unix)]
struct Interrupts(crate::run::signals::Signals);

#[cfg(unix)]
impl Interrupts {
    fn catch() -> Outcome<Self> {
        let signals = crate::run::signals::Signals::catch();
        signals.map(Self).map_err(Failure::internal)
    }

    async fn next(&mut self) -> i32 {
        self.0.deadly().await
    }
}

#[cfg(not(unix))]
struct Interrupts;

#[cfg(not(unix))]
impl Interrupts {
    fn catch() -> Outcome<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> i32 {
        match tokio::signal::ctrl_c().await {
            Ok(()) => 2,
            Err(_) => std::future::pending().await,
        }
    }
}
