//! What happens to a server by what it stands on: its disk, its clock, and whom it lets in.

use anyhow::{Result, ensure};
use proofs::boot_time;

use super::{all, operate};
use crate::notes::Span;
use crate::stage::{Stage, Story};
use crate::store::Store;
use crate::worker::Role;
use crate::world::{Deed, On};

/// A minute, far more than any lease here.
const MINUTE: i64 = 60;

/// From one deed to another the store takes no changes, or is not there at all.
fn without(stage: &mut Stage, from: Deed, to: Deed) -> Result<()> {
    let (world, name) = (stage.world, stage.name(Role::Relay));
    stage.outage(|stage| {
        world.operate(from, &name)?;
        stage.pass(stage.lease * 2);
        world.operate(to, &name)?;
        if stage.store == Store::Etcd {
            // When it is started again, every lease there has its whole length once more.
            stage.pass(stage.lease);
        }
        Ok(())
    })?;
    Ok(())
}

pub(crate) const DISK_FULL: Story = Story::new("disk full", |stage| {
    without(stage, Deed::FillDisk, Deed::MakeRoom)
})
.on(On::SmallDisk);

pub(crate) const QUOTA_USED_UP: Story = Story::new("quota used up", |stage| {
    without(stage, Deed::UseUpQuota, Deed::FreeQuota)
})
.on(On::SmallDisk);

/// Whatever ends by it is suddenly over.
fn set_ahead(stage: &mut Stage) -> Result<()> {
    let from = boot_time();
    operate(stage, Deed::SetClock(MINUTE))?;
    let to = boot_time();
    // etcd ends no lease before it is over by its monotonic clock.
    if stage.store != Store::Etcd {
        stage.may_have_freed(Span { from, to });
    }
    Ok(())
}

/// A minute ahead, back again, and ahead. A holder dies while what it held would last for a minute more: nobody waits as
/// long, and whoever waits does not sleep through the end of it.
pub(crate) const CLOCK_SET: Story = Story::new("server's clock set", |stage| {
    set_ahead(stage)?;
    stage.pass(stage.lease);
    let number = stage.holder(Role::Relay)?;
    stage.outage(|stage| {
        operate(stage, Deed::SetClock(0))?;
        let member = stage.crew.by_number(number)?;
        member.alive = false;
        member.process.kill()?;
        stage.notes.killed.push((number, boot_time()));
        stage.pass(stage.lease * 2);
        set_ahead(stage)
    })?;
    stage.crew.reinforce()
})
.on(On::OwnClock);

/// The server lets in nobody with the password there was before.
fn change(stage: &mut Stage, password: &'static str) -> Result<()> {
    operate(stage, Deed::SetPassword(password))?;
    all(stage, |proxy| {
        proxy.cut();
    });
    Ok(())
}

/// Done well: all were told of the new password before.
pub(crate) const PASSWORD_CHANGED: Story = Story::keeping("password changed", |stage| {
    operate(stage, Deed::TellPassword("second"))?;
    stage.outage(|stage| change(stage, "second"))?;
    stage.pass(stage.lease * 2);
    Ok(())
})
.on(On::Guarded);

/// They are told later than their leases last; until then they are refused.
pub(crate) const PASSWORD_UNKNOWN: Story = Story::new("password unknown", |stage| {
    let since = boot_time();
    stage.outage(|stage| {
        change(stage, "third")?;
        stage.pass(stage.lease * 2);
        operate(stage, Deed::TellPassword("third"))
    })?;
    stage.crew.refresh()?;
    let refused = stage.crew.failed(since, "Refused");
    ensure!(refused > 0, "nobody was told that it is the password");
    Ok(())
})
.on(On::Guarded);
