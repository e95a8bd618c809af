//! The running command from the wrapper's point of view: deadlines, signals, terminal, and the exit code.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::Duration;

use rustix::process::Signal;
use tidelock::{Guard, LostReason};

use super::events::{Event, Events};
use super::group::{self, Group};
use super::link::{self, News};
use super::plan::{Plan, Step};
use super::signals::Signals;
use super::terminal::{self, Turn};
use super::{boot, supervisor};
use crate::acquire::Held;
use crate::args::{CommandArgs, OnLost};
use crate::exit::{self, Failure, Outcome, by_signal, say};

/// Poll interval while the wrapper terminates a group itself.
const GLANCE: Duration = Duration::from_millis(5);

/// Longer than a shim lives without its supervisor.
const SHIM_DIES: Duration = Duration::from_secs(1);

/// How it ended.
pub(crate) struct Over {
    pub(crate) code: u8,
    /// The command was terminated because the lock was lost, or could be proved no longer.
    pub(crate) for_loss: bool,
    /// A loss was reported, or the command was terminated before it was certain.
    pub(crate) is_told: bool,
}

/// The command, its supervisor, and their known state.
pub(crate) struct Running {
    name: String,
    supervisor: Child,
    link: UnixStream,
    events: Events,
    group: Option<Group>,
    terminal: Turn,
    told_until: u64,
    /// `--on-lost warn`: a lost lock is reported, and the command runs on.
    merciful: bool,
    lost: bool,
    /// The exit code is that of a lost lock.
    ended_for_loss: bool,
    /// When the wrapper terminates the group itself, if the supervisor does not.
    plan: Plan,
    grace: u64,
    /// How the command ended, as the supervisor reported it.
    ended: Option<News>,
    /// Set once the command is dead: by this instant the rest of its group and the supervisor must be gone.
    over_by: Option<u64>,
}

impl Running {
    pub(crate) fn start(held: &Held, job: &CommandArgs) -> Outcome<Self> {
        let name = held.guard.name().to_owned();
        let failed = |error: io::Error| Failure::internal(format!("{name}: {error}"));
        let terminal = Turn::at_start();
        let (now, until) = proved_until(&held.guard);
        let (link, supervisor, orders) =
            super::wrapper::spawn(held, job, terminal.is_given()).map_err(failed)?;
        let input = io::stdin();
        link::tell_first(&link, until, [input.as_fd(), orders.as_fd()]).map_err(failed)?;
        let events = Events::new(&link).map_err(failed)?;
        let grace = nanos(job.grace);
        Ok(Self {
            supervisor,
            link,
            events,
            group: None,
            terminal,
            told_until: until,
            merciful: job.on_lost == OnLost::Warn,
            lost: false,
            ended_for_loss: false,
            plan: Plan::new(now, until, grace).second(),
            grace,
            ended: None,
            over_by: None,
            name,
        })
    }

    /// Runs until the command has ended and its group is gone.
    pub(crate) async fn until_it_ends(mut self, guard: &Guard, signals: &mut Signals) -> Over {
        let mut lost = std::pin::pin!(guard.lost());
        let mut tick = tokio::time::interval(how_often(guard));
        let mut reap = tokio::time::interval(group::REAP);
        for interval in [&mut tick, &mut reap] {
            interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        }
        loop {
            let next = self.next();
            let heard = tokio::select! {
                heard = self.events.next() => Some(heard),
                // After a freeze of this process there may be messages. They come first: a newer deadline may be among
                // them.
                () = boot::sleep_until(next) => self.events.now(),
                _ = tick.tick() => {
                    self.tell_deadline(guard);
                    self.give_terminal();
                    let Some(heard) = self.events.now() else { continue };
                    Some(heard)
                }
                number = signals.next() => {
                    self.hand_on(number);
                    if self.ended_for_loss {
                        signals.came_with_the_end(number);
                    }
                    continue;
                }
                _ = reap.tick() => {
                    self.reap_orphans();
                    continue;
                }
                reason = &mut lost, if !self.lost => {
                    self.lose(reason);
                    continue;
                }
            };
            match heard {
                Some(Event::SupervisorIsGone) => break,
                Some(heard) => self.take(heard),
                None if self.is_left_alone() => break,
                None => {}
            }
        }
        let collected = self.end_from_here(guard, signals).await;
        // Only now: the last messages of the supervisor may tell that it has ended the command.
        let for_loss = self.ended_for_loss;
        let is_told = self.lost || for_loss;
        let code = self.finish(collected);
        Over {
            code,
            for_loss,
            is_told,
        }
    }

    /// What an earlier command has left behind may start processes and leave them to this one, which adopts orphans.
    fn reap_orphans(&self) {
        let supervisor = i32::try_from(self.supervisor.id()).ok();
        group::reap_others(|child| {
            Some(child.as_raw_nonzero().get()) == supervisor
                || self.group.is_none_or(|group| group.has(child))
        });
    }

    fn tell_deadline(&mut self, guard: &Guard) {
        let (now, until) = proved_until(guard);
        self.plan.proved(now, until);
        // We report only changes above 1 ms: each call of `valid_for` differs by a few microseconds.
        if until > self.told_until + 1_000_000 && link::tell(&self.link, News::ProvedUntil(until)) {
            self.told_until = until;
        }
    }

    fn lose(&mut self, reason: LostReason) {
        self.lost = true;
        self.ended_for_loss |= !self.merciful;
        self.plan.over(boot::now());
        // First: a message to a terminal may take its time.
        link::tell(&self.link, News::Lost);
        say(format!("{}: lost: {reason}", self.name));
    }

    fn take(&mut self, heard: Event) {
        match heard {
            Event::News(News::Started(leader)) => self.group = Group::of(leader),
            Event::News(News::Ending) => {
                self.ended_for_loss = true;
                self.plan.asked(boot::now());
            }
            Event::News(News::Stopped(signal)) => self.stopped(signal),
            Event::News(ended @ (News::Exited(_) | News::Killed(_))) => {
                self.ended = Some(ended);
                self.command_is_dead();
            }
            Event::CommandIsDead => self.command_is_dead(),
            Event::News(_) | Event::SupervisorIsGone => {}
        }
    }

    /// The supervisor now terminates the rest of the group. It gets more time than a margin: the lock is still kept, so
    /// nothing is in danger, and a supervisor that is only slow still knows the exit code.
    fn command_is_dead(&mut self) {
        let time = self.grace.saturating_add(self.plan.span() / 4);
        self.over_by.get_or_insert(boot::now().saturating_add(time));
    }

    /// When to check whether the supervisor has done the step that was due.
    fn next(&self) -> u64 {
        let planned = (!self.merciful).then(|| self.plan.next());
        let both = planned.into_iter().chain(self.over_by);
        both.min().unwrap_or(u64::MAX)
    }

    /// Does the step that the supervisor should have done by now. `true`: the wrapper must do the rest itself.
    fn is_left_alone(&mut self) -> bool {
        let now = boot::now();
        if self.over_by.is_some_and(|at| now >= at) {
            return true;
        }
        if self.merciful {
            return false;
        }
        match self.plan.due(now) {
            Step::Wait => false,
            Step::Term => {
                self.ended_for_loss = true;
                if let Some(group) = self.living_group() {
                    group.ask_to_end();
                }
                say(format!(
                    "{}: the supervisor (pid {}) does not answer: ending the command from here",
                    self.name,
                    self.supervisor.id()
                ));
                false
            }
            Step::Kill => {
                // From here on the supervisor reaps nothing any more, so a command that has not ended yet keeps the number of
                // its group. Otherwise another program could get that number, and be killed.
                let _ = self.supervisor.kill();
                while let Some(heard @ (Event::News(_) | Event::CommandIsDead)) = self.events.now()
                {
                    self.take(heard);
                }
                // We kill the group before we wait for the supervisor to die. Otherwise a supervisor that the kernel
                // ends slowly, because the machine is busy or a disk does not answer, would cost the rest of the lease.
                if let Some(group) = self.living_group() {
                    group.kill();
                }
                true
            }
        }
    }

    /// The group while the command lives. Once it is dead and reaped, the kernel may reuse the group's number.
    fn living_group(&self) -> Option<Group> {
        self.group.filter(|_| self.over_by.is_none())
    }

    fn hand_on(&mut self, number: i32) {
        if number == Signal::TTIN.as_raw() {
            if let Some(group) = self.group {
                self.terminal.lend_to_ours(group.leader());
            }
            return;
        }
        if number == Signal::TSTP.as_raw() && terminal::is_in_front() {
            // Ctrl-Z, while the command does not have the terminal because its input or output is elsewhere. The rest of
            // a pipeline was stopped, and the shell would wait for it.
            terminal::continue_ours();
            return self.say_not_stopped();
        }
        if number == Signal::CONT.as_raw()
            && self
                .group
                .is_some_and(|group| self.terminal.give_if_ours(group.leader()))
        {
            link::tell(&self.link, News::Foreground);
        }
        link::tell(&self.link, News::Signal(number));
    }

    /// The command was stopped, and still holds the lock.
    fn stopped(&mut self, signal: i32) {
        if !supervisor::wants_terminal(signal) {
            if self.terminal.is_given() {
                self.say_not_stopped();
            }
            return;
        }
        let news = self.terminal.want();
        if !self.give_terminal() && news {
            say(format!(
                "{}: the command waits for the terminal, and keeps the lock; bring it to the foreground (fg), or give it </dev/null",
                self.name
            ));
        }
    }

    fn say_not_stopped(&self) {
        say(format!(
            "{}: not stopped: a stopped command would keep the lock",
            self.name
        ));
    }

    /// Gives the terminal to the command that waits for it, if this process has it. `true`: the command continues.
    fn give_terminal(&mut self) -> bool {
        let given = self
            .group
            .is_some_and(|group| self.terminal.give_if_wanted(group.leader()));
        if given {
            link::tell(&self.link, News::Foreground);
        }
        given
    }

    /// Takes the terminal back and returns the exit code. `collected`: how the command ended, if the wrapper has reaped it.
    fn finish(mut self, collected: Option<News>) -> u8 {
        let supervisor = self.supervisor.wait().ok();
        let ended = self.ended.or(collected);
        // A killed command could not restore the terminal's settings.
        let in_order = matches!(ended, Some(News::Exited(_))) && !self.ended_for_loss;
        let group = self.group.map(Group::leader);
        self.terminal.take_back(group, !in_order);
        if self.ended_for_loss {
            return exit::LOST;
        }
        if self.ended.is_none() && self.group.is_none() {
            // The supervisor could not even start the command, and has printed the reason.
            let code = supervisor.and_then(|status| status.code());
            if let Some(code) = code.and_then(|code| u8::try_from(code).ok()) {
                return code;
            }
        }
        match ended {
            Some(News::Exited(code)) => u8::try_from(code).unwrap_or(exit::INTERNAL),
            Some(News::Killed(signal)) if self.ended.is_some() => by_signal(signal),
            _ => {
                say(format!(
                    "{}: the supervisor was killed, and the command with it",
                    self.name
                ));
                by_signal(Signal::KILL.as_raw())
            }
        }
    }

    /// The supervisor has died or does not do its work: the wrapper kills it and the group, and reaps everything itself.
    /// Returns how the command ended, if that can be known.
    ///
    /// The wrapper adopts orphans, so the processes that the supervisor leaves, dead or alive, become its children.
    /// Therefore the kernel cannot reuse the group's number until all of them are reaped here.
    async fn end_from_here(&mut self, guard: &Guard, signals: &mut Signals) -> Option<News> {
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
        // If the supervisor was killed just now, its last message may name the group.
        while let Some(heard @ Event::News(_)) = self.events.now() {
            self.take(heard);
        }
        let Some(group) = self.group else {
            // The shim has not become the command, and cannot: the kernel kills it with the supervisor, or it does so
            // itself. Others may live for any time: children from before this process became `tidelock`, and orphans.
            let is_reaped = async {
                while !group::no_child_is_left() {
                    tokio::time::sleep(GLANCE).await;
                }
            };
            let _ = tokio::time::timeout(SHIM_DIES, is_reaped).await;
            return None;
        };
        let ours = self.over_by.is_none() || group.has_a_child();
        let mut ended = group.collect_leader();
        // After a loss that is only reported (`--on-lost warn`), the rest of the group may run on.
        if !ours || self.merciful && self.lost && self.over_by.is_some() {
            return ended;
        }
        let mut powerless = false;
        while !group.is_gone() {
            if !group.kill() && !std::mem::replace(&mut powerless, true) {
                say(format!("{}: {}", self.name, group::BEYOND_OUR_RIGHTS));
            }
            if powerless && !guard.is_held() {
                break; // we cannot kill the rest, and there is no lock left to protect
            }
            tokio::select! {
                () = tokio::time::sleep(GLANCE) => {}
                // The processes we may not kill can run for any time; a signal ends this wait.
                _ = signals.deadly(), if powerless => break,
            }
            ended = ended.or_else(|| group.collect_leader());
        }
        ended
    }
}

/// The time now, and the instant until which the lock is proved, on the boot clock. We read the clock first: a freeze
/// in between then makes the instant earlier, never later.
fn proved_until(guard: &Guard) -> (u64, u64) {
    let now = boot::now();
    (now, now.saturating_add(nanos(guard.valid_for())))
}

/// How often to check for a new deadline: the supervisor learns of a renewal a tenth of a lease later at most.
fn how_often(guard: &Guard) -> Duration {
    (guard.valid_for() / 10).clamp(Duration::from_millis(5), Duration::from_secs(1))
}

/// Durations above the range of `u64` nanoseconds (584 years) become the largest value.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
