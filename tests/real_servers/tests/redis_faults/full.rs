//! A server without free space, on its disk or in its memory.

use std::fs::File;
use std::io::Write;

use anyhow::{Context, Result, ensure};
use testkit::servers::RedisServer;
use tidelock::testing::AnyLock;
use tidelock::{AcquireOptions, ErrorKind, LostReason, Severity};

use crate::looks::wary_builder;
use crate::setup::{Shop, shop, shop_on};
use real_servers::{SOON, eventually, listen, ms, within};

/// The status of the server's last write to its append-only file.
fn last_write(server: &RedisServer) -> Result<String> {
    let info: String = server.query(&["INFO", "persistence"])?;
    let status = info
        .lines()
        .find_map(|line| line.strip_prefix("aof_last_write_status:"));
    Ok(status.context("no status in INFO")?.trim().to_owned())
}

/// Fills the server's disk, and returns once the server has failed to write to it.
fn fill(server: &RedisServer) -> Result<()> {
    let mut filler = File::create(server.disk()?.join("filler"))?;
    while filler.write_all(&[0; 1024]).is_ok() {}
    // The last page of the append-only file may have some room, so one write is not enough.
    let page = "x".repeat(4096);
    eventually(SOON, "the server finds its disk full", || {
        // An error means that the disk is full.
        let _ = server.admin(&["SET", "filler", &page]);
        Ok(last_write(server)? == "err")
    })?;
    Ok(())
}

/// Frees the space, and returns once the server has noticed.
fn make_room(server: &RedisServer) -> Result<()> {
    std::fs::remove_file(server.disk()?.join("filler"))?;
    eventually(SOON, "the server writes again", || {
        Ok(last_write(server)? == "ok")
    })?;
    server.admin(&["DEL", "filler"]).map(drop)
}

/// An acquire fails with an error that names the disk, and leaves nothing: no lock, no counter.
async fn refused(shop: &Shop) -> Result<()> {
    let patience = || AcquireOptions::new().wait(ms(600));
    for lock in [
        AnyLock::from(shop.client.lock("other")),
        AnyLock::from(shop.client.lock("other").fenced()),
    ] {
        let asked = within(SOON, "an answer", lock.acquire_with(patience())).await?;
        let error = asked.err().context("it was granted")?;
        ensure!(error.kind() == ErrorKind::Unavailable, "{error}");
        ensure!(error.to_string().contains("disk"), "{error}");
    }
    let keys = shop.server.keys()?;
    ensure!(!keys.iter().any(|key| key.contains("other")), "{keys:?}");
    Ok(())
}

/// T26: the server's disk is full, and it rejects writes. No lock is granted, and an acquire returns the reason. A
/// release is an error, and its lock ends with the lease. A holder is told before its lease ends. Once there is room,
/// everything recovers by itself, and tokens still grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t26_a_full_disk_stops_grants_and_is_told() -> Result<()> {
    let server = RedisServer::builder()
        .appendonly(true)
        // With `always` the server exits when the disk is full.
        .args([
            "--appendfsync",
            "everysec",
            "--auto-aof-rewrite-percentage",
            "0",
        ])
        .disk(1 << 20);
    let mut shop = shop_on(server, ms(4800)).await?;
    shop.client = wary_builder(shop.lease).connect(&shop.proxy.url()).await?;
    let rival = shop.direct().await?;
    let held = shop.client.lock("stock").fenced().acquire().await?;
    let first = held.token();
    // The other client proves it for longer: otherwise it might be lost before its release.
    let given_up = rival.lock("till").acquire().await?;
    let told = listen(&held);
    fill(&shop.server)?;
    let ends = shop.ends_at("stock")?;
    refused(&shop).await?;
    let error = given_up.release().await.unwrap_err();
    ensure!(error.kind() != ErrorKind::Lost, "{error}");
    let (at, reason) = told.told(shop.lease).await?;
    ensure!(reason == LostReason::Expired, "{reason}");
    ensure!(at <= ends, "told {:?} after the lease had ended", at - ends);
    let gone = || Ok(shop.time_left("stock")?.is_none() && shop.time_left("till")?.is_none());
    eventually(shop.lease, "their leases end", gone)?;
    let late = held.release().await.map_err(|error| error.kind());
    ensure!(late == Err(ErrorKind::Lost), "{late:?}");
    make_room(&shop.server)?;
    let next = within(SOON, "a grant", rival.lock("stock").fenced().acquire()).await??;
    ensure!(next.token() > first, "{:?}", next.token());
    shop.next_renewal("stock")?;
    next.release().await?;
    within(SOON, "a grant", shop.client.lock("till").acquire())
        .await??
        .release()
        .await?;
    shop.nothing_left(vec![rival]).await
}

/// T25: the server's memory is full, and it evicts a lock. The doctor warns of this eviction policy beforehand. The
/// holder is told at its next renewal, and its release does not affect the next holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t25_a_lock_that_is_thrown_away_is_told_at_the_next_renewal() -> Result<()> {
    let shop = shop(ms(6000)).await?;
    let rival = shop.direct().await?;
    let set = |name, value| shop.server.admin(&["CONFIG", "SET", name, value]).map(drop);
    set("maxmemory-policy", "allkeys-lru")?;
    set("maxmemory", "100mb")?;
    let findings = shop.client.diagnose().await?;
    ensure!(
        findings
            .iter()
            .any(|found| found.subject == "eviction" && found.severity == Severity::Danger),
        "{findings:#?}"
    );
    let held = shop.client.lock("stock").acquire().await?;
    let told = listen(&held);
    shop.next_renewal("stock")?;
    set("maxmemory", "1")?;
    eventually(SOON, "it is thrown away", || {
        Ok(shop.time_left("stock")?.is_none())
    })?;
    shop.told_by_the_next_renewal(told).await?;
    ensure!(!held.is_held());
    set("maxmemory", "0")?;
    let next = within(SOON, "the lock is free", rival.lock("stock").acquire()).await??;
    let late = held.release().await.map_err(|error| error.kind());
    ensure!(late == Err(ErrorKind::Lost), "{late:?}");
    shop.next_renewal("stock")?;
    shop.held_once(&next)?;
    next.release().await?;
    shop.nothing_left(vec![rival]).await
}

/// T25: as above, but the memory fills with other keys, and the lock is evicted although each renewal uses its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t25_a_lock_that_is_evicted_among_other_keys_is_told_at_the_next_renewal() -> Result<()> {
    let shop = shop(ms(6000)).await?;
    let rival = shop.direct().await?;
    let set = |name, value| shop.server.admin(&["CONFIG", "SET", name, value]).map(drop);
    set("maxmemory-policy", "allkeys-lru")?;
    set("maxmemory-samples", "10")?;
    set("maxmemory", "5mb")?;
    let held = shop.client.lock("stock").acquire().await?;
    let told = listen(&held);
    let page = "x".repeat(1000);
    let mut pages = 0..;
    let mut fill = || {
        let some: Vec<String> = pages
            .by_ref()
            .take(200)
            .map(|n| format!("page {n}"))
            .collect();
        let some: Vec<[&str; 3]> = some.iter().map(|key| ["SET", key, &page]).collect();
        let some: Vec<&[&str]> = some.iter().map(|one| &one[..]).collect();
        shop.server.admin_each(&some)?;
        Ok(shop.time_left("stock")?.is_none())
    };
    eventually(SOON, "it is evicted", &mut fill)?;
    shop.told_by_the_next_renewal(told).await?;
    ensure!(!held.is_held());
    let evictions: String = shop.server.query(&["INFO", "stats"])?;
    ensure!(!evictions.contains("evicted_keys:0"), "{evictions}");
    set("maxmemory", "0")?;
    let next = within(SOON, "the lock is free", rival.lock("stock").acquire()).await??;
    let late = held.release().await.map_err(|error| error.kind());
    ensure!(late == Err(ErrorKind::Lost), "{late:?}");
    next.release().await?;
    shop.server.admin(&["FLUSHALL"])?;
    shop.nothing_left(vec![rival]).await
}
