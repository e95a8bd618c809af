//! The supervisor: owns the command's process group and terminates it before its deadline.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Once;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;

use super::boot::{self, Alarm};
use super::group::{self, Change, Group};
use super::link::{self, News, Word};
use super::orders::Orders;
use super::plan::{Plan, Step};
use super::signals;
use crate::exit::{self, Failure, Outcome, say};

/// Poll interval while the supervisor waits for the group to be gone.
const GLANCE: Duration = Duration::from_millis(5);

/// The supervisor's name in process lists. It differs from the program's name, so that `killall tidelock` kills the
/// wrapper only, and the supervisor terminates the command.
const NAME: &CStr = c"lock-supervisor";

/// The command line that starts a supervisor under its name.
pub(crate) fn command() -> io::Result<Command> {
    let mut command = Command::new(own_program()?);
    command
        .arg0(OsStr::from_bytes(NAME.to_bytes()))
        .arg("__supervise");
    Ok(command)
}

/// Runs the command until it ends or must be terminated.
pub(crate) fn supervise() -> Outcome {
    boot::be_called(NAME);
    signals::hear_nothing(); // before any thread starts: it would receive signals for the whole process
    let (link, until, input, orders) = connect().map_err(Failure::internal)?;
    boot::adopt_orphans();
    let mut plan = Plan::new(
        boot::now(),
        until,
        u64::saturating_mul(orders.grace_ms, 1_000_000),
    );
    if plan.next() <= boot::now() {
        // This process was frozen between the grant and here.
        return Err(too_late(&link, &orders.name));
    }
    let mut child = start(&orders, input)
        .map_err(|error| Failure::new(exit::CANNOT_EXECUTE, format!("{}: {error}", orders.name)))?;
    let Some(group) = i32::try_from(child.id()).ok().and_then(Group::of) else {
        return Err(Failure::internal("the process of the command has no id"));
    };
    // The shim stops before it becomes the command, so the command never runs in a group that the wrapper does not
    // know. If this process is killed, the wrapper terminates the group.
    let waits = matches!(group::watch(group.leader()), Change::Stopped(_));
    link::tell(&link, News::Started(group.leader().as_raw_nonzero().get()));
    let mut heard = Vec::new();
    if waits {
        let Some(meanwhile) = heard_meanwhile(&link, &mut plan) else {
            group.kill();
            let _ = child.wait();
            return Err(too_late(&link, &orders.name));
        };
        heard = meanwhile;
        let _ = group.signal(Signal::CONT);
    }
    let changes = watch_in_background(group).map_err(Failure::internal)?;
    let mut supervisor = Supervisor {
        name: orders.name,
        merciful: orders.merciful,
        terminal: orders.terminal,
        link,
        group,
        plan,
        alarm: Alarm::new(),
        why: "no renewal of the lock is known",
        told: false,
        powerless: Once::new(),
    };
    for news in heard {
        supervisor.take(news);
    }
    supervisor.until_leader_is_dead(&changes)?;
    supervisor.finish(child)
}

/// Tells the wrapper that there is no command.
fn too_late(link: &UnixStream, name: &str) -> Failure {
    link::tell(link, News::Ending);
    link::tell(link, News::Killed(Signal::KILL.as_raw()));
    let message = format!("{name}: the lock was lost before the command began");
    Failure::new(exit::LOST, message)
}

/// Reads what the wrapper has said while the shim started, as this process may have been frozen meanwhile. Returns what
/// concerns the command. `None`: the command must not begin.
fn heard_meanwhile(link: &UnixStream, plan: &mut Plan) -> Option<Vec<News>> {
    let mut heard = Vec::new();
    loop {
        match link::hear(link) {
            Word::News(News::ProvedUntil(until)) => plan.proved(boot::now(), until),
            Word::News(News::Lost) | Word::End => return None,
            // Not yet: a signal continues the shim, and the next message may be a loss.
            Word::News(news) => heard.push(news),
            Word::Nothing => return (boot::now() < plan.next()).then_some(heard),
        }
    }
}

/// Reads the first message from the socket, which is this process's standard input; see [`link::tell_first`].
fn connect() -> io::Result<(UnixStream, u64, OwnedFd, Orders)> {
    let link = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (until, [input, orders]) = link::hear_first(&link)?;
    Ok((link, until, input, Orders::read(orders)?))
}

fn start(orders: &Orders, input: OwnedFd) -> io::Result<Child> {
    let mut shim = Command::new(own_program()?);
    shim.arg0("tidelock")
        .arg("__exec")
        // One argument with `=`: a name may begin with `-`.
        .arg(format!("--name={}", orders.name))
        .args(["--parent", &std::process::id().to_string()]);
    if orders.terminal {
        shim.arg("--terminal");
    }
    // We spawn from the main thread. The kernel sends the death signal when the spawning thread ends, not the process.
    shim.arg("--")
        .args(&orders.command)
        .stdin(Stdio::from(input))
        .process_group(0)
        .spawn()
}

/// The running program, even after an upgrade has replaced its file.
fn own_program() -> io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe()
}

/// A pipe with one byte per stop of the leader: the signal's number. End of file means that the leader is dead.
fn watch_in_background(group: Group) -> io::Result<OwnedFd> {
    let (read, write) = io::pipe()?;
    std::thread::Builder::new()
        .name("watch".to_owned())
        .spawn(move || {
            while let Change::Stopped(signal) = group::watch(group.leader()) {
                let letter = u8::try_from(signal).unwrap_or_default();
                // Cannot fail: the reader lives as long as the process.
                let _ = io::Write::write_all(&mut &write, &[letter]);
            }
        })?;
    Ok(read.into())
}

/// Whether the process was stopped because it needs the terminal. CONT does not help while another group has it.
pub(crate) fn wants_terminal(signal: i32) -> bool {
    signal == Signal::TTIN.as_raw() || signal == Signal::TTOU.as_raw()
}

struct Supervisor {
    name: String,
    /// `--on-lost warn`: a lost lock is reported, and the command runs on.
    merciful: bool,
    terminal: bool,
    link: UnixStream,
    group: Group,
    plan: Plan,
    alarm: Alarm,
    /// Why the group must terminate.
    why: &'static str,
    /// The loss was reported.
    told: bool,
    /// Reports only once that the group cannot be killed.
    powerless: Once,
}

impl Supervisor {
    fn until_leader_is_dead(&mut self, changes: &OwnedFd) -> Outcome<()> {
        let link: OwnedFd = self.link.try_clone().map_err(Failure::internal)?.into();
        let mut wrapper_is_there = true;
        loop {
            let at = (!(self.merciful && self.told)).then(|| self.plan.next());
            let [leader, wrapper] = if wrapper_is_there {
                self.alarm.wait([changes, &link], at)
            } else {
                self.alarm
                    .wait([changes], at)
                    .map(|[leader]| [leader, false])
            }
            .map_err(Failure::internal)?;
            if leader && self.leader_is_dead(changes) {
                return Ok(());
            }
            if wrapper {
                wrapper_is_there = self.hear_all();
            }
            self.do_what_is_due();
        }
    }

    /// Reads one stop from the pipe. `true`: end of file, the leader is dead.
    fn leader_is_dead(&self, changes: &OwnedFd) -> bool {
        let mut letter = [0];
        match rustix::io::read(changes, &mut letter) {
            Ok(1) => {
                let signal = i32::from(letter[0]);
                if self.terminal && !wants_terminal(signal) {
                    // We undo Ctrl-Z: a stopped command would do nothing and keep the lock, and nobody would have the
                    // terminal.
                    let _ = self.group.signal(Signal::CONT);
                }
                link::tell(&self.link, News::Stopped(signal));
                false
            }
            Err(Errno::INTR) => false,
            _ => true,
        }
    }

    /// Reads all messages before the deadline is checked: after a freeze of this process only the newest message is
    /// right. `false`: the wrapper is gone.
    fn hear_all(&mut self) -> bool {
        loop {
            match link::hear(&self.link) {
                Word::News(news) => self.take(news),
                Word::Nothing => return true,
                Word::End => {
                    self.end("the process that keeps the lock has died");
                    return false;
                }
            }
        }
    }

    fn take(&mut self, news: News) {
        match news {
            News::ProvedUntil(until) => self.plan.proved(boot::now(), until),
            News::Signal(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    let _ = self.group.signal(signal);
                    if matches!(
                        signal,
                        Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT
                    ) {
                        // A stopped process handles the signal only after it continues.
                        let _ = self.group.signal(Signal::CONT);
                    }
                }
            }
            News::Foreground => {
                self.terminal = true;
                let _ = self.group.signal(Signal::CONT);
            }
            News::Lost => self.end("the lock was lost"),
            _ => {}
        }
    }

    fn do_what_is_due(&mut self) {
        if self.merciful && self.told {
            return;
        }
        let now = boot::now();
        if now < self.plan.next() {
            return;
        }
        if self.merciful {
            return self.end("the lock can be proved no longer");
        }
        match self.plan.due(now) {
            Step::Wait => {}
            Step::Term => {
                self.told = true;
                // We report before we act, so that the wrapper does not repeat the step and returns the exit code of a
                // lost lock.
                link::tell(&self.link, News::Ending);
                self.group.ask_to_end();
                say(format!("{}: {}: ending the command", self.name, self.why));
            }
            // We repeat this until the leader is dead, because a process in the group may have forked in between.
            Step::Kill => {
                self.kill();
                std::thread::sleep(GLANCE);
            }
        }
    }

    fn end(&mut self, why: &'static str) {
        if !self.merciful {
            self.plan.over(boot::now());
            self.why = why;
        } else if !std::mem::replace(&mut self.told, true) {
            say(format!(
                "{}: {why}; the command continues without the lock",
                self.name
            ));
        }
    }

    fn kill(&self) {
        if !self.group.kill() {
            self.powerless
                .call_once(|| say(format!("{}: {}", self.name, group::BEYOND_OUR_RIGHTS)));
        }
    }

    /// The leader is dead: reports how it ended, and terminates the rest of its group. The exit of this process, which
    /// closes the socket, tells the wrapper that the group is gone.
    fn finish(mut self, mut child: Child) -> Outcome {
        let status = child.wait().map_err(Failure::internal)?;
        link::tell(&self.link, group::ended(status));
        let goes_on = self.merciful && self.told;
        if !goes_on && !self.group.is_gone() {
            if self.plan.asked(boot::now()) {
                self.group.ask_to_end();
            }
            while !self.group.is_gone() {
                if self.plan.due(boot::now()) == Step::Kill {
                    self.kill();
                }
                std::thread::sleep(GLANCE);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
