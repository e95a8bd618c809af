//! Takes the lock, has the command run, tells the supervisor how long the lock is proved, and hands signals on.

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::pin::pin;
use std::process::{Child, ExitCode, Stdio};
use std::time::{Duration, Instant};

use tidelock::{AcquireOptions, Client, ErrorKind, Guard};

use super::orders::Orders;
use super::running::Running;
use super::signals::Signals;
use super::{boot, supervisor};
use crate::args::{JobArgs, OnLost, StoreArgs};
use crate::exit::{self, Failure, Outcome, by_signal, say};
use crate::{block_on, covers, secret, store};

/// How long a store is tried that cannot be reached, for whoever waits without a limit. A lock is waited for as long as
/// somebody holds it; a store that is down for good is to be told, and an outage in the middle of a wait is told after a lease
/// of this length too.
const OUTAGE: Duration = Duration::from_secs(30);

/// Runs a command under a lock.
pub(crate) fn run(store: &StoreArgs, wait: Option<Duration>, job: &JobArgs) -> Outcome {
    // What a supervisor leaves that dies becomes this process's own, and can be ended.
    boot::adopt_orphans();
    block_on(async {
        let mut signals = Signals::catch().map_err(Failure::internal)?;
        let begun = Instant::now();
        let patience = wait.unwrap_or(OUTAGE);
        let client = tokio::select! {
            client = store::connect_within(store, patience) => client.map_err(|failure| failure.on_lock(&job.name))?,
            number = signals.deadly() => return Ok(ExitCode::from(by_signal(number))),
            never = explain_delay(store, &job.name, patience) => match never {},
        };
        covers::tell(store)?;
        let left = wait.map(|wait| wait.saturating_sub(begun.elapsed()));
        let done = with_lock(&client, left, job, &mut signals).await;
        let (result, guard) = match done {
            Ok((code, guard)) => (Ok(ExitCode::from(code)), guard),
            Err(failure) => (Err(failure), None),
        };
        match leave(&client, guard).await {
            Left::Lost if job.on_lost == OnLost::Kill => Ok(ExitCode::from(exit::LOST)),
            _ => result,
        }
    })
}

/// Says to somebody who looks why nothing happens.
async fn explain_delay(store: &StoreArgs, name: &str, patience: Duration) -> Infallible {
    tokio::time::sleep(Duration::from_secs(1)).await;
    if covers::is_watched(store) && !patience.is_zero() {
        say(format!(
            "{name}: the store has not let us in yet; trying again for {}",
            humantime::format_duration(patience)
        ));
    }
    std::future::pending().await
}

/// Returns the exit code, and what is to be given back.
async fn with_lock(
    client: &Client,
    wait: Option<Duration>,
    job: &JobArgs,
    signals: &mut Signals,
) -> Outcome<(u8, Option<Guard>)> {
    let lock = if job.fenced {
        client.fenced_lock(&job.name)
    } else {
        client.lock(&job.name)
    };
    let mut options = AcquireOptions::new();
    if let Some(limit) = wait {
        options = options.wait(limit);
    }
    if let Some(cap) = job.max_hold {
        options = options.max_hold(cap);
    }
    let guard = tokio::select! {
        guard = lock.acquire_with(options) => guard.map_err(|error| error.on_lock(lock.name()))?,
        number = signals.deadly() => return Ok((by_signal(number), None)),
    };
    let running = Running::start(&guard, job)?;
    let code = running.until_it_ends(&guard, signals).await;
    Ok((code, Some(guard)))
}

/// What the release found.
enum Left {
    InOrder,
    /// The lock had been lost, and only the store knew: another may have been inside while the command ran.
    Lost,
}

/// Releases and closes at the same time: closing waits for one answer of the store, and nobody waits here for another. The
/// command has ended, and who started it wants to know how.
async fn leave(client: &Client, guard: Option<Guard>) -> Left {
    let mut closed = pin!(client.close(Duration::ZERO));
    let Some(guard) = guard else {
        closed.await;
        return Left::InOrder;
    };
    let name = guard.name().to_owned();
    let is_known = !guard.is_held();
    let mut release = guard.release();
    let released = tokio::select! {
        biased; // the release begins before the client is closed
        released = &mut release => Some(released),
        _ = &mut closed => None,
    };
    let Some(released) = released else {
        say(format!(
            "{name}: the store has not confirmed the release; the lock may stay until its lease ends"
        ));
        return Left::InOrder;
    };
    let is_lost = matches!(&released, Err(error) if error.kind() == ErrorKind::Lost);
    if let Err(error) = released
        && !(is_lost && is_known)
    {
        say(&error);
    }
    closed.await;
    if is_lost && !is_known {
        Left::Lost
    } else {
        Left::InOrder
    }
}

/// Starts a supervisor. Returns the link to it, and where it is to read its orders.
pub(super) fn spawn(
    guard: &Guard,
    job: &JobArgs,
    terminal: bool,
) -> io::Result<(UnixStream, Child, OwnedFd)> {
    let (link, theirs) = UnixStream::pair()?;
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
        .env_remove("TIDELOCK_TOKEN")
        .env_remove("TIDELOCK_PASSWORD");
    if let Some(token) = guard.token() {
        command.env("TIDELOCK_TOKEN", token.to_string());
    }
    if let Ok(url) = std::env::var("TIDELOCK_STORE") {
        // Without its password, but not without the store: a `tidelock` below must not fall back to another one unnoticed.
        command.env("TIDELOCK_STORE", secret::shown(&url));
    }
    // A group of its own: what is meant for the job at the terminal, or sent to this process's group, does not hit it.
    let child = command
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .process_group(0)
        .spawn()?;
    Ok((link, child, orders))
}

/// More than a number has room for is as good as for ever.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
