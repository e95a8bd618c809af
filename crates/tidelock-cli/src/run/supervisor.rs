//! Owns the command's process group and its deadline.

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

/// How often it is looked whether the group is gone, when its leader is.
const GLANCE: Duration = Duration::from_millis(5);

/// How the supervisor is called in lists of processes. Not after the program: whoever kills all that are called `tidelock`
/// kills the wrapper, and the supervisor ends the command.
const NAME: &CStr = c"lock-supervisor";

/// A supervisor that is about to be started, under its name.
pub(crate) fn command() -> io::Result<Command> {
    let mut command = Command::new(own_program()?);
    command
        .arg0(OsStr::from_bytes(NAME.to_bytes()))
        .arg("__supervise");
    Ok(command)
}

/// Runs the command until it ends or has to.
pub(crate) fn supervise() -> Outcome {
    boot::be_called(NAME);
    signals::hear_nothing(); // before any thread begins, which would hear for all
    let (link, until, input, orders) = connect().map_err(Failure::internal)?;
    boot::adopt_orphans();
    let plan = Plan::new(
        boot::now(),
        until,
        u64::saturating_mul(orders.grace_ms, 1_000_000),
    );
    if plan.next() <= boot::now() {
        // Frozen between the grant and here.
        link::tell(&link, News::Ending);
        link::tell(&link, News::Killed(Signal::KILL.as_raw()));
        return Err(Failure::new(
            exit::LOST,
            format!(
                "{}: the lock was lost before the command began",
                orders.name
            ),
        ));
    }
    let child = start(&orders, input)
        .map_err(|error| Failure::new(exit::CANNOT_EXECUTE, format!("{}: {error}", orders.name)))?;
    let Some(group) = i32::try_from(child.id()).ok().and_then(Group::of) else {
        return Err(Failure::internal("a process without a number"));
    };
    // The shim stops before it becomes the command, so that the command never runs in a group the wrapper does not know:
    // should this process be killed, the wrapper ends the group.
    let waits = matches!(group::watch(group.leader()), Change::Stopped(_));
    link::tell(&link, News::Started(group.leader().as_raw_nonzero().get()));
    if waits {
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
    supervisor.until_leader_is_dead(&changes)?;
    supervisor.finish(child)
}

/// The link is this process's standard input; see [`link::tell_first`].
fn connect() -> io::Result<(UnixStream, u64, OwnedFd, Orders)> {
    let link = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (until, [input, orders]) = link::hear_first(&link)?;
    Ok((link, until, input, Orders::read(orders)?))
}

fn start(orders: &Orders, input: OwnedFd) -> io::Result<Child> {
    let mut shim = Command::new(own_program()?);
    shim.arg0("tidelock")
        .arg("__exec")
        // In one word: a name may begin like a flag.
        .arg(format!("--name={}", orders.name))
        .args(["--parent", &std::process::id().to_string()]);
    if orders.terminal {
        shim.arg("--terminal");
    }
    // From this thread, which lives as long as the process: a death signal goes with the thread that started the child.
    shim.arg("--")
        .args(&orders.command)
        .stdin(Stdio::from(input))
        .process_group(0)
        .spawn()
}

/// This very program, also after its file was replaced by an upgrade.
fn own_program() -> io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe()
}

/// A byte per stop of the leader: the signal's number. The end when it is dead.
fn watch_in_background(group: Group) -> io::Result<OwnedFd> {
    let (read, write) = io::pipe()?;
    std::thread::Builder::new()
        .name("watch".to_owned())
        .spawn(move || {
            while let Change::Stopped(signal) = group::watch(group.leader()) {
                let letter = u8::try_from(signal).unwrap_or_default();
                // The reader lives as long as the process.
                let _ = io::Write::write_all(&mut &write, &[letter]);
            }
        })?;
    Ok(read.into())
}

/// A stop that no continuing helps, as long as the terminal is another's.
pub(crate) fn wants_terminal(signal: i32) -> bool {
    signal == Signal::TTIN.as_raw() || signal == Signal::TTOU.as_raw()
}

struct Supervisor {
    name: String,
    /// A lost lock is told, and the command goes on.
    merciful: bool,
    terminal: bool,
    link: UnixStream,
    group: Group,
    plan: Plan,
    alarm: Alarm,
    /// Why the group has to end.
    why: &'static str,
    /// The loss was told.
    told: bool,
    /// It is said once that the group cannot be ended.
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

    /// Reads what the watching thread wrote; its end means that the leader is dead.
    fn leader_is_dead(&self, changes: &OwnedFd) -> bool {
        let mut letter = [0];
        match rustix::io::read(changes, &mut letter) {
            Ok(1) => {
                let signal = i32::from(letter[0]);
                if self.terminal && !wants_terminal(signal) {
                    // Ctrl-Z would leave nobody at the terminal, and a lock kept for a command that does nothing.
                    let _ = self.group.signal(Signal::CONT);
                }
                link::tell(&self.link, News::Stopped(signal));
                false
            }
            Err(Errno::INTR) => false,
            _ => true,
        }
    }

    /// All there is, before the deadline is looked at: after a freeze of this process the last word counts. `false`: the
    /// wrapper is gone.
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
                        // What is stopped must go on to hear it.
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
                link::tell(&self.link, News::Ending);
                self.group.ask_to_end();
                say(format!("{}: {}: ending the command", self.name, self.why));
            }
            // Again and again until the leader is dead: a process may have been born into the group meanwhile.
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
                "{}: {why}; the command goes on without it",
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

    /// The leader is dead: tells how it ended, and ends what it left in its group. That this is done, the wrapper hears by the
    /// end of this process.
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
