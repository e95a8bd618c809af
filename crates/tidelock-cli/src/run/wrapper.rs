//! Takes the lock, has the command run, tells the supervisor how long the lock is proved, and hands signals on.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tidelock::{AcquireOptions, Client, Guard};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::group::Group;
use super::link::{self, News};
use super::signals::Signals;
use super::terminal::Turn;
use super::{boot, supervisor};
use crate::args::{JobArgs, OnLost, StoreArgs};
use crate::exit::{self, Failure, Outcome, by_signal, say};
use crate::{block_on, secret, store};

/// How long guards get to go when the client is closed; none is left by then.
const CLOSING: Duration = Duration::from_secs(1);

/// Runs a command under a lock.
pub(crate) fn run(store: &StoreArgs, wait: Option<Duration>, job: &JobArgs) -> Outcome {
    block_on(async {
        let mut signals = Signals::catch().map_err(Failure::internal)?;
        let client = tokio::select! {
            client = store::connect(store) => client.map_err(|failure| failure.on_lock(&job.name))?,
            number = signals.deadly() => return Ok(ExitCode::from(by_signal(number))),
        };
        let result = with_lock(&client, wait, job, &mut signals).await;
        client.close(CLOSING).await;
        result
    })
}

async fn with_lock(
    client: &Client,
    wait: Option<Duration>,
    job: &JobArgs,
    signals: &mut Signals,
) -> Outcome {
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
        number = signals.deadly() => return Ok(ExitCode::from(by_signal(number))),
    };
    let running = Running::start(&guard, job)?;
    let code = running.until_it_ends(&guard, job, signals).await;
    if let Err(error) = guard.release().await
        && error.kind() != tidelock::ErrorKind::Lost
    {
        // The command has ended in order; the lock goes with its lease at the latest.
        say(&error);
    }
    Ok(ExitCode::from(code))
}

/// The command, its supervisor, and what is known of them.
struct Running {
    supervisor: Child,
    link: UnixStream,
    news: UnboundedReceiver<News>,
    group: Option<Group>,
    terminal: Turn,
    told_until: u64,
}

impl Running {
    fn start(guard: &Guard, job: &JobArgs) -> Outcome<Self> {
        let terminal = Turn::at_start();
        let until = proved_until(guard);
        let (link, supervisor) = spawn(guard, job, terminal.is_given())
            .map_err(|error| Failure::internal(format!("{}: no supervisor: {error}", job.name)))?;
        link::tell_first(&link, until, io::stdin().as_fd()).map_err(Failure::internal)?;
        let news = listen(&link).map_err(Failure::internal)?;
        Ok(Self {
            supervisor,
            link,
            news,
            group: None,
            terminal,
            told_until: until,
        })
    }

    /// Until the command has ended and its group is gone. Returns the exit code.
    async fn until_it_ends(mut self, guard: &Guard, job: &JobArgs, signals: &mut Signals) -> u8 {
        let mut ended_for_loss = false;
        let mut lost = Some(guard.lost());
        let mut tick = tokio::time::interval(how_often(guard));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                _ = tick.tick() => {
                    self.tell_deadline(guard);
                    self.give_terminal();
                }
                number = signals.next() => self.hand_on(number),
                reason = async { match &mut lost { Some(lost) => lost.await, None => std::future::pending().await } } => {
                    lost = None;
                    ended_for_loss |= job.on_lost == OnLost::Kill;
                    say(format!("{}: lost: {reason}", guard.name()));
                    link::tell(&self.link, News::Lost);
                }
                news = self.news.recv() => match news {
                    Some(News::Started(leader)) => self.group = Group::of(leader),
                    Some(News::Ending) => ended_for_loss = true,
                    Some(News::Stopped(signal)) => self.stopped(signal, guard.name()),
                    Some(News::Exited(code)) => {
                        let code = u8::try_from(code).unwrap_or(exit::INTERNAL);
                        return self.leave(ended_for_loss, ended_for_loss, code);
                    }
                    Some(News::Killed(signal)) => return self.leave(ended_for_loss, true, by_signal(signal)),
                    Some(_) => {}
                    None => return self.supervisor_is_gone(guard.name()).await,
                },
            }
        }
    }

    fn tell_deadline(&mut self, guard: &Guard) {
        let until = proved_until(guard);
        // Only what is worth it: each look shows a few microseconds of difference.
        if until > self.told_until + 1_000_000 {
            self.told_until = until;
            link::tell(&self.link, News::ProvedUntil(until));
        }
    }

    fn hand_on(&mut self, number: i32) {
        if number == Signal::CONT.as_raw()
            && self
                .group
                .is_some_and(|group| self.terminal.give_if_ours(group.leader()))
        {
            link::tell(&self.link, News::Foreground);
        }
        link::tell(&self.link, News::Signal(number));
    }

    /// The command was stopped, and keeps the lock.
    fn stopped(&mut self, signal: i32, name: &str) {
        if !supervisor::wants_terminal(signal) {
            if self.terminal.is_given() {
                say(format!(
                    "{name}: not stopped: a stopped command would keep the lock"
                ));
            }
            return;
        }
        let news = self.terminal.want();
        if !self.give_terminal() && news {
            say(format!(
                "{name}: the command waits for the terminal, and keeps the lock; bring it to the foreground (fg), or give it </dev/null"
            ));
        }
    }

    /// Gives the terminal to the command that waits for it, if it can be had. `true`: it goes on.
    fn give_terminal(&mut self) -> bool {
        let given = self
            .group
            .is_some_and(|group| self.terminal.give_if_wanted(group.leader()));
        if given {
            link::tell(&self.link, News::Foreground);
        }
        given
    }

    fn leave(mut self, ended_for_loss: bool, mend: bool, code: u8) -> u8 {
        self.collect(mend);
        if ended_for_loss { exit::LOST } else { code }
    }

    /// Without the supervisor nobody keeps the deadline: end the group from here, at once.
    async fn supervisor_is_gone(mut self, name: &str) -> u8 {
        if let Some(group) = self.group {
            // Its own children are not ours to collect; init does, in its time.
            for _ in 0..100 {
                group.signal(Signal::KILL);
                if group.is_gone() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        let code = match self.collect(true) {
            // It could not even start the command, and has said why.
            Some(code) if self.group.is_none() && code != 0 => u8::try_from(code).ok(),
            _ => None,
        };
        code.unwrap_or_else(|| {
            say(format!(
                "{name}: the supervisor was killed, and the command with it"
            ));
            by_signal(Signal::KILL.as_raw())
        })
    }

    fn collect(&mut self, mend: bool) -> Option<i32> {
        let status = self.supervisor.wait();
        self.terminal.take_back(mend);
        status.ok().and_then(|status| status.code())
    }
}

/// Until when the lock is proved, on the boot clock. The clock first: a freeze in between makes it earlier, never later.
fn proved_until(guard: &Guard) -> u64 {
    let now = boot::now();
    now.saturating_add(u64::try_from(guard.valid_for().as_nanos()).unwrap_or(u64::MAX))
}

/// How often to look whether the deadline has moved: a renewal is known to the supervisor a tenth of a lease later at most.
fn how_often(guard: &Guard) -> Duration {
    (guard.valid_for() / 10).clamp(Duration::from_millis(5), Duration::from_secs(1))
}

fn spawn(guard: &Guard, job: &JobArgs, terminal: bool) -> io::Result<(UnixStream, Child)> {
    let (link, theirs) = UnixStream::pair()?;
    let mut command = Command::new(supervisor::own_program()?);
    command
        .arg0("tidelock")
        .arg("__supervise")
        // In one word: a name may begin like a flag.
        .arg(format!("--name={}", guard.name()))
        .arg(format!("--grace-ms={}", millis(job.grace)))
        .args([
            "--on-lost",
            if job.on_lost == OnLost::Kill {
                "kill"
            } else {
                "warn"
            },
        ]);
    if terminal {
        command.arg("--terminal");
    }
    command
        .arg("--")
        .args(&job.command)
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
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .process_group(0)
        .spawn()?;
    Ok((link, child))
}

/// More than a number has room for is as good as for ever.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Hears the supervisor on a thread of its own, so that news are awaited without a second registration of the descriptor.
fn listen(link: &UnixStream) -> io::Result<UnboundedReceiver<News>> {
    let link = link.try_clone()?;
    let (tell, told) = unbounded_channel();
    std::thread::Builder::new()
        .name("news".to_owned())
        .spawn(move || {
            while let Some(news) = link::hear(&link) {
                if tell.send(news).is_err() {
                    return;
                }
            }
        })?;
    Ok(told)
}
