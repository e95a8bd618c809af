//! The wrapper: acquires the lock, starts the supervisor with the command, reports the proved deadline, and forwards
//! signals.

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ExitCode, Stdio};
use std::time::{Duration, Instant};

use tidelock::{Client, ErrorKind, Guard};

use super::orders::Orders;
use super::running::{Over, Running};
use super::signals::Signals;
use super::{boot, group, supervisor};
use crate::acquire::{Held, Wanted};
use crate::args::{CommandArgs, JobArgs, OnLost, StoreArgs};
use crate::exit::{self, Failure, Outcome, interrupted_by, say};
use crate::release::{release_and_close, unconfirmed};
use crate::{block_on, covers, secret, store};

/// Bounds how long we retry a store that cannot be reached, for callers that wait without a limit. A held lock is worth
/// any wait, but a store that is down for good must be reported. A store that goes down during a wait is also reported
/// after a lease of this length.
pub(super) const OUTAGE: Duration = Duration::from_secs(30);

/// Runs a command under a lock.
pub(crate) fn run(store: &StoreArgs, wait: Option<Duration>, job: &JobArgs) -> Outcome {
    // The processes that a dead supervisor leaves become children of this process, which can then terminate and reap
    // them.
    boot::adopt_orphans();
    block_on(async {
        let mut signals = Signals::catch().map_err(Failure::internal)?;
        let begun = Instant::now();
        let program = program_of(&job.child);
        let patience = wait.unwrap_or(OUTAGE);
        let client = tokio::select! {
            client = store::connect_as(&program, store, patience) => client.map_err(|failure| failure.on_lock(&job.name))?,
            number = signals.deadly() => return Ok(ExitCode::from(interrupted_by(number))),
            never = explain_delay(store, &job.name, patience) => match never {},
        };
        covers::tell(store)?;
        let wanted = Wanted {
            name: &job.name,
            which: &job.which,
            fenced: job.fenced,
            wait,
            begun,
            max_hold: job.max_hold,
            conflict_exit_code: job.conflict_exit_code,
        };
        let done = with_lock(store, &client, &wanted, job, &mut signals).await;
        leave(&client, done, job.child.on_lost).await
    })
}

/// Releases the guard, if there is one, and closes the client. Returns the exit code.
pub(super) async fn leave(
    client: &Client,
    done: Outcome<(u8, Option<ToRelease>)>,
    on_lost: OnLost,
) -> Outcome {
    let (result, left) = match done {
        Ok((code, left)) => (Ok(ExitCode::from(code)), left),
        Err(failure) => (Err(failure), None),
    };
    match release(client, left).await {
        Left::Lost if on_lost == OnLost::Kill => Ok(ExitCode::from(exit::LOST)),
        _ => result,
    }
}

/// The file name of the command's program. Not its arguments: they may contain secrets, and all users of the store see
/// this name.
pub(super) fn program_of(job: &CommandArgs) -> String {
    let program = job.command.first().map(Path::new);
    let file = program.and_then(|path| path.file_name().or(Some(path.as_os_str())));
    file.unwrap_or_default().to_string_lossy().into_owned()
}

/// Reports after a second that the store cannot be reached yet.
pub(super) async fn explain_delay(store: &StoreArgs, name: &str, patience: Duration) -> Infallible {
    tokio::time::sleep(Duration::from_secs(1)).await;
    if covers::is_watched(store) && !patience.is_zero() {
        say(format!(
            "{name}: cannot connect to the store yet; retrying for {}",
            humantime::format_duration(patience)
        ));
    }
    std::future::pending().await
}

/// Runs the command. Returns the exit code, and the guard if there is one to release.
async fn with_lock(
    store: &StoreArgs,
    client: &Client,
    wanted: &Wanted<'_>,
    job: &JobArgs,
    signals: &mut Signals,
) -> Outcome<(u8, Option<ToRelease>)> {
    let held = tokio::select! {
        held = wanted.acquire(store, client) => held?,
        number = signals.deadly() => return Ok((interrupted_by(number), None)),
        never = group::reap_orphans() => match never {},
    };
    let running = Running::start(&held, &job.child)?;
    let over = running.until_it_ends(&held.guard, signals).await;
    Ok((over.code, Some(ToRelease::after(&over, held.guard))))
}

/// A guard whose command has ended.
pub(super) struct ToRelease {
    guard: Guard,
    /// See [`Over::is_told`].
    loss_is_told: bool,
}

impl ToRelease {
    pub(super) fn after(over: &Over, guard: Guard) -> Self {
        Self {
            guard,
            loss_is_told: over.is_told,
        }
    }
}

/// The result of the release.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    InOrder,
    /// The lock was lost before, and nobody was told. Another holder may have entered the critical section while the
    /// command ran.
    Lost,
}

/// Releases the guard, if there is one, and closes the client.
async fn release(client: &Client, left: Option<ToRelease>) -> Left {
    let Some(ToRelease {
        guard,
        loss_is_told,
    }) = left
    else {
        client.close(Duration::ZERO).await;
        return Left::InOrder;
    };
    let name = guard.name().to_owned();
    match release_and_close(client, guard).await {
        Some(Ok(())) => Left::InOrder,
        // That the guard knows of its loss does not mean that somebody was told: a process that was frozen may hear at the same
        // moment that the command has ended.
        Some(Err(error)) if error.kind() == ErrorKind::Lost && loss_is_told => Left::InOrder,
        Some(Err(error)) => {
            say(&error);
            if error.kind() == ErrorKind::Lost {
                Left::Lost
            } else {
                Left::InOrder
            }
        }
        None => {
            say(unconfirmed(&name));
            Left::InOrder
        }
    }
}

/// Starts a supervisor. Returns the socket to it, and the pipe for its job description.
pub(super) fn spawn(
    held: &Held,
    job: &CommandArgs,
    terminal: bool,
) -> io::Result<(UnixStream, Child, OwnedFd)> {
    let (link, theirs) = UnixStream::pair()?;
    let guard = &held.guard;
    let orders = Orders {
        name: guard.name().to_owned(),
        grace_ms: millis(job.grace),
        merciful: job.on_lost == OnLost::Warn,
        terminal,
        command: job.command.clone(),
    };
    let orders = orders.send()?;
    let mut command = supervisor::command()?;
    command
        .env("TIDELOCK_NAME", guard.name())
        .env("TIDELOCK_OWNER", guard.owner_id())
        // A token of an outer run does not belong to this lock, and the command must not see the password.
        .env_remove("TIDELOCK_TOKEN")
        .env_remove("TIDELOCK_SLOT")
        .env_remove("TIDELOCK_ATTEMPT")
        .env_remove("TIDELOCK_TERM")
        .env_remove("TIDELOCK_PASSWORD");
    if let Some(token) = held.token {
        command.env("TIDELOCK_TOKEN", token.to_string());
    }
    if let Some(term) = held.term {
        command.env("TIDELOCK_TERM", term.to_string());
    }
    if let Some(run) = &held.run {
        command
            .env("TIDELOCK_SLOT", run.slot())
            .env("TIDELOCK_ATTEMPT", run.attempt().to_string());
    }
    if let Ok(url) = std::env::var("TIDELOCK_STORE") {
        // We remove the password but keep the store. Otherwise a nested `tidelock` would silently use another store.
        command.env("TIDELOCK_STORE", secret::shown(&url));
    }
    // The supervisor gets its own process group, so that signals to the job at the terminal or to this process's group
    // do not reach it.
    let child = command
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .process_group(0)
        .spawn()?;
    Ok((link, child, orders))
}

/// Durations above the range of `u64` milliseconds become the largest value.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tidelock::AcquireOptions;

    use super::*;

    /// A process that was frozen past the end of its lease may see the end of its command first. The loss is known then, and
    /// nobody was told.
    #[tokio::test]
    async fn a_loss_that_nobody_was_told_of_is_told_at_the_release() {
        for (loss_is_told, left) in [(false, Left::Lost), (true, Left::InOrder)] {
            let url = format!("memory:a loss that is told {loss_is_told}");
            let client = Client::connect(&url).await.unwrap();
            let short = AcquireOptions::new().expires_after(Duration::from_millis(50));
            let guard = client.lock("job").acquire_with(short).await.unwrap();
            guard.lost().await;
            let to_release = ToRelease {
                guard,
                loss_is_told,
            };
            assert_eq!(release(&client, Some(to_release)).await, left);
        }
    }
}
