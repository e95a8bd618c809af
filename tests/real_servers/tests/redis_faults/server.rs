//! Faults of the server.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use testkit::servers::RedisServer;
use tidelock::{ErrorKind, LostReason};
use tokio::time::sleep;

use crate::looks::wary;
use crate::setup::{shop, shop_on};
use real_servers::{SOON, boot_time, eventually, insist, listen, ms, within};

/// T04. The server is frozen for a third of the lease, starting just after a renewal was due. Nothing is lost or
/// reported as lost. The lease is renewed again, and is never longer than it should be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t04_a_short_freeze_of_the_server_is_survived() -> Result<()> {
    let shop = shop(ms(3000)).await?;
    let guard = shop.client.lock("stock").acquire().await?;
    let told = listen(&guard);
    shop.next_renewal("stock")?;
    let renewals = shop.proxy.total();
    shop.proxy
        .wait_until(SOON, |proxy| proxy.total() > renewals)?;
    shop.server.freeze()?;
    sleep(shop.lease / 3).await;
    shop.server.thaw()?;
    ensure!(
        guard.is_held() && told.is_quiet(),
        "lost by a freeze of a third of the lease"
    );
    eventually(shop.lease, "it is renewed again", || {
        let left = shop.time_left("stock")?.context("the key has gone")?;
        ensure!(left <= shop.lease, "{left:?} left");
        Ok(left > shop.lease * 9 / 10)
    })?;
    ensure!(guard.is_held() && told.is_quiet());
    ensure!(shop.holders("stock")? == [(guard.owner_id(), 1)]);
    guard.release().await?;
    ensure!(shop.time_left("stock")?.is_none());
    shop.nothing_left(vec![]).await
}

/// T05. The server is frozen for two leases. The holder is told before the lease ends on the server. A client that
/// tries meanwhile gets the lock after the thaw, with a larger token, and the first holder's release does not affect
/// it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t05_a_long_freeze_of_the_server_is_told() -> Result<()> {
    let shop = wary(ms(2400)).await?;
    let rival = shop.direct().await?;
    let guard = shop.client.lock("stock").fenced().acquire().await?;
    let told = listen(&guard);
    let ends = loop {
        shop.next_renewal("stock")?;
        let requests = shop.proxy.total();
        let ends = shop.ends_at("stock")?;
        shop.server.freeze()?;
        if shop.proxy.total() == requests {
            break ends;
        }
        // A renewal came in between, so the lease may end later than that. We begin again.
        shop.server.thaw()?;
    };
    let (since, proved) = (boot_time(), boot_time() + guard.valid_for());
    // Half of the drift allowance. The other half is for `ends`, which is too early if the server was slow to answer.
    ensure!(
        proved + shop.lease / 5 <= ends,
        "proved {:?} too long",
        proved + shop.lease / 5 - ends
    );
    // The server has confirmed nothing that was sent later.
    ensure!(
        proved <= since + shop.lease * 6 / 10,
        "proved {:?} after the freeze",
        proved - since
    );
    let lock = rival.lock("stock").fenced();
    let waiter = tokio::spawn(async move {
        let guard = insist(lock).await?;
        anyhow::Ok((guard, boot_time()))
    });
    let (at, reason) = told.told(shop.lease).await?;
    ensure!(
        reason == LostReason::Expired && !guard.is_held(),
        "{reason}"
    );
    ensure!(at <= ends, "told {:?} after the lease had ended", at - ends);
    sleep((since + 2 * shop.lease).saturating_sub(boot_time())).await;
    shop.server.thaw()?;
    let thawed = boot_time();
    let (second, begun) = within(SOON, "the rival gets it", waiter).await???;
    ensure!(
        begun <= thawed + shop.lease,
        "woken {:?} after the thaw",
        begun - thawed
    );
    ensure!(
        at <= begun && second.token() > guard.token(),
        "{:?} after {:?}",
        second.token(),
        guard.token()
    );
    let late = guard.release().await.map_err(|error| error.kind());
    ensure!(late == Err(ErrorKind::Lost), "{late:?}");
    // The client still sends the release to the store, in the background. If it harmed the rival, the rival's next
    // renewal would show it.
    shop.next_renewal("stock")?;
    ensure!(shop.holders("stock")? == [(second.owner_id(), 1)] && second.is_held());
    second.release().await?;
    shop.nothing_left(vec![rival]).await
}

/// T06. The server is killed and comes back without its data. The holder is told at its first renewal after that at the
/// latest, its release affects no other client, and the lock is free at once. The counter is lost with the data: tokens
/// start over, as `docs/guarantees.md` says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t06_a_server_that_lost_its_data_is_noticed() -> Result<()> {
    let shop = shop(ms(6000)).await?;
    let rival = shop.direct().await?;
    let guard = shop.client.lock("stock").fenced().acquire().await?;
    let told = listen(&guard);
    shop.next_renewal("stock")?;
    shop.server.kill()?;
    shop.server.restart()?;
    shop.told_by_the_next_renewal(told).await?;
    ensure!(!guard.is_held());
    let lock = rival.lock("stock").fenced();
    let second = within(SOON, "the lock is free", lock.acquire()).await??;
    ensure!(second.token().get() == 1);
    let late = guard.release().await.map_err(|error| error.kind());
    ensure!(late == Err(ErrorKind::Lost), "{late:?}");
    shop.next_renewal("stock")?;
    ensure!(shop.holders("stock")? == [(second.owner_id(), 1)] && second.is_held());
    second.release().await?;
    shop.nothing_left(vec![rival]).await
}

/// T07. The server writes every change to disk before it answers, is killed, and comes back. The lock survives: the
/// holder notices nothing, its lease is renewed, others stay out, and the next token is larger.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t07_with_every_write_on_disk_the_lock_survives() -> Result<()> {
    let shop = shop_on(RedisServer::builder().appendonly(true), ms(6000)).await?;
    let guard = shop.client.lock("stock").fenced().acquire().await?;
    let told = listen(&guard);
    shop.next_renewal("stock")?;
    shop.server.restart()?;
    ensure!(shop.holders("stock")? == [(guard.owner_id(), 1)]);
    let rival = shop.direct().await?;
    ensure!(rival.lock("stock").fenced().try_acquire().await?.is_none());
    shop.next_renewal("stock")?;
    ensure!(guard.is_held() && told.is_quiet());
    let first = guard.token();
    guard.release().await?;
    let second = rival.lock("stock").fenced().acquire().await?;
    ensure!(
        second.token() > first,
        "{:?} after {first:?}",
        second.token()
    );
    second.release().await?;
    shop.nothing_left(vec![rival]).await
}

/// T07, with a disk sync once a second: a crash of the machine loses the last second. The test cuts the file to its
/// length before the grant. The holder is told at the first renewal after the restart at the latest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t07_a_grant_that_never_reached_the_disk_is_told() -> Result<()> {
    let lazy = RedisServer::builder()
        .appendonly(true)
        .args(["--appendfsync", "everysec"]);
    let shop = shop_on(lazy, ms(6000)).await?;
    shop.warm_up().await?;
    let file = append_file(&shop.server)?;
    let before = std::fs::metadata(&file)?.len();
    let guard = shop.client.lock("stock").fenced().acquire().await?;
    let told = listen(&guard);
    shop.server.kill()?;
    std::fs::File::options()
        .write(true)
        .open(&file)?
        .set_len(before)?;
    shop.server.restart()?;
    ensure!(
        shop.holders("stock")?.is_empty(),
        "the grant was to be lost"
    );
    shop.told_by_the_next_renewal(told).await?;
    ensure!(!guard.is_held());
    let second = shop.client.lock("stock").fenced().acquire().await?;
    let late = guard.release().await.map_err(|error| error.kind());
    ensure!(late == Err(ErrorKind::Lost), "{late:?}");
    shop.next_renewal("stock")?;
    ensure!(shop.holders("stock")? == [(second.owner_id(), 1)] && second.is_held());
    second.release().await?;
    shop.nothing_left(vec![]).await
}

/// The place of the append-only file: a folder since Redis 7, one file before.
fn append_file(server: &RedisServer) -> Result<PathBuf> {
    let old = server.dir().join("appendonly.aof");
    if old.is_file() {
        return Ok(old);
    }
    for entry in std::fs::read_dir(server.dir().join("appendonlydir"))? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(".incr.aof") {
            return Ok(path);
        }
    }
    anyhow::bail!("the server has no append-only file")
}

/// The server closes each connection that was idle for a second (`timeout 1`). Renewals come less often than that, so
/// they find their connection closed. No lock is lost, a lock is granted after a pause, and a waiter is woken.
///
/// The server counts whole seconds and looks at each connection once a second, so it may take three. The renewals must
/// be further apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_closes_idle_connections_loses_no_lock() -> Result<()> {
    let server = RedisServer::builder().args(["--timeout", "1"]);
    let shop = shop_on(server, ms(12_000)).await?;
    let held = shop.client.lock("stock").acquire().await?;
    let told = listen(&held);
    let rival = shop.direct().await?;
    let stock = rival.lock("stock");
    let waiter = tokio::spawn(async move { stock.acquire().await });
    for _ in 0..2 {
        let before = connections_for_requests(&shop.server)?;
        eventually(shop.lease, "the idle connections are closed", || {
            Ok(connections_for_requests(&shop.server)?.is_disjoint(&before))
        })?;
        shop.next_renewal("stock")?;
    }
    ensure!(held.is_held() && told.is_quiet(), "lost by a pause");
    let till = within(SOON, "a grant", shop.client.lock("till").acquire()).await??;
    till.release().await?;
    held.release().await?;
    let next = within(SOON, "the waiter is woken", waiter).await???;
    ensure!(shop.holders("stock")? == [(next.owner_id(), 1)]);
    next.release().await?;
    shop.nothing_left(vec![rival]).await
}

/// The identifiers of the connections of clients that are subscribed to nothing. The server closes no others.
fn connections_for_requests(server: &RedisServer) -> Result<BTreeSet<String>> {
    let list: String = server.query(&["CLIENT", "LIST"])?;
    let ours = list
        .lines()
        .filter(|line| line.contains(" addr=127.0.0.1:") && line.contains(" sub=0 "));
    ours.map(|line| {
        let id = line.split(' ').next().context("an empty line")?;
        Ok(id.to_owned())
    })
    .collect()
}
