//! The clocks of single hosts: set ahead or back, or running fast or slow, within the drift that the library allows for
//! and beyond it.

use std::time::Duration;

use anyhow::{Context, Result};
use testkit::hosts::Partition;
use testkit::process::{boot_time, right_clocks, run_clocks, shift_wall_clock};

use super::kinds::{Begun, host, moment, recover, some_leases};
use crate::crew::Crew;
use crate::notes::{Early, Span};
use crate::role::Role;
use crate::stage::{RECOVERY, Stage, Story};
use crate::worker::{Lie, Manner};
use crate::world::{Spread, Topology};

/// By how much a clock is set: two leases, in seconds.
const STEP: i64 = 4;

/// By how much the clock of a client is set, in seconds.
const HOUR: i64 = 3600;

/// The drift that the library allows for is 1 % of the lease and 2 ms. This rate leaves 4 ms of a lease of 2 s.
const WITHIN: f64 = 1.009;

/// Beyond the drift: a lease of 2 s ends after 1.6 s.
const FAST: f64 = 1.25;

/// A lease of 2 s ends 18 ms late.
const SLOWLY: f64 = 0.991;

const SLOW: f64 = 0.8;

pub(super) const SET_AHEAD: Story =
    Story::new("leader's clock set ahead", |stage| set(stage, STEP));

pub(super) const SET_BACK: Story = Story::new("leader's clock set back", |stage| set(stage, -STEP));

/// The next leader counts the leases that it takes over by another clock.
pub(super) const NEXT_AHEAD: Story =
    Story::new("followers' clocks ahead, leader isolated", |stage| {
        moment(stage, Manner::Long)?;
        let net = stage.spread()?;
        let name = stage.name(Role::Relay);
        let leaders = net.leaders(&name)?;
        // One server of five frees nothing.
        let freed = if net.is_independent() {
            Vec::new()
        } else {
            counted_there(stage, net, &name)?
        };
        let begun = Begun::now(stage, net)?;
        let changed = set_all(&net.next_clocks(&name)?, STEP)?;
        net.network
            .cut(&Partition::between(&leaders, &net.all_but(&leaders)))?;
        let time = some_leases(stage);
        stage.pass(time);
        net.network.heal()?;
        changed.right()?;
        let (from, to) = (begun.at, boot_time());
        stage.may_have_freed_these(Span { from, to }, &freed);
        recover(stage, &begun, None)?;
        outlive(stage, STEP)
    });

pub(super) const FAST_WITHIN: Story = eager(Story::new(
    "leader's clock fast within the drift, client isolated",
    |stage| {
        if stage.lie == Lie::FastClock {
            race(stage, FAST, Duration::ZERO)
        } else {
            race(stage, WITHIN, Duration::ZERO)
        }
    },
));

pub(super) const FAST_BEYOND: Story = eager(Story::new(
    "leader's clock fast beyond the drift, client isolated",
    |stage| {
        let early = stage.lease.saturating_sub(stage.lease.div_f64(FAST));
        race(stage, FAST, early)
    },
));

pub(super) const SLOW_WITHIN: Story = eager(Story::new(
    "leader's clock slow within the drift, client isolated",
    |stage| race(stage, SLOWLY, Duration::ZERO),
));

pub(super) const SLOW_BEYOND: Story = eager(Story::new(
    "leader's clock slow beyond the drift, client isolated",
    |stage| race(stage, SLOW, Duration::ZERO),
));

/// Only the leases matter to a client, and it counts them by its boot clock.
pub(super) const CLIENT_SET: Story = Story::new("client's clock set", |stage| {
    moment(stage, Manner::Long)?;
    let net = stage.spread()?;
    let victim = stage.victim()?;
    let begun = Begun::now(stage, net)?;
    let pid = stage.crew.by_number(victim)?.process.pid();
    let changed = Changed(vec![pid]);
    for ahead in [HOUR, -HOUR] {
        shift_wall_clock(pid, ahead)?;
        stage.pass(stage.lease);
    }
    changed.right()?;
    recover(stage, &begun, Some(victim))
});

/// Whether the clocks of these programs can be made to run at another rate. A JVM sleeps until instants of its monotonic
/// clock, and the kernel counts those by the true one.
pub(super) fn can_run(story: &Story, topology: Topology) -> bool {
    let paced = [FAST_WITHIN, FAST_BEYOND, SLOW_WITHIN, SLOW_BEYOND];
    topology != Topology::Zookeeper || paced.iter().all(|it| it.name != story.name)
}

/// The tasks of these runs keep a lock until they lose it, and ask for one again and again: otherwise nobody would act, and
/// nobody ask, at the moment at which the lease ends early.
const fn eager(mut story: Story) -> Story {
    story.eager = true;
    story
}

/// Processes whose clocks are changed. Drop puts them right.
struct Changed(Vec<u32>);

impl Changed {
    fn right(mut self) -> Result<()> {
        std::mem::take(&mut self.0)
            .into_iter()
            .try_for_each(right_clocks)
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        for pid in &self.0 {
            // The run fails for another reason, and its servers with it.
            let _ = right_clocks(*pid);
        }
    }
}

fn set_all(pids: &[u32], seconds: i64) -> Result<Changed> {
    let changed = Changed(pids.to_vec());
    for pid in pids {
        shift_wall_clock(*pid, seconds)?;
    }
    Ok(changed)
}

/// The locks whose leases count by the same wall clocks as this one.
fn counted_there(stage: &Stage, net: &Spread, name: &str) -> Result<Vec<String>> {
    if !net.counts_by_wall_clocks() {
        return Ok(Vec::new());
    }
    let there = net.leaders(name)?;
    let mut found = Vec::new();
    for other in stage.names() {
        if net.leaders(&other)? == there {
            found.push(other);
        }
    }
    Ok(found)
}

/// The wall clock is set, and later set right. Leases end early when it moves ahead.
fn set(stage: &mut Stage, seconds: i64) -> Result<()> {
    moment(stage, Manner::Long)?;
    let net = stage.spread()?;
    let name = stage.name(Role::Relay);
    let locks = counted_there(stage, net, &name)?;
    let begun = Begun::now(stage, net)?;
    let changed = set_all(&net.clocks(&name)?, seconds)?;
    let moved = boot_time();
    let time = some_leases(stage);
    stage.pass(time);
    let right = boot_time();
    changed.right()?;
    let freed = if seconds > 0 {
        Span {
            from: begun.at,
            to: moved,
        }
    } else {
        Span {
            from: right,
            to: boot_time(),
        }
    };
    stage.may_have_freed_these(freed, &locks);
    recover(stage, &begun, None)?;
    outlive(stage, seconds)
}

/// What was written while the clock was ahead by so many seconds lasts that much longer. Nothing of it may meet the next
/// run.
fn outlive(stage: &mut Stage, seconds: i64) -> Result<()> {
    let time = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    stage.outage(|stage| {
        stage.pass(time);
        Ok(())
    })?;
    Ok(())
}

/// The servers' clocks run at another rate, and the client that has just got the lock is cut off: does the lease end in the
/// store before the client knows? It may end by `early` before.
fn race(stage: &mut Stage, rate: f64, early: Duration) -> Result<()> {
    moment(stage, Manner::Eager)?;
    let net = stage.spread()?;
    let name = stage.name(Role::Relay);
    let locks = counted_there(stage, net, &name)?;
    let begun = Begun::now(stage, net)?;
    let clocks = net.clocks(&name)?;
    let changed = Changed(clocks.clone());
    for pid in &clocks {
        run_clocks(*pid, rate)?;
    }
    let since = boot_time();
    let fresh = |crew: &Crew| {
        let taken = crew.taken(Role::Relay);
        taken.filter(|(at, _)| *at > since)
    };
    stage
        .crew
        .until("somebody gets the lock", RECOVERY, |crew| {
            fresh(crew).is_some()
        })?;
    let (_, victim) = fresh(&stage.crew).context("nobody has got it")?;
    let side = [host(stage, victim)?];
    net.network
        .cut(&Partition::between(&side, &net.all_but(&side)))?;
    let from = boot_time();
    stage.pass(stage.lease * 2);
    let to = boot_time();
    let when = Span { from, to };
    stage.notes.deaf.push((victim, when));
    stage.notes.early.push(Early {
        process: victim,
        when,
        by: early,
    });
    net.network.heal()?;
    let right = boot_time();
    changed.right()?;
    if rate < 1.0 {
        // The wall clock moves ahead to the true time.
        stage.may_have_freed_these(
            Span {
                from: right,
                to: boot_time(),
            },
            &locks,
        );
    }
    recover(stage, &begun, Some(victim))?;
    outlive(stage, 2)
}
