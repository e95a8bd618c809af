//! The server run that a RedLock asks each of its servers for.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::servers::MemcachedServer;
use tidelock::store::{Incarnation, Store};
use tidelock::{Client, ErrorKind, RedLock};

const LEASE: Duration = Duration::from_secs(2);

/// A client, and the run of its server.
async fn run_at(url: &str) -> Result<(Client, Incarnation)> {
    let (sender, receiver) = std::sync::mpsc::channel::<Store>();
    let target = url.to_owned();
    let client = Client::builder()
        .lease(LEASE)
        .connect_to(async move |env: &tidelock::store::Env| {
            let store = tidelock::testing::open(&target, env).await?;
            let _ = sender.send(store.clone());
            Ok(store)
        })
        .await?;
    let store = receiver.recv()?;
    let runs = store.front.extensions().server_runs;
    let run = runs.context("it tells its runs")?.server_run().await?;
    Ok((client, run.context("it is known")?))
}

/// memcached tells an uptime that is two seconds too long, and up to one more, because it counts whole seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t39_a_new_memcached_is_not_taken_for_older_than_it_is() -> Result<()> {
    let begun = Instant::now();
    let server = MemcachedServer::start()?;
    let (client, run) = run_at(&server.url()).await?;
    ensure!(
        run.up <= begun.elapsed(),
        "{run:?} after {:?}",
        begun.elapsed()
    );
    // The item of the run is no lock.
    let listed = client.list("*").await?;
    ensure!(listed.is_empty(), "{listed:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_the_same_by_two_addresses_and_another_after_a_restart() -> Result<()> {
    let server = MemcachedServer::start()?;
    let url = server.url();
    let (_one, first) = run_at(&url).await?;
    let (_two, again) = run_at(&url.replace("127.0.0.1", "localhost")).await?;
    ensure!(first.id == again.id, "{first:?} and {again:?}");
    server.restart()?;
    let (_three, restarted) = run_at(&url).await?;
    ensure!(first.id != restarted.id, "{restarted:?}");
    Ok(())
}

/// A grant that does not count, because its server has one vote already, is given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_memcached_by_two_addresses_has_one_vote() -> Result<()> {
    let servers = [MemcachedServer::start()?, MemcachedServer::start()?];
    let (one, two) = (servers[0].url(), servers[1].url());
    let again = one.replace("127.0.0.1", "localhost");
    let mut clients = Vec::new();
    for url in [&one, &two, &again] {
        clients.push(run_at(url).await?.0);
    }
    let redlock = RedLock::builder(clients.clone())
        .node_timeout(Duration::from_millis(500))
        .restart_guard(false)
        .build()?;
    redlock.lock("stock").acquire().await?.release().await?;
    servers[1].kill()?;
    let error = redlock.lock("stock").try_acquire().await.unwrap_err();
    ensure!(error.kind() == ErrorKind::InvalidOptions, "{error}");
    ensure!(error.to_string().contains("same server"), "{error}");
    let seen = clients[0].lock("stock").inspect().await?;
    ensure!(!seen.is_locked(), "{seen:?}");
    Ok(())
}
