//! The sides of a read-write lock.

use anyhow::Result;
use fastrand::Rng;
use tidelock::Client;

use super::name;
use crate::World;
use crate::hold::{acquire, briefly, part_with};
use crate::record::{Kind, Mode, What};

pub(super) async fn read(world: &World, client: &Client, number: u16, rng: &mut Rng) -> Result<()> {
    let side = client.read_write_lock(&name(Kind::Read, number)).read();
    let Some(guard) = acquire(world, Kind::Read, &side, rng).await? else {
        return Ok(());
    };
    let claim = world.bench.claim(Kind::Read, number, Mode::Reads, 1);
    claim.enter(&guard)?;
    briefly(rng).await;
    claim.leave(&guard)?;
    part_with(guard, rng).await;
    Ok(())
}

/// Writes, and in one of four rounds goes on reading.
pub(super) async fn write(
    world: &World,
    client: &Client,
    number: u16,
    rng: &mut Rng,
) -> Result<()> {
    let lock = client.read_write_lock(&name(Kind::Write, number));
    let side = lock.write().fenced();
    let Some(guard) = acquire(world, Kind::Write, &side, rng).await? else {
        return Ok(());
    };
    let claim = world.bench.claim(Kind::Write, number, Mode::Alone, 1);
    let claim = claim.token(guard.token().get());
    claim.enter(&guard)?;
    briefly(rng).await;
    if rng.u8(..4) > 0 {
        claim.leave(&guard)?;
        part_with(guard, rng).await;
        return Ok(());
    }
    claim.say(What::Downgrades)?;
    match lock.downgrade(guard).await {
        Ok(reader) => {
            briefly(rng).await;
            claim.leave(&reader)?;
            part_with(reader, rng).await;
            Ok(())
        }
        Err(error) => {
            claim.say(What::Loses)?;
            Err(error.into())
        }
    }
}

#[cfg(not(feature = "upgrades"))]
pub(super) async fn upgradeable(_: &World, _: &Client, _: u16, _: &mut Rng) -> Result<()> {
    std::future::ready(Ok(())).await
}

/// Reads, and in every second round becomes a writer for a moment.
#[cfg(feature = "upgrades")]
pub(super) async fn upgradeable(
    world: &World,
    client: &Client,
    number: u16,
    rng: &mut Rng,
) -> Result<()> {
    let lock = client.read_write_lock(&name(Kind::Upgradeable, number));
    let side = lock.upgradeable_read();
    let Some(reader) = acquire(world, Kind::Upgradeable, &side, rng).await? else {
        return Ok(());
    };
    let claim = world
        .bench
        .claim(Kind::Upgradeable, number, Mode::ReadsUpgradeably, 1);
    claim.enter(&reader)?;
    briefly(rng).await;
    if rng.bool() {
        match lock.upgrade(&reader).await {
            Ok(writer) => {
                claim.upgrade(&writer)?;
                briefly(rng).await;
                claim.say(What::Downgrades)?;
                part_with(writer, rng).await;
            }
            Err(error) => {
                claim.leave(&reader)?;
                return Err(error.into());
            }
        }
    }
    claim.leave(&reader)?;
    part_with(reader, rng).await;
    Ok(())
}
