//! Faults of a server's environment: its disk, its clock, and its password.

use anyhow::{Result, ensure};
use testkit::process::boot_time;

use super::{all, operate};
use crate::notes::Span;
use crate::role::Role;
use crate::stage::{Stage, Story};
use crate::store::Store;
use crate::world::{Deed, On};

/// One minute in seconds, far more than any lease here.
const MINUTE: i64 = 60;

/// Between the two deeds, the store accepts no writes or is not running.
fn without(stage: &mut Stage, from: Deed, to: Deed) -> Result<()> {
    let (world, name) = (stage.world, stage.name(Role::Relay));
    stage.outage(|stage| {
        world.operate(from, &name)?;
        stage.pass(stage.lease * 2);
        world.operate(to, &name)?;
        if stage.store == Store::Etcd {
            // etcd starts every lease again at its full length after a restart, so we wait one more lease.
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

/// Every lease that the wall clock limits ends at once.
fn set_ahead(stage: &mut Stage) -> Result<()> {
    let from = boot_time();
    operate(stage, Deed::SetClock(MINUTE))?;
    let to = boot_time();
    // etcd limits leases by its monotonic clock, so none ends early.
    if stage.store != Store::Etcd {
        stage.may_have_freed(Span { from, to });
    }
    Ok(())
}

/// The clock goes a minute ahead, back again, and ahead. A holder dies while its lease has a minute more to run. No
/// waiter waits that long, and the jump that ends the lease wakes the waiters in time.
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

/// From here on the server refuses the old password. We cut the connections so that every client logs in again.
fn change(stage: &mut Stage, password: &'static str) -> Result<()> {
    operate(stage, Deed::SetPassword(password))?;
    all(stage, |proxy| {
        proxy.cut();
    });
    Ok(())
}

/// The good order: all clients get the new password before the change.
pub(crate) const PASSWORD_CHANGED: Story = Story::keeping("password changed", |stage| {
    operate(stage, Deed::TellPassword("second"))?;
    stage.outage(|stage| change(stage, "second"))?;
    stage.pass(stage.lease * 2);
    Ok(())
})
.on(On::Guarded);

/// The clients get the new password only after their leases have ended. Until then the server refuses them.
pub(crate) const PASSWORD_UNKNOWN: Story = Story::new("password unknown", |stage| {
    let since = boot_time();
    stage.outage(|stage| {
        change(stage, "third")?;
        stage.pass(stage.lease * 2);
        operate(stage, Deed::TellPassword("third"))?;
        // Callers that ask now share the login that is under way with the old password, and are refused with it.
        stage.pass(stage.lease / 4);
        Ok(())
    })?;
    stage.crew.refresh()?;
    let refused = stage.crew.failed(since, "Refused");
    ensure!(refused > 0, "nobody was told that it is the password");
    Ok(())
})
.on(On::Guarded);
