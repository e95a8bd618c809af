//! The stage of a run: the servers and processes that a story acts on, and the notes that it makes.

mod failovers;
mod outcome;
mod remains;
mod run;
mod story;
mod terms;

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;
use testkit::process::boot_time;

pub(crate) use self::outcome::Outcome;
pub(crate) use self::run::{Run, play, play_run};
pub(crate) use self::story::Story;
use crate::crew::Crew;
use crate::notes::{Harm, Notes, Outage, Span};
use crate::role::Role;
use crate::store::Store;
use crate::worker::Lie;
use crate::world::{Spread, World};

/// The bound on the time from a fault until every process is served again. Failovers are the slowest.
pub(crate) const RECOVERY: Duration = Duration::from_secs(30);

/// The same in leases, where they are longer than usual: the processes hold the locks for parts of a lease, in turns.
const RECOVERY_LEASES: u32 = 15;

/// The environment of a story.
pub(crate) struct Stage<'a> {
    pub(crate) world: &'a dyn World,
    pub(crate) store: Store,
    pub(crate) crew: Crew,
    pub(crate) notes: Notes,
    pub(crate) rng: Rng,
    pub(crate) lease: Duration,
    /// Whether all replicas acknowledge a grant.
    pub(crate) all_replicas: bool,
    base: String,
    pub(crate) lie: Lie,
    is_storm: bool,
    /// The number of faults that have been made.
    made: usize,
    /// When the servers were well, at the begin and again after a partition, and the elections that they had had by then.
    pub(crate) well: Option<(Duration, u64)>,
}

impl<'a> Stage<'a> {
    /// The name of the lock of this role.
    pub(crate) fn name(&self, role: Role) -> String {
        role.name(&self.base, "")
    }

    /// The names of all locks that the processes use.
    pub(crate) fn names(&self) -> Vec<String> {
        let shared = [Role::Trader, Role::Relay, Role::Candidate, Role::Ticker];
        let shared = shared.map(|role| self.name(role));
        let keepers = self.crew.members.iter().map(|member| {
            let owner = format!("{}-0", member.number);
            Role::Keeper.name(&self.base, &owner)
        });
        shared.into_iter().chain(keepers).collect()
    }

    /// The servers and processes, if each has a host of its own.
    pub(crate) fn spread(&self) -> Result<&'a Spread> {
        self.world.spread().context("all are on one host")
    }

    /// The process that a fault hits: the holder of the lock that is held longest.
    pub(crate) fn victim(&mut self) -> Result<u32> {
        if self.lie == Lie::Minority {
            return Ok(1);
        }
        self.holder(Role::Relay)
    }

    /// Servers that chose a new leader until now although nothing was cut had no processor for a second. That is an outage.
    pub(crate) fn note_elections(&mut self) -> Result<()> {
        if let Some((from, elections)) = self.well
            && self.spread()?.elections()? > elections
        {
            let to = boot_time();
            let when = Span { from, to };
            self.notes.outages.push(Outage { when, mute: false });
            self.notes.disturbed = true;
            if self.store == Store::Sentinel && !self.all_replicas {
                self.may_have_forgotten(when);
            }
        }
        Ok(())
    }

    /// Those of these roles that the store can play: without tokens it has neither elections nor jobs that run once.
    pub(crate) fn roles(&self, roles: &[Role]) -> Vec<Role> {
        let needs_tokens = |role: &Role| matches!(role, Role::Candidate | Role::Ticker);
        let mut roles = roles.to_vec();
        roles.retain(|role| self.store.has_tokens() || !needs_tokens(role));
        roles
    }

    /// Lets the run continue for this time.
    #[allow(clippy::unused_self, reason = "a stage direction like the others")]
    pub(crate) fn pass(&self, time: Duration) {
        thread::sleep(time);
    }

    /// A random duration between these bounds, in milliseconds.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.rng.u64(least..=most))
    }

    /// Freezes a process for that time.
    pub(crate) fn freeze(&mut self, number: u32, time: Duration) -> Result<()> {
        let from = boot_time();
        self.crew.by_number(number)?.process.freeze()?;
        self.pass(time);
        self.crew.by_number(number)?.process.thaw()?;
        let when = Span {
            from,
            to: boot_time(),
        };
        self.notes.frozen.push((number, when));
        if self.store == Store::Sqlite {
            // It may stand still in the middle of a transaction, which locks the whole file.
            self.notes.outages.push(Outage { when, mute: false });
        }
        Ok(())
    }

    /// Runs `what` and records its period as an outage: the store is unavailable or slow in that time.
    pub(crate) fn outage(&mut self, what: impl FnOnce(&mut Self) -> Result<()>) -> Result<Span> {
        let from = boot_time();
        what(self)?;
        let when = Span {
            from,
            to: boot_time(),
        };
        self.notes.outages.push(Outage { when, mute: false });
        Ok(when)
    }

    /// As [`outage`](Self::outage), from `begin` to `end`; in between, the store sends nothing to any client.
    pub(crate) fn mute(
        &mut self,
        begin: impl FnOnce(&dyn World) -> Result<()>,
        time: Duration,
        end: impl FnOnce(&dyn World) -> Result<()>,
    ) -> Result<()> {
        let world = self.world;
        let mut silent = None;
        self.outage(|stage| {
            begin(world)?;
            let from = boot_time();
            stage.pass(time);
            let to = boot_time();
            silent = Some(Span { from, to });
            end(world)
        })?;
        let when = silent.context("it was not mute")?;
        self.notes.outages.push(Outage { when, mute: true });
        Ok(())
    }

    /// The store forgot everything, including its token counters, in this period.
    pub(crate) fn forgot(&mut self, when: Span) {
        self.harm(when, None, true, true);
    }

    /// As [`forgot`](Self::forgot), but the store only may have forgotten.
    pub(crate) fn may_have_forgotten(&mut self, when: Span) {
        self.harm(when, None, true, false);
    }

    /// The store may have ended every lease, but kept its token counters.
    pub(crate) fn may_have_freed(&mut self, when: Span) {
        self.harm(when, None, false, false);
    }

    /// As [`may_have_freed`](Self::may_have_freed), only these locks.
    pub(crate) fn may_have_freed_these(&mut self, when: Span, names: &[String]) {
        for name in names {
            self.harm(when, Some(name.clone()), false, false);
        }
    }

    /// The store forgot this lock, but kept its token counter. MariaDB keeps the counter in the deleted row, so it
    /// forgets both.
    pub(crate) fn forgot_lock(&mut self, when: Span, name: String) {
        let counted_there = self.store == Store::Mariadb;
        self.harm(when, Some(name), counted_there, true);
    }

    /// The store ended this lock by order, and kept its token counter.
    pub(crate) fn forced(&mut self, when: Span, name: String) {
        self.harm(when, Some(name), false, true);
    }

    fn harm(&mut self, when: Span, name: Option<String>, tokens: bool, sure: bool) {
        self.notes.harms.push(Harm {
            when,
            name,
            tokens,
            sure,
        });
    }

    /// The bound on the time from a fault until every process is served again.
    pub(crate) fn recovery(&self) -> Duration {
        RECOVERY.max(self.lease * RECOVERY_LEASES)
    }

    /// Waits until a process holds the lock of this role, and returns its number.
    pub(crate) fn holder(&mut self, role: Role) -> Result<u32> {
        self.crew
            .until("somebody holds the lock", self.recovery(), |crew| {
                crew.holder(role).is_some()
            })?;
        self.crew.holder(role).context("nobody holds it")
    }
}
