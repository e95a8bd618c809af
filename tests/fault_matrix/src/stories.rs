//! The faults. Each is written once, for every store that can have it.

mod ground;

use std::time::Duration;

use anyhow::{Context, Result};
use testkit::process::boot_time;
use testkit::proxy::{Mode, Proxy, Then, Way, When};

use crate::notes::Span;
use crate::role::Role;
use crate::stage::{Stage, Story};
use crate::store::Store;
use crate::world::{Deed, On};

pub(crate) use self::ground::{
    CLOCK_SET, DISK_FULL, PASSWORD_CHANGED, PASSWORD_UNKNOWN, QUOTA_USED_UP,
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const CALM: Story = {
    let mut story = Story::keeping("calm", |stage| {
        stage.pass(stage.lease);
        Ok(())
    });
    story.calm = true;
    story
};

/// Three hundred tasks wait for one lock.
pub(crate) const CROWD: Story = {
    let mut story = Story::keeping("crowd", |stage| {
        stage.pass(stage.lease * 2);
        Ok(())
    });
    story.crowd = 100;
    story
};

pub(crate) const HOLDER_KILLED: Story = Story::new("holder killed", |stage| {
    for role in stage.roles(&[Role::Relay, Role::Trader, Role::Candidate, Role::Ticker]) {
        let number = stage.holder(role)?;
        let member = stage.crew.by_number(number)?;
        member.alive = false;
        member.process.kill()?;
        stage.notes.killed.push((number, boot_time()));
        stage.crew.reinforce()?;
    }
    Ok(())
});

pub(crate) const HOLDER_FROZEN: Story = Story::new("holder frozen", |stage| {
    for role in stage.roles(&[Role::Relay, Role::Candidate, Role::Ticker]) {
        let number = stage.holder(role)?;
        stage.freeze(number, stage.lease * 2)?;
    }
    Ok(())
});

/// A waiting process is frozen for longer than a lease, several times. The random pause makes some freezes hit a
/// request in flight.
pub(crate) const WAITER_FROZEN: Story = Story::new("waiter frozen", |stage| {
    for _ in 0..4 {
        let holder = stage.holder(Role::Relay)?;
        let mut members = stage.crew.members.iter();
        let waits = members.find(|member| member.alive && member.number != holder);
        let number = waits.context("nobody waits")?.number;
        let pause = stage.between(0, 30);
        stage.pass(pause);
        stage.freeze(number, stage.lease.mul_f64(1.5))?;
        let served = boot_time();
        let recovery = stage.recovery();
        stage.crew.until_served(served, recovery)?;
    }
    Ok(())
});

pub(crate) const EXECUTOR_BLOCKED: Story = Story::keeping("executor blocked", |stage| {
    let number = stage.holder(Role::Relay)?;
    // Not longer: a queue may stand behind a waiter of this process, whose session goes on.
    let time = stage.lease + ms(1000);
    let from = boot_time();
    let process = &mut stage.crew.by_number(number)?.process;
    process.write_line(&format!("block {}", time.as_millis()))?;
    process.wait_line("unblocked", time * 4)?;
    let to = boot_time();
    // The tasks of the process stood still, but its leases did not: the renewals do not run on the blocked executor.
    stage.notes.frozen.push((number, Span { from, to }));
    Ok(())
});

pub(crate) const SERVER_FROZEN_SHORTLY: Story = Story::keeping("server frozen shortly", |stage| {
    stage.mute(
        |world| world.freeze(),
        stage.lease / 3,
        |world| world.thaw(),
    )
});

pub(crate) const SERVER_FROZEN: Story = Story::new("server frozen", |stage| {
    stage.mute(
        |world| world.freeze(),
        stage.lease * 2,
        |world| world.thaw(),
    )
});

pub(crate) const SERVER_EMPTIED: Story = Story::new("server emptied", |stage| {
    let world = stage.world;
    let when = stage.outage(|_| world.restart(true))?;
    stage.forgot(when);
    Ok(())
});

pub(crate) const SERVER_RESTARTED: Story = Story::new("server restarted", |stage| {
    let world = stage.world;
    stage.outage(|_| world.restart(false)).map(drop)
})
.on(On::Durable);

fn all(stage: &Stage, order: impl Fn(&Proxy)) {
    stage.world.proxies().into_iter().for_each(order);
}

pub(crate) const HALF_OPEN: Story = Story::new("half-open", |stage| {
    stage.mute(
        |world| {
            world
                .proxies()
                .iter()
                .for_each(|proxy| proxy.set_both(Mode::Drop));
            Ok(())
        },
        stage.lease.mul_f64(1.5),
        |world| {
            for proxy in world.proxies() {
                proxy.set_both(Mode::Pass);
                proxy.cut();
            }
            Ok(())
        },
    )
});

fn slow(stage: &mut Stage, each_way: Duration) -> Result<()> {
    stage.outage(|stage| {
        all(stage, |proxy| proxy.set_both(Mode::Delay(each_way)));
        stage.pass(stage.lease * 2);
        all(stage, |proxy| proxy.set_both(Mode::Pass));
        Ok(())
    })?;
    Ok(())
}

pub(crate) const SLOW_50: Story = Story::keeping("slow 50 ms", |stage| slow(stage, ms(50)));
pub(crate) const SLOW_200: Story = Story::new("slow 200 ms", |stage| slow(stage, ms(200)));
pub(crate) const SLOW_900: Story = Story::new("slow 900 ms", |stage| slow(stage, ms(900)));

/// Replies are lost at random moments, for any request.
pub(crate) const REPLIES_LOST: Story = Story::new("replies lost", |stage| {
    stage.outage(|stage| {
        for _ in 0..12 {
            all(stage, |proxy| proxy.set(Way::ToClient, Mode::Drop));
            let silent = stage.between(1, 80);
            stage.pass(silent);
            all(stage, |proxy| {
                proxy.cut();
                proxy.set(Way::ToClient, Mode::Pass);
            });
            let until_next = stage.between(50, 250);
            stage.pass(until_next);
        }
        Ok(())
    })?;
    Ok(())
});

pub(crate) const RESETS: Story = Story::new("resets", |stage| {
    stage.outage(|stage| {
        let end = boot_time() + stage.lease;
        while boot_time() < end {
            all(stage, |proxy| {
                proxy.cut();
            });
            stage.pass(ms(20));
        }
        Ok(())
    })?;
    Ok(())
});

/// The same fault as `RESETS`, for stores that have no proxy in front of the servers.
pub(crate) const KILLED_CONNECTIONS: Story = Story::new("connections killed", |stage| {
    again_and_again(stage, Deed::CutAll, ms(20))
});

/// Connections end now and then, as when a database operator or a firewall cuts them.
pub(crate) const TERMINATED: Story = Story::keeping("sessions terminated", |stage| {
    for _ in 0..3 {
        operate(stage, Deed::CutAll)?;
        stage.pass(ms(400));
    }
    Ok(())
});

pub(crate) const LISTENERS_CUT: Story = Story::keeping("listeners cut", |stage| {
    again_and_again(stage, Deed::CutListeners, ms(100))
});

fn operate(stage: &mut Stage, deed: Deed) -> Result<()> {
    let (world, name) = (stage.world, stage.name(Role::Relay));
    stage.outage(|_| world.operate(deed, &name)).map(drop)
}

fn again_and_again(stage: &mut Stage, deed: Deed, pause: Duration) -> Result<()> {
    let (world, name) = (stage.world, stage.name(Role::Relay));
    stage.outage(|stage| {
        let end = boot_time() + stage.lease;
        while boot_time() < end {
            world.operate(deed, &name)?;
            stage.pass(pause);
        }
        Ok(())
    })?;
    Ok(())
}

/// Messages to subscribers get lost while the connection stays up.
pub(crate) const MESSAGES_LOST: Story = Story::keeping("messages lost", |stage| {
    stage.outage(|stage| {
        let proxies = stage.world.proxies();
        let lose = |proxy: &&Proxy| proxy.on_each(When::push(""), Then::Drop);
        let rules: Vec<_> = proxies.iter().map(lose).collect();
        stage.pass(stage.lease * 2);
        rules.iter().for_each(testkit::proxy::Rule::remove);
        Ok(())
    })?;
    Ok(())
});

fn paused(stage: &mut Stage, time: Duration) -> Result<()> {
    let (world, name) = (stage.world, stage.name(Role::Relay));
    stage.outage(|stage| {
        world.operate(Deed::Pause(time), &name)?;
        stage.pass(time);
        Ok(())
    })?;
    Ok(())
}

pub(crate) const PAUSED_SHORTLY: Story =
    Story::keeping("paused shortly", |stage| paused(stage, stage.lease / 4));
pub(crate) const PAUSED: Story = Story::new("paused", |stage| paused(stage, stage.lease * 2));

/// For 1.2 seconds, of a lease of two; each primary of a cluster for half of that.
pub(crate) const ASLEEP: Story = Story::keeping("asleep", |stage| operate(stage, Deed::Sleep));

/// The primary is paused for so long that another server becomes the primary.
pub(crate) const PAUSED_UNTIL_REPLACED: Story = Story::new("paused until replaced", |stage| {
    let time = stage.lease * 2;
    let when = stage.outage(|stage| {
        let (world, name) = (stage.world, stage.name(Role::Relay));
        world.operate(Deed::Pause(time), &name)?;
        stage.pass(time);
        world.mend()
    })?;
    stage.may_have_forgotten(when);
    Ok(())
});
pub(crate) const ASLEEP_UNTIL_REPLACED: Story = Story::new("asleep until replaced", |stage| {
    replaced(stage, Deed::Sleep, true)
});

pub(crate) const SCRIPTS_FORGOTTEN: Story = {
    let mut story = Story::keeping("scripts forgotten", |stage| {
        again_and_again(stage, Deed::ForgetScripts, ms(50))
    });
    story.calm = true;
    story
};

pub(crate) const LOCK_DELETED: Story = Story::new("lock deleted", |stage| {
    for _ in 0..3 {
        stage.holder(Role::Relay)?;
        let name = stage.name(Role::Relay);
        let from = boot_time();
        stage.world.wipe(&name)?;
        let to = boot_time();
        stage.forgot_lock(Span { from, to }, name);
        stage.pass(stage.lease / 2);
    }
    Ok(())
});

pub(crate) const FLUSHED: Story = Story::new("flushed", |stage| {
    let name = stage.name(Role::Relay);
    let from = boot_time();
    stage.world.operate(Deed::Flush, &name)?;
    let to = boot_time();
    stage.forgot(Span { from, to });
    Ok(())
});

pub(crate) const FAILOVER: Story =
    Story::new("planned failover", |stage| operate(stage, Deed::Failover));

/// A failover. Until all clients have left the old primary and it has stepped down, both primaries may grant the same
/// lock.
fn replaced(stage: &mut Stage, deed: Deed, forgets: bool) -> Result<()> {
    let (world, name) = (stage.world, stage.name(Role::Relay));
    let when = stage.outage(|_| {
        world.operate(deed, &name)?;
        world.mend()
    })?;
    if forgets {
        stage.may_have_forgotten(when);
    }
    Ok(())
}

const fn with_all(mut story: Story) -> Story {
    story.all_replicas = true;
    story
}

/// A failover loses grants that reached only the dead primary, or only replicas that were not promoted.
pub(crate) const CRASH: Story =
    Story::new("primary killed", |stage| replaced(stage, Deed::Crash, true));
pub(crate) const HANG: Story =
    Story::new("primary frozen", |stage| replaced(stage, Deed::Hang, true));
/// Sentinels promote a replica without waiting for replication.
pub(crate) const FAILOVER_BY_SENTINELS: Story = Story::new("failover by order", |stage| {
    replaced(stage, Deed::Failover, true)
});

/// With `all_replicas`, the promoted replica had acknowledged every grant, so the failover loses none.
pub(crate) const CRASH_ALL: Story = with_all(Story::new("primary killed, all", |stage| {
    replaced(stage, Deed::Crash, false)
}));
pub(crate) const HANG_ALL: Story = with_all(Story::new("primary frozen, all", |stage| {
    replaced(stage, Deed::Hang, false)
}));
pub(crate) const FAILOVER_ALL: Story = with_all(Story::new("failover by order, all", |stage| {
    replaced(stage, Deed::Failover, false)
}));

/// The only replica of the shard had acknowledged every grant.
pub(crate) const SHARD_CRASH: Story = Story::new("shard's primary killed", |stage| {
    replaced(stage, Deed::Crash, false)
});
pub(crate) const SHARD_HANG: Story = Story::new("shard's primary frozen", |stage| {
    replaced(stage, Deed::Hang, false)
});

pub(crate) const LOCKS_MOVED: Story = Story::keeping("locks moved", |stage| {
    for _ in 0..2 {
        operate(stage, Deed::MoveLocks)?;
        stage.pass(stage.lease / 2);
    }
    Ok(())
});

pub(crate) const ONE_FROZEN: Story = Story::keeping("one of five frozen", |stage| some(stage, 1));
pub(crate) const TWO_FROZEN: Story = Story::keeping("two of five frozen", |stage| some(stage, 2));
pub(crate) const THREE_FROZEN: Story = Story::new("three of five frozen", |stage| some(stage, 3));

fn some(stage: &mut Stage, count: usize) -> Result<()> {
    let world = stage.world;
    stage.outage(|stage| {
        world.freeze_some(count)?;
        stage.pass(stage.lease * 2);
        world.thaw()
    })?;
    Ok(())
}

/// Empties one server after another, with two leases in between: the holders restore their locks on it, and it votes again
/// before the next one is emptied. Without the restart guard two clients could get a majority, the second one with the vote of
/// a server that has forgotten the first.
pub(crate) const ONE_EMPTIED: Story = {
    let mut story = Story::keeping("one of five emptied", |stage| {
        for which in 0..3 {
            stage.world.empty_one(which)?;
            stage.pass(stage.lease * 2);
        }
        Ok(())
    });
    story.restart_guard = true;
    story
};

pub(crate) const CLOCKS_MOVED: Story = {
    let mut story = Story::keeping("clocks moved", |stage| {
        for ahead in [3600, -3600, 0] {
            let from = boot_time();
            stage.crew.shift_clocks(ahead)?;
            if stage.store == Store::Sqlite {
                // A lock file has no clock but those of its users. A mark of a job ends by them, and the jobs of a run keep
                // theirs for less than an hour.
                let to = boot_time();
                stage.notes.marks_forgotten.push(Span { from, to });
            }
            stage.pass(stage.lease / 2);
        }
        Ok(())
    });
    story.fake_clock = true;
    story
};
