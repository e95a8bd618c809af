//! The partitions. Each is written once, for every topology.

use std::time::Duration;

use anyhow::{Context, Result};
use testkit::hosts::{Host, Partition};
use testkit::process::boot_time;

use super::clocks;
use crate::notes::{Outage, Span};
use crate::role::Role;
use crate::stage::{RECOVERY, Stage, Story};
use crate::worker::{Lie, Manner};
use crate::world::Spread;

/// A leader without its majority may confirm renewals until it notices: an etcd leader for two elections' timeouts, a
/// ZooKeeper leader for ten ticks.
const NOTICES: Duration = Duration::from_millis(1500);

/// Under Sentinel with `any`, this follower acknowledges what the primary grants until the network is whole.
pub(super) const WITH_FOLLOWER: &str = "leader isolated with a follower and a client";

/// One of each. The first twelve are those of a change; they have some of each sort.
pub(super) const KINDS: [Story; 22] = [
    Story::new("leader isolated", |stage| {
        part(stage, |stage, net| {
            let leaders = net.leaders(&stage.name(Role::Relay))?;
            Ok(Cut::between(net, &leaders))
        })
    }),
    clocks::SET_BACK,
    Story::new("flapping", flapping),
    Story::new("leader isolated with a client", |stage| {
        part(stage, |stage, net| {
            let mut side = net.leaders(&stage.name(Role::Relay))?;
            let victim = stage.victim()?;
            side.push(host(stage, victim)?);
            Ok(Cut::between(net, &side).deaf(&[victim], NOTICES))
        })
    }),
    Story::new(WITH_FOLLOWER, |stage| {
        part(stage, |stage, net| {
            let name = stage.name(Role::Relay);
            let mut side = [net.leaders(&name)?, net.followers(&name)?].concat();
            let victim = stage.victim()?;
            side.push(host(stage, victim)?);
            Ok(Cut::between(net, &side))
        })
    }),
    Story::new("follower isolated with a client", |stage| {
        part(stage, |stage, net| {
            let mut side = net.followers(&stage.name(Role::Relay))?;
            let victim = stage.victim()?;
            side.push(host(stage, victim)?);
            Ok(Cut::between(net, &side).deaf(&[victim], NOTICES))
        })
    }),
    Story::new("leader sends nothing", |stage| {
        part(stage, |stage, net| {
            let leaders = net.leaders(&stage.name(Role::Relay))?;
            Ok(Cut::new(Partition::one_way(
                &leaders,
                &net.all_but(&leaders),
            )))
        })
    }),
    clocks::FAST_BEYOND,
    Story::new("no majority", |stage| {
        part(stage, |_, net| {
            let cut = if net.is_independent() {
                Cut::new(Partition::between(&net.servers()[..3], net.clients()))
            } else {
                Cut::new(Partition::each_alone(net.servers()))
            };
            Ok(cut.deaf(&[1, 2, 3], NOTICES))
        })
    }),
    Story::new("leader hidden from servers", |stage| {
        part(stage, |stage, net| {
            let leaders = net.leaders(&stage.name(Role::Relay))?;
            Ok(Cut::new(Partition::between(&leaders, net.servers())))
        })
    }),
    clocks::FAST_WITHIN,
    Story::new("leader hidden from a client", |stage| {
        part(stage, |stage, net| {
            let leaders = net.leaders(&stage.name(Role::Relay))?;
            let victim = stage.victim()?;
            let victim = [host(stage, victim)?];
            Ok(Cut::new(Partition::between(&leaders, &victim)))
        })
    }),
    Story::new("client isolated", |stage| {
        part(stage, |stage, net| {
            let victim = stage.victim()?;
            let side = [host(stage, victim)?];
            let mut cut = Cut::between(net, &side).deaf(&[victim], Duration::ZERO);
            cut.only = Some(victim);
            Ok(cut)
        })
    }),
    Story::new("client hears nothing", |stage| {
        part(stage, |stage, net| {
            let victim = stage.victim()?;
            let side = [host(stage, victim)?];
            let cut = Cut::new(Partition::one_way(&net.all_but(&side), &side));
            Ok(cut.deaf(&[victim], Duration::ZERO))
        })
    }),
    Story::new("leader hears nothing", |stage| {
        part(stage, |stage, net| {
            let leaders = net.leaders(&stage.name(Role::Relay))?;
            Ok(Cut::new(Partition::one_way(
                &net.all_but(&leaders),
                &leaders,
            )))
        })
    }),
    Story::new("host of a client vanishes", vanish),
    Story::new("leader slow", slow),
    clocks::SET_AHEAD,
    clocks::SLOW_WITHIN,
    clocks::SLOW_BEYOND,
    clocks::NEXT_AHEAD,
    clocks::CLIENT_SET,
];

/// A partition, and the processes to which it leaves nobody who can confirm a lock.
struct Cut {
    partition: Partition,
    deaf: Vec<u32>,
    /// How long after its begin nobody can.
    after: Duration,
    /// The only process that it concerns. The others must not notice it.
    only: Option<u32>,
}

impl Cut {
    fn new(partition: Partition) -> Self {
        Self {
            partition,
            deaf: Vec::new(),
            after: Duration::ZERO,
            only: None,
        }
    }

    fn between(net: &Spread, side: &[Host]) -> Self {
        Self::new(Partition::between(side, &net.all_but(side)))
    }

    fn deaf(mut self, processes: &[u32], after: Duration) -> Self {
        (self.deaf, self.after) = (processes.to_vec(), after);
        self
    }
}

/// The moment before a fault.
pub(super) struct Begun {
    pub(super) at: Duration,
    failovers: u64,
    elections: u64,
}

impl Begun {
    pub(super) fn now(stage: &mut Stage, net: &Spread) -> Result<Self> {
        stage.note_elections()?;
        let (failovers, elections) = (net.failovers()?, net.elections()?);
        let at = boot_time();
        Ok(Self {
            at,
            failovers,
            elections,
        })
    }
}

pub(super) fn host(stage: &Stage, process: u32) -> Result<Host> {
    let host = stage.crew.host(process);
    Ok(host.context("it has no host of its own")?.clone())
}

/// Waits for a random moment at which a task has a lock in this manner.
pub(super) fn moment(stage: &mut Stage, manner: Manner) -> Result<()> {
    stage.crew.behave(manner)?;
    // A hold that has begun before ends within a lease.
    let lease = u64::try_from(stage.lease.as_millis())?;
    let moment = stage.between(lease * 9 / 10, lease * 3 / 2);
    stage.pass(moment);
    Ok(())
}

/// One to three leases.
pub(super) fn some_leases(stage: &mut Stage) -> Duration {
    let leases = match stage.lie {
        Lie::None => 1.0 + 2.0 * stage.rng.f64(),
        // A planted bug needs time to show.
        _ => 3.0,
    };
    stage.lease.mul_f64(leases)
}

/// Parts the network at a random moment, for one to three leases.
fn part(stage: &mut Stage, plan: impl FnOnce(&mut Stage, &Spread) -> Result<Cut>) -> Result<()> {
    let net = stage.spread()?;
    moment(stage, Manner::Long)?;
    let time = some_leases(stage);
    let cut = plan(stage, net)?;
    let begun = Begun::now(stage, net)?;
    net.network.cut(&cut.partition)?;
    let complete = boot_time();
    stage.pass(time);
    let to = boot_time();
    for process in cut.deaf {
        let from = complete + cut.after;
        stage.notes.deaf.push((process, Span { from, to }));
    }
    recover(stage, &begun, cut.only)
}

/// A client is killed, and nothing tells the servers: its host does not even close the connections.
fn vanish(stage: &mut Stage) -> Result<()> {
    let net = stage.spread()?;
    moment(stage, Manner::Long)?;
    let victim = stage.victim()?;
    let side = [host(stage, victim)?];
    let begun = Begun::now(stage, net)?;
    net.network
        .cut(&Partition::between(&side, &net.all_but(&side)))?;
    let member = stage.crew.by_number(victim)?;
    member.alive = false;
    member.process.kill()?;
    stage.notes.killed.push((victim, boot_time()));
    stage.pass(stage.lease.mul_f64(1.5));
    net.network.heal()?;
    stage.crew.reinforce()?;
    recover(stage, &begun, Some(victim))
}

/// The leaders are cut off and reached again, in quick and irregular turns.
fn flapping(stage: &mut Stage) -> Result<()> {
    moment(stage, Manner::Long)?;
    let net = stage.spread()?;
    let leaders = net.leaders(&stage.name(Role::Relay))?;
    let partition = Partition::between(&leaders, &net.all_but(&leaders));
    let begun = Begun::now(stage, net)?;
    while boot_time() < begun.at + stage.lease * 3 {
        net.network.cut(&partition)?;
        let cut = stage.between(20, 900);
        stage.pass(cut);
        net.network.heal()?;
        let whole = stage.between(20, 500);
        stage.pass(whole);
    }
    recover(stage, &begun, None)
}

/// Everything that goes to the leaders is slow.
fn slow(stage: &mut Stage) -> Result<()> {
    moment(stage, Manner::Long)?;
    let net = stage.spread()?;
    let by = stage.between(50, 400);
    let begun = Begun::now(stage, net)?;
    for leader in net.leaders(&stage.name(Role::Relay))? {
        net.network.slow_down(&leader, by)?;
    }
    stage.pass(stage.lease * 2);
    recover(stage, &begun, None)
}

/// Makes the network whole, and waits until every process has its locks again and the servers are as before.
pub(super) fn recover(stage: &mut Stage, begun: &Begun, only: Option<u32>) -> Result<()> {
    let net = stage.spread()?;
    net.network.heal()?;
    stage.crew.behave(Manner::Usual)?;
    let (from, healed) = (begun.at, boot_time());
    stage.notes.parted = Some(Span { from, to: healed });
    let served = stage.crew.until_served(healed, RECOVERY);
    let served_after = boot_time().saturating_sub(healed);
    let mended = stage.world.mend();
    let to = boot_time();
    let when = Span { from, to };
    // Without an election in between, or the machine was so busy that the servers took each other for dead.
    let undisturbed = net.elections().is_ok_and(|now| now == begun.elections);
    stage.notes.disturbed |= only.is_some() && !undisturbed;
    match only.filter(|_| undisturbed) {
        Some(process) => stage.notes.cut_off.push((process, when)),
        None => stage.notes.outages.push(Outage { when, mute: false }),
    }
    if !stage.all_replicas && net.failovers()? > begun.failovers {
        // The promoted replica may be the one that had not acknowledged. Until the old primary has stepped down, both
        // may grant.
        stage.may_have_forgotten(when);
    }
    served?;
    stage.notes.served_after = Some(served_after);
    mended?;
    stage.well = Some((to, net.elections()?));
    Ok(())
}
