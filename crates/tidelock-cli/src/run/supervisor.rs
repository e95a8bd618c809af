//! Owns the command's process group and its deadline.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use super::boot::{self, Alarm};
use super::group::{self, Change, Group};
use super::link::{self, News};
use super::plan::{Plan, Step};
use super::signals;
use crate::args::{OnLost, SuperviseArgs};
use crate::exit::{self, Failure, Outcome, say};

/// How often it is looked whether the group is gone, when its leader is.
const GLANCE: Duration = Duration::from_millis(5);

/// Runs the command until it ends or has to.
pub(crate) fn supervise(args: SuperviseArgs) -> Outcome {
    signals::hear_nothing(); // before any thread begins, which would hear for all
    let (link, until, input) = connect().map_err(Failure::internal)?;
    boot::adopt_orphans();
    let plan = Plan::new(
        boot::now(),
        until,
        u64::saturating_mul(args.grace_ms, 1_000_000),
    );
    if plan.next() <= boot::now() {
        // Frozen between the grant and here.
        link::tell(&link, News::Ending);
        link::tell(&link, News::Killed(Signal::KILL.as_raw()));
        return Err(Failure::new(
            exit::LOST,
            format!("{}: the lock was lost before the command began", args.name),
        ));
    }
    let child = start(&args, input)
        .map_err(|error| Failure::new(exit::CANNOT_EXECUTE, format!("{}: {error}", args.name)))?;
    let Some(group) = i32::try_from(child.id()).ok().and_then(Group::of) else {
        return Err(Failure::internal("a process without a number"));
    };
    // The shim stops before it becomes the command, so that the command never runs in a group the wrapper does not know:
    // should this process be killed, the wrapper ends the group.
    let waits = matches!(group::watch(group.leader()), Change::Stopped(_));
    link::tell(&link, News::Started(group.leader().as_raw_nonzero().get()));
    if waits {
        group.signal(Signal::CONT);
    }
    let changes = watch_in_background(group).map_err(Failure::internal)?;
    let mut supervisor = Supervisor {
        name: args.name,
        merciful: args.on_lost == OnLost::Warn,
        terminal: args.terminal,
        link,
        group,
        plan,
        alarm: Alarm::new(),
        told: false,
    };
    supervisor.until_leader_is_dead(&changes)?;
    supervisor.finish(child)
}

/// The link is this process's standard input; see [`link::tell_first`].
fn connect() -> io::Result<(UnixStream, u64, OwnedFd)> {
    let link = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (until, input) = link::hear_first(&link)?;
    Ok((link, until, input))
}

fn start(args: &SuperviseArgs, input: OwnedFd) -> io::Result<Child> {
    let mut shim = Command::new(own_program()?);
    shim.arg0("tidelock")
        .arg("__exec")
        .arg(format!("--name={}", args.name))
        .args(["--parent", &std::process::id().to_string()]);
    if args.terminal {
        shim.arg("--terminal");
    }
    // From this thread, which lives as long as the process: a death signal goes with the thread that started the child.
    shim.arg("--")
        .args(&args.command)
        .stdin(Stdio::from(input))
        .process_group(0)
        .spawn()
}

/// This very program, also after its file was replaced by an upgrade.
pub(crate) fn own_program() -> io::Result<std::path::PathBuf> {
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
    /// The loss was told.
    told: bool,
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
                wrapper_is_there = self.hear();
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
                    self.group.signal(Signal::CONT);
                }
                link::tell(&self.link, News::Stopped(signal));
                false
            }
            Err(rustix::io::Errno::INTR) => false,
            _ => true,
        }
    }

    /// One piece of news. `false`: the wrapper is gone.
    fn hear(&mut self) -> bool {
        let now = boot::now();
        match link::hear(&self.link) {
            Some(News::ProvedUntil(until)) => self.plan.proved(now, until),
            Some(News::Signal(number)) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    self.group.signal(signal);
                    if matches!(
                        signal,
                        Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT
                    ) {
                        // What is stopped must go on to hear it.
                        self.group.signal(Signal::CONT);
                    }
                }
            }
            Some(News::Foreground) => {
                self.terminal = true;
                self.group.signal(Signal::CONT);
            }
            Some(News::Lost) => self.end("the lock was lost"),
            Some(_) => {}
            None => {
                self.end("the process that keeps the lock has died");
                return false;
            }
        }
        true
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
                self.announce("no renewal of the lock is known");
                self.group.ask_to_end();
            }
            // Again and again until the leader is dead: a process may have been born into the group meanwhile.
            Step::Kill => {
                self.group.signal(Signal::KILL);
                std::thread::sleep(GLANCE);
            }
        }
    }

    fn end(&mut self, why: &str) {
        if self.merciful {
            if !std::mem::replace(&mut self.told, true) {
                say(format!(
                    "{}: {why}; the command goes on without it",
                    self.name
                ));
            }
        } else if self.plan.end(boot::now()) {
            self.announce(why);
            self.group.ask_to_end();
        }
    }

    fn announce(&mut self, why: &str) {
        self.told = true;
        link::tell(&self.link, News::Ending);
        say(format!("{}: {why}: ending the command", self.name));
    }

    /// The leader is dead: ends what it left in its group, and tells how it ended.
    fn finish(mut self, mut child: Child) -> Outcome {
        let status = child.wait().map_err(Failure::internal)?;
        let goes_on = self.merciful && self.told;
        if !goes_on && !self.group.is_gone() {
            if self.plan.end(boot::now()) {
                self.group.ask_to_end();
            }
            while !self.group.is_gone() {
                if self.plan.due(boot::now()) == Step::Kill {
                    self.group.signal(Signal::KILL);
                }
                std::thread::sleep(GLANCE);
            }
        }
        link::tell(&self.link, group::ended(status));
        Ok(ExitCode::SUCCESS)
    }
}
