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

/// The names of latches take turns, in all processes at the same time; one lasts for so many microseconds. A count-down that
/// comes when the latch has just opened changes nothing. So many count-downs more would hide a latch that opens too early, so
/// the judge begins at zero with each turn.
const TURN: u64 = 10_000_000;

/// Comes to the latch of all processes: sets it if it is open, counts it down by one, and waits with the others.
pub(super) async fn latch(world: &World, client: &Client) -> Result<()> {
    let turn = now() / TURN;
    let number = u16::try_from(turn % u64::from(Kind::Latch.names()))?;
    let tell = |what, amount| {
        let mut record = Record::new(what, Kind::Latch);
        (record.name, record.amount, record.mark) = (number, amount, turn);
        world.bench.tell(record)
    };
    let latch = client.latch(&name(Kind::Latch, number));
    if latch.set_count_if_new(COUNT).await? {
        tell(What::Sets, 0)?;
    }
    tell(What::Counts, 1)?;
    world.bad.open(&latch).await?;
    latch.count_down().await?;
    match latch.wait_timeout(OTHERS).await {
        Ok(()) => tell(What::Passes, 0),
        Err(error) if error.is_timeout() => {
            tell(What::TimesOut, 0)?;
            tell(What::Counts, COUNT)?;
            latch.delete().await?;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
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
