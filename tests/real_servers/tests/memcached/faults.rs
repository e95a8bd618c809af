//! T61: how a cache can lose or damage a lock, and how the store reacts.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use real_servers::{ms, secs};
use testkit::proxy::{Mode, Proxy, Way};
use testkit::servers::MemcachedServer;
use tidelock::{AcquireOptions, Client, ErrorKind, Guard, LostReason, Severity};

fn lease() -> Duration {
    secs(2)
}

async fn client(server: &MemcachedServer) -> Result<Client> {
    client_with(server, lease(), secs(3)).await
}

/// `patience`: how long it waits for an answer.
async fn client_with(
    server: &MemcachedServer,
    lease: Duration,
    patience: Duration,
) -> Result<Client> {
    let builder = Client::builder()
        .lease(lease)
        .response_timeout(patience)
        .publish_process_info(false);
    Ok(builder.connect(&server.url()).await?)
}

/// Items of the same size as a lock: memcached keeps a separate memory class for each item size, and this one must fill
/// up.
fn fill(numbers: std::ops::Range<u32>) -> String {
    let items = numbers.map(|n| format!("ms fill:{n:05} 38 T0\r\n{}\r\n", "x".repeat(38)));
    items.collect()
}

/// Waits until the guard reports the loss. Fails if that takes longer than a lease.
async fn told(guard: &Guard, lease: Duration) -> Result<LostReason> {
    Ok(tokio::time::timeout(lease, guard.lost()).await?)
}

#[tokio::test]
async fn t61_a_restart_is_told_and_the_old_holder_touches_nobody() -> Result<()> {
    let server = MemcachedServer::start()?;
    // So long that a slow restart does not end it.
    let long = secs(8);
    let one = client_with(&server, long, secs(3)).await?;
    let two = client_with(&server, long, secs(3)).await?;
    let old = one.lock("stock").acquire().await?;
    server.restart()?;
    // The first item after the restart gets the same `cas` number as the first item before it. The number alone does
    // not identify an item.
    let new = two.lock("stock").acquire().await?;
    assert_eq!(told(&old, long).await?, LostReason::Taken);
    assert_eq!(old.release().await.unwrap_err().kind(), ErrorKind::Lost);
    let seen = two.lock("stock").inspect().await?;
    assert_eq!(seen.holders[0].owner, new.owner_id());
    new.release().await?;
    Ok(())
}

#[tokio::test]
async fn t61_an_eviction_is_told_at_the_next_renewal() -> Result<()> {
    let server = MemcachedServer::start_with(&["-m", "2", "-o", "no_lru_maintainer"])?;
    let client = client(&server).await?;
    let guard = client.lock("stock").acquire().await?;
    let begun = Instant::now();
    let mut n = 0;
    while server.admin("mg stock k")?.starts_with("HD") {
        ensure!(begun.elapsed() < lease() * 3, "nothing is thrown away");
        server.admin(&fill(n..n + 2000))?;
        n += 2000;
    }
    assert_eq!(told(&guard, lease()).await?, LostReason::Taken);
    let findings = client.diagnose().await?;
    let memory = findings.iter().find(|finding| finding.subject == "memory");
    assert_eq!(
        memory.map(|finding| finding.severity),
        Some(Severity::Danger)
    );
    let kind = findings.iter().find(|finding| finding.subject == "kind");
    assert_eq!(kind.map(|finding| &*finding.found), Some("best effort"));
    Ok(())
}

#[tokio::test]
async fn t61_a_release_never_deletes_what_another_has_stored() -> Result<()> {
    let server = MemcachedServer::start()?;
    let client = client(&server).await?;
    let options = AcquireOptions::new().expires_after(Duration::from_secs(30));
    let guard = client.lock("stock").acquire_with(options).await?;
    server.admin("ms stock 6 T30\r\ntheirs")?;
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(server.admin("mg stock v")?.contains("theirs"));
    // The item excludes us although its value is not one of our owners.
    assert!(client.lock("stock").try_acquire().await?.is_none());
    assert_eq!(
        client.lock("stock").inspect().await?.holders[0].owner,
        "theirs"
    );
    Ok(())
}

/// Another client replaces the item between our read of it and our delete.
#[tokio::test]
async fn t61_a_release_that_is_overtaken_deletes_nothing() -> Result<()> {
    let server = MemcachedServer::start()?;
    let proxy = Proxy::start_opaque(server.addr())?;
    let builder = Client::builder().lease(Duration::from_secs(30));
    let url = format!("memcached://{}", proxy.addr());
    let client = builder.publish_process_info(false).connect(&url).await?;
    let guard = client.lock("stock").acquire().await?;
    let looks = server.stat("get_hits")?;
    proxy.set(Way::ToClient, Mode::Hold);
    let release = tokio::spawn(guard.release());
    let begun = Instant::now();
    while server.stat("get_hits")? == looks {
        ensure!(begun.elapsed() < lease(), "no look");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.admin("ms stock 6 T30\r\ntheirs")?;
    proxy.set(Way::ToClient, Mode::Pass);
    assert_eq!(release.await?.unwrap_err().kind(), ErrorKind::Lost);
    assert!(server.admin("mg stock v")?.contains("theirs"));
    Ok(())
}

#[tokio::test]
async fn t61_a_lease_of_more_than_thirty_days_lasts() -> Result<()> {
    let server = MemcachedServer::start()?;
    let client = client(&server).await?;
    for days in [29, 31, 300] {
        let lease = Duration::from_secs(days * 24 * 3600);
        let options = AcquireOptions::new().expires_after(lease);
        let guard = client.lock("long").acquire_with(options).await?;
        let said = server.admin("mg long t")?;
        let left: u64 = said.trim().trim_start_matches("HD t").parse()?;
        assert!((0..=2).contains(&left.abs_diff(lease.as_secs())), "{said}");
        guard.extend(lease * 12 / 10).await?;
        let seen = client.lock("long").inspect().await?;
        assert!(seen.expires_in.is_some_and(|left| left > lease), "{seen:?}");
        guard.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn t61_late_requests_of_a_frozen_server_delay_nobody() -> Result<()> {
    let server = MemcachedServer::start()?;
    let hasty = client_with(&server, lease(), ms(500)).await?;
    let (one, two) = (hasty, client(&server).await?);
    // The client is connected before the freeze, so the request lands in the server's socket buffer and runs after the
    // thaw.
    one.lock("stock").acquire().await?.release().await?;
    server.freeze()?;
    let long = AcquireOptions::new()
        .expires_after(Duration::from_secs(600))
        .wait(ms(700));
    assert!(one.lock("stock").acquire_with(long).await.is_err());
    server.thaw()?;
    let begun = Instant::now();
    let guard = two.lock("stock").acquire().await?;
    assert!(begun.elapsed() < lease() * 2, "{:?}", begun.elapsed());
    tokio::time::sleep(lease()).await;
    assert!(guard.is_held());
    guard.release().await?;
    Ok(())
}

/// With `-M` a full server deletes the existing item when an `add` fails for lack of memory.
#[tokio::test]
async fn t61_waiting_at_a_full_server_takes_the_lock_from_nobody() -> Result<()> {
    let server = MemcachedServer::start_with(&["-M", "-m", "2"])?;
    // A wait that ends blames the holder if the last request has been without an answer for at most a quarter of the response
    // timeout. Otherwise it blames the server.
    let patient = Client::builder().lease(lease()).response_timeout(secs(20));
    let patient = patient.publish_process_info(false);
    let (one, two) = (
        client(&server).await?,
        patient.connect(&server.url()).await?,
    );
    let long = AcquireOptions::new().expires_after(Duration::from_secs(60));
    let guard = one.lock("stock").acquire_with(long).await?;
    let said = server.admin(&fill(0..30_000))?;
    assert!(said.contains("SERVER_ERROR out of memory"));
    let short = AcquireOptions::new().wait(secs(4));
    let error = two.lock("stock").acquire_with(short).await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(
        one.lock("stock").inspect().await?.holders[0].owner,
        guard.owner_id()
    );
    // When the server has no memory for the item, the attempt returns an error and holds nothing.
    let error = two.lock("other").try_acquire().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    guard.release().await?;
    let findings = two.diagnose().await?;
    let memory = findings.iter().find(|finding| finding.subject == "memory");
    assert!(memory.is_some_and(|finding| finding.found.contains("-M")));
    Ok(())
}

#[tokio::test]
async fn tokens_are_refused_before_any_traffic() -> Result<()> {
    let server = MemcachedServer::start()?;
    let client = client(&server).await?;
    let before = (server.stat("cmd_get")?, server.stat("cmd_set")?);
    let error = client
        .lock("stock")
        .fenced()
        .acquire()
        .await
        .map(drop)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!((server.stat("cmd_get")?, server.stat("cmd_set")?), before);
    Ok(())
}

#[tokio::test]
async fn a_server_that_compares_nothing_is_refused() -> Result<()> {
    let server = MemcachedServer::start_with(&["-C"])?;
    let error = client(&server).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("-C"), "{error}");
    Ok(())
}

/// The server makes one list of its items at a time, and answers `BUSY` to whoever else asks for one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_several_clients_wait_for_each_other() -> Result<()> {
    let server = MemcachedServer::start()?;
    for n in 0..10 {
        server.admin(&fill(n * 2000..(n + 1) * 2000))?;
    }
    let holder = Client::connect(&server.url()).await?;
    let held = holder.lock("stock").acquire().await?;
    let mut lists = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let client = Client::connect(&server.url()).await?;
        lists.spawn(async move { client.list("sto*").limit(10).await });
    }
    for found in lists.join_all().await {
        ensure!(found? == ["stock"]);
    }
    held.release().await?;
    Ok(())
}
