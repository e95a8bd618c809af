//! Permits, latches and barriers.

use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;
use tidelock::Client;

use super::name;
use crate::World;
use crate::hold::{acquire, briefly, part_with};
use crate::record::{COUNT, Kind, Mode, Record, What, now};

/// The limit for others to come to a latch or a barrier. They may have been killed.
const OTHERS: Duration = Duration::from_secs(3);

/// Permits without a holder have no lease.
const NO_END: Duration = Duration::from_secs(24 * 3600);

pub(super) async fn permits(
    world: &World,
    client: &Client,
    number: u16,
    rng: &mut Rng,
) -> Result<()> {
    let count = rng.u16(1..=3);
    let semaphore = client.semaphore(&name(Kind::Permits, number));
    let lock = semaphore.permits(count);
    let Some(permits) = acquire(world, Kind::Permits, &lock, rng).await? else {
        return Ok(());
    };
    let amount = u32::from(permits.count());
    let claim = world
        .bench
        .claim(Kind::Permits, number, Mode::Permits, amount);
    claim.enter(&permits)?;
    briefly(rng).await;
    claim.leave(&permits)?;
    part_with(permits, rng).await;
    Ok(())
}

pub(super) async fn counted(world: &World, client: &Client, rng: &mut Rng) -> Result<()> {
    let semaphore = client.counting_semaphore(&name(Kind::Counted, 0));
    let amount = rng.u32(1..=3);
    let asked = Instant::now();
    semaphore.acquire(amount).await?;
    world.bench.waited(Kind::Counted, asked);
    let claim = world.bench.claim(Kind::Counted, 0, Mode::Permits, amount);
    claim.enter_for(now(), NO_END)?;
    briefly(rng).await;
    claim.say(What::Leaves)?;
    semaphore.release(amount).await?;
    Ok(())
}

/// Comes to the latch of all processes: sets it if it is open, counts it down by one, and waits with the others.
pub(super) async fn latch(world: &World, client: &Client) -> Result<()> {
    let latch = client.latch(&name(Kind::Latch, 0));
    if latch.set_count_if_new(COUNT).await? {
        world.bench.tell(Record::new(What::Sets, Kind::Latch))?;
    }
    counts(world, 1)?;
    latch.count_down().await?;
    match latch.wait_timeout(OTHERS).await {
        Ok(()) => world.bench.tell(Record::new(What::Passes, Kind::Latch)),
        Err(error) if error.is_timeout() => {
            world.bench.tell(Record::new(What::TimesOut, Kind::Latch))?;
            counts(world, COUNT)?;
            latch.delete().await?;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn counts(world: &World, amount: u32) -> Result<()> {
    let mut record = Record::new(What::Counts, Kind::Latch);
    record.amount = amount;
    world.bench.tell(record)
}

#[cfg(not(feature = "barriers"))]
pub(super) async fn barrier(_: &World, _: &Client, _: &mut Rng) -> Result<()> {
    std::future::ready(Ok(())).await
}

/// Enters with a member of this process or another one, and leaves with it.
#[cfg(feature = "barriers")]
pub(super) async fn barrier(world: &World, client: &Client, rng: &mut Rng) -> Result<()> {
    use crate::record::MEMBERS;

    let barrier = client.barrier(&name(Kind::Barrier, 0), MEMBERS);
    let claim = world.bench.claim(Kind::Barrier, 0, Mode::Permits, 1);
    claim.say(What::Comes)?;
    let entered = barrier.enter_timeout(OTHERS).await;
    let member = match entered {
        Ok(member) => member,
        Err(error) => {
            claim.say(What::Goes)?;
            if error.is_timeout() {
                return claim.say(What::TimesOut);
            }
            return Err(error.into());
        }
    };
    claim.enter_for(now(), member.valid_for())?;
    briefly(rng).await;
    claim.say(What::Leaves)?;
    claim.say(What::Goes)?;
    if rng.u8(..4) == 0 {
        drop(member);
    } else {
        member.leave().await?;
    }
    Ok(())
}
