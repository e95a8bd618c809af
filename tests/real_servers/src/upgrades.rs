//! Upgrades from a reader to a writer, on a store that loses its data meanwhile, or whose answers and requests come late.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::proxy::{Mode, Proxy, Way};
use tidelock::{Client, ErrorKind, Lock};

use crate::{SOON, ms, within};

const NAME: &str = "prices";
/// The holders learn of a loss within a third of it.
const LEASE: Duration = Duration::from_secs(6);

async fn client(url: &str) -> Result<Client> {
    let builder = Client::builder().lease(LEASE).response_timeout(ms(1000));
    Ok(builder.publish_process_info(false).connect(url).await?)
}

async fn until_one_waits(lock: &Lock) -> Result<()> {
    let waits = async {
        while lock.inspect().await?.waiters != Some(1) {
            tokio::time::sleep(ms(10)).await;
        }
        anyhow::Ok(())
    };
    within(SOON, "the upgrade waits", waits).await?
}

/// The store is replaced by an empty one while an upgrade waits for a reader. The next process finds a free lock and writes, so
/// the upgrade is never granted: it is lost, and both readers are told.
pub async fn lost_with_the_data_of_its_store(
    url: &str,
    empty: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let (client, other) = (client(url).await?, client(url).await?);
    let (mine, others) = (client.read_write_lock(NAME), other.read_write_lock(NAME));
    let held = mine.upgradeable_read().acquire().await?;
    let reader = others.read().acquire().await?;
    let upgrade = tokio::spawn(mine.upgrade(&held));
    until_one_waits(&others.read()).await?;
    empty()?;
    let newcomer = self::client(url).await?.read_write_lock(NAME);
    let next = within(SOON, "the next writer", newcomer.write().acquire()).await??;
    let ended = within(SOON, "the upgrade ends", upgrade).await??;
    let error = ended.err().context("two writers")?;
    ensure!(error.kind() == ErrorKind::Lost, "{error}");
    for guard in [held, reader] {
        within(SOON, "a reader is told", guard.lost()).await?;
        ensure!(!guard.is_held());
        let error = guard.release().await.err().context("it was lost")?;
        ensure!(error.kind() == ErrorKind::Lost, "{error}");
    }
    ensure!(next.is_held() && mine.read().try_acquire().await?.is_none());
    next.release().await?;
    let held = mine.upgradeable_read().acquire_timeout(SOON).await?;
    mine.upgrade(&held).await?.release().await?;
    Ok(held.release().await?)
}

/// The first request of an upgrade has no answer in time, so it is asked again on another connection and gets two answers; then
/// the same with a request that arrives only after the writer has left. `far` leads through the proxy. `holders` counts the
/// holds in the store.
pub async fn answered_late_and_twice(
    near: &str,
    far: &str,
    proxy: &Proxy,
    holders: impl Fn() -> Result<u32>,
) -> Result<()> {
    let (near, far) = (client(near).await?, client(far).await?);
    let (sides, others) = (far.read_write_lock(NAME), near.read_write_lock(NAME));
    for late in [Way::ToClient, Way::ToServer] {
        let reader = within(SOON, "free", sides.upgradeable_read().acquire()).await??;
        let connections = 1..=proxy.accepted();
        let steer = |mode| {
            for connection in connections.clone() {
                // Those of an earlier round have ended.
                let _ = proxy.set_connection(connection, late, mode);
            }
        };
        steer(Mode::Hold);
        let upgrade = within(SOON, "the second answer", sides.upgrade(&reader)).await?;
        let writer = upgrade.with_context(|| format!("{late:?}"))?;
        ensure!(holders()? == 2, "{late:?}: {} holders", holders()?);
        if late == Way::ToClient {
            steer(Mode::Pass);
        }
        ensure!(others.read().try_acquire().await?.is_none(), "{late:?}");
        ensure!(writer.is_held() && reader.is_held(), "{late:?}");
        writer.release().await?;
        // Nobody else is inside, so nothing but the store's memory of the upgrade keeps a late request from its grant.
        steer(Mode::Pass);
        // Longer than the server needs for what has arrived now. No event tells that it has changed nothing.
        tokio::time::sleep(ms(300)).await;
        ensure!(holders()? == 1, "{late:?}: the late request has an effect");
        let beside = others.read().acquire_timeout(SOON).await?;
        ensure!(reader.is_held(), "{late:?}");
        beside.release().await?;
        reader.release().await?;
    }
    Ok(())
}
