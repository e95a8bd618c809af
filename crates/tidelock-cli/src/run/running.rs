//! The command while it runs, as the wrapper knows it.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::Duration;

use rustix::process::Signal;
use tidelock::{Guard, LostReason};

use super::group::{self, Group};
use super::hearing::{Ears, Heard};
use super::link::{self, News};
use super::plan::{Plan, Step};
use super::signals::Signals;
use super::terminal::Turn;
use super::{boot, supervisor};
use crate::args::{JobArgs, OnLost};
use crate::exit::{self, Failure, Outcome, by_signal, say};

/// How often it is looked whether a group is gone that is ended from here.
const GLANCE: Duration = Duration::from_millis(5);

/// The command, its supervisor, and what is known of them.
pub(crate) struct Running {
    name: String,
    supervisor: Child,
    link: UnixStream,
    ears: Ears,
    group: Option<Group>,
    terminal: Turn,
    told_until: u64,
    /// A lost lock is told, and the command goes on.
    merciful: bool,
    lost: bool,
    /// The exit code is that of a loss.
    ended_for_loss: bool,
    /// When the group is ended from here, if the supervisor does not.
    plan: Plan,
    grace: u64,
    /// How the command ended, in the supervisor's words.
    ended: Option<News>,
    /// The command is dead: by when what it left must be gone, and the supervisor too.
    over_by: Option<u64>,
}

impl Running {
    pub(crate) fn start(guard: &Guard, job: &JobArgs) -> Outcome<Self> {
        let name = guard.name().to_owned();
        let failed = |error: io::Error| Failure::internal(format!("{name}: {error}"));
        let terminal = Turn::at_start();
        let (now, until) = proved_until(guard);
        let (link, supervisor, orders) =
            super::wrapper::spawn(guard, job, terminal.is_given()).map_err(failed)?;
        let input = io::stdin();
        link::tell_first(&link, until, [input.as_fd(), orders.as_fd()]).map_err(failed)?;
        let ears = Ears::new(&link).map_err(failed)?;
        let grace = nanos(job.grace);
        Ok(Self {
            supervisor,
            link,
            ears,
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

    /// Until the command has ended and its group is gone. Returns the exit code.
    pub(crate) async fn until_it_ends(mut self, guard: &Guard, signals: &mut Signals) -> u8 {
        let mut lost = std::pin::pin!(guard.lost());
        let mut tick = tokio::time::interval(how_often(guard));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            let next = self.next();
            let heard = tokio::select! {
                heard = self.ears.next() => Some(heard),
                // After a freeze of this process there may be news, which come first.
                () = boot::sleep_until(next) => self.ears.now(),
                _ = tick.tick() => {
                    self.tell_deadline(guard);
                    self.give_terminal();
                    let Some(heard) = self.ears.now() else { continue };
                    Some(heard)
                }
                number = signals.next() => {
                    self.hand_on(number);
                    continue;
                }
                reason = &mut lost, if !self.lost => {
                    self.lose(reason);
                    continue;
                }
            };
            match heard {
                Some(Heard::SupervisorIsGone) => return self.finish(guard, signals).await,
                Some(heard) => self.take(heard),
                None if self.is_left_alone() => return self.finish(guard, signals).await,
                None => {}
            }
        }
    }

    fn tell_deadline(&mut self, guard: &Guard) {
        let (now, until) = proved_until(guard);
        self.plan.proved(now, until);
        // Only what is worth it: each look shows a few microseconds of difference.
        if until > self.told_until + 1_000_000 && link::tell(&self.link, News::ProvedUntil(until)) {
            self.told_until = until;
        }
    }

    fn lose(&mut self, reason: LostReason) {
        self.lost = true;
        self.ended_for_loss |= !self.merciful;
        self.plan.over(boot::now());
        say(format!("{}: lost: {reason}", self.name));
        link::tell(&self.link, News::Lost);
    }

    fn take(&mut self, heard: Heard) {
        match heard {
            Heard::News(News::Started(leader)) => self.group = Group::of(leader),
            Heard::News(News::Ending) => {
                self.ended_for_loss = true;
                self.plan.asked(boot::now());
            }
            Heard::News(News::Stopped(signal)) => self.stopped(signal),
            Heard::News(ended @ (News::Exited(_) | News::Killed(_))) => {
                self.ended = Some(ended);
                self.command_is_dead();
            }
            Heard::CommandIsDead => self.command_is_dead(),
            Heard::News(_) | Heard::SupervisorIsGone => {}
        }
    }

    /// From now on the supervisor ends what the command left. It gets more than a margin for it: nothing is in danger while
    /// the lock is kept, and one that is only slow knows the exit code.
    fn command_is_dead(&mut self) {
        let time = self.grace.saturating_add(self.plan.span() / 4);
        self.over_by.get_or_insert(boot::now().saturating_add(time));
    }

    /// When to look whether the supervisor has done what was due.
    fn next(&self) -> u64 {
        let planned = (!self.merciful).then(|| self.plan.next());
        let both = planned.into_iter().chain(self.over_by);
        both.min().unwrap_or(u64::MAX)
    }

    /// Does what the supervisor should have done by now. `true`: the rest is for this process to do.
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
                // Only while the command lives: the number of one that is dead may come to be another's.
                if let Some(group) = self.group.filter(|_| self.over_by.is_none()) {
                    group.ask_to_end();
                }
                say(format!(
                    "{}: the supervisor (pid {}) does not answer: ending the command from here",
                    self.name,
                    self.supervisor.id()
                ));
                false
            }
            Step::Kill => true,
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
    fn stopped(&mut self, signal: i32) {
        let name = &self.name;
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
                "{}: the command waits for the terminal, and keeps the lock; bring it to the foreground (fg), or give it </dev/null",
                self.name
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

    /// The supervisor has gone, or does not do what it should: what is left to be done is done from here.
    async fn finish(mut self, guard: &Guard, signals: &mut Signals) -> u8 {
        let collected = self.end_from_here(guard, signals).await;
        let supervisor = self.supervisor.wait().ok();
        let ended = self.ended.or(collected);
        // What was killed could not put the terminal in order.
        let in_order = matches!(ended, Some(News::Exited(_))) && !self.ended_for_loss;
        self.terminal.take_back(!in_order);
        if self.ended_for_loss {
            return exit::LOST;
        }
        if self.ended.is_none() && self.group.is_none() {
            // It could not even start the command, and has said why.
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

    /// Ends the supervisor and the group, and returns how the command ended, if that can be known.
    ///
    /// What the supervisor leaves becomes this process's own (it adopts orphans), dead or alive: so the number of the group
    /// stays the group's until everything is collected here.
    async fn end_from_here(&mut self, guard: &Guard, signals: &mut Signals) -> Option<News> {
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
        let Some(group) = self.group else {
            // It cannot have become the command yet, and dies with the supervisor.
            while !group::no_child_is_left() {
                tokio::time::sleep(GLANCE).await;
            }
            return None;
        };
        let ours = self.over_by.is_none() || group.has_a_child();
        let mut ended = group.collect_leader();
        // After a loss that is only told, what the command left may go on.
        if !ours || self.merciful && self.lost && self.over_by.is_some() {
            return ended;
        }
        let mut powerless = false;
        while !group.is_gone() {
            if !group.kill() && !std::mem::replace(&mut powerless, true) {
                say(format!("{}: {}", self.name, group::BEYOND_OUR_RIGHTS));
            }
            if powerless && !guard.is_held() {
                break; // there is nothing to keep back from others, and nothing to be done
            }
            tokio::select! {
                () = tokio::time::sleep(GLANCE) => {}
                // It may take as long as it likes, and this process need not wait for it.
                _ = signals.deadly(), if powerless => break,
            }
            ended = ended.or_else(|| group.collect_leader());
        }
        ended
    }
}

/// What time it is, and until when the lock is proved, on the boot clock. The clock first: a freeze in between makes it
/// earlier, never later.
fn proved_until(guard: &Guard) -> (u64, u64) {
    let now = boot::now();
    (now, now.saturating_add(nanos(guard.valid_for())))
}

/// How often to look whether the deadline has moved: a renewal is known to the supervisor a tenth of a lease later at most.
fn how_often(guard: &Guard) -> Duration {
    (guard.valid_for() / 10).clamp(Duration::from_millis(5), Duration::from_secs(1))
}

/// More than a number has room for is as good as for ever.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
