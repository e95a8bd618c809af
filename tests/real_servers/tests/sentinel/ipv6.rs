//! Sentinels and servers with IPv6 addresses: in the URL, and in the sentinels' replies.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::servers::{RedisServer, Sentinels};
use tidelock::redis::Topology;

use real_servers::{SOON, builder, insist, within};

/// The URL names one sentinel, in brackets. The sentinels report the primary, the next primary and each other without
/// brackets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_on_ipv6_are_followed() -> Result<()> {
    let server = RedisServer::builder().ipv6(true);
    let sentinels = Sentinels::builder().server(server).start()?;
    let seed = sentinels.sentinels()[0].addr();
    let url = format!("redis+sentinel://{seed}/{}", sentinels.service());
    ensure!(url.contains("[::1]"), "{url}");
    let client = builder(Duration::from_secs(6)).connect(&url).await?;
    // The same topology, built from its parts instead of a URL.
    let parts = Topology::sentinels(sentinels.service(), [seed.to_string()]);
    let other = parts.connect(builder(Duration::from_secs(6))).await?;
    let guard = client.lock("stock").acquire().await?;
    ensure!(other.lock("stock").try_acquire().await?.is_none());
    let old = sentinels.primary()?;
    old.kill()?;
    let new = sentinels.await_primary_other_than(old.addr(), SOON * 2)?;
    ensure!(new.addr().is_ipv6(), "{}", new.addr());
    let _ = guard.release().await;
    let guard = within(SOON, "the new primary", insist(other.lock("other"))).await??;
    guard.release().await?;
    for client in [client, other] {
        client.close(Duration::ZERO).await;
    }
    Ok(())
}
