//! T76: a client connects to a server that is at its connection limit, slow, or not running yet.

use std::time::Duration;

use anyhow::Result;
use real_servers::connecting::{fill, is_waited_for};
use testkit::servers::MemcachedServer;
use tidelock::{Client, ClientBuilder, ErrorKind};

fn builder() -> ClientBuilder {
    let patience = Duration::from_secs(3);
    Client::builder()
        .lease(patience * 4)
        .response_timeout(patience)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_full_server_is_waited_for() -> Result<()> {
    let server = MemcachedServer::start_with(&["-c", "64"])?;
    let inside = fill(server.addr())?;
    let open = || {
        drop(inside);
        Ok(())
    };
    is_waited_for(builder(), &server.url(), open).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_server_that_is_slow_or_started_later_is_waited_for() -> Result<()> {
    let server = MemcachedServer::start()?;
    server.freeze()?;
    is_waited_for(builder(), &server.url(), || server.thaw()).await?;
    server.kill()?;
    is_waited_for(builder(), &server.url(), || server.restart()).await?;
    Ok(())
}

/// A permanent error is returned at once, even when the caller has a long timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_login_that_is_not_taken_is_not_waited_for() -> Result<()> {
    let server = MemcachedServer::start_guarded("me", "hunter2")?;
    let wrong = format!("memcached://me:hunter3@{}", server.addr());
    let patient = builder().connect_within(Duration::from_secs(60));
    let asked = tokio::time::timeout(Duration::from_secs(10), patient.connect(&wrong));
    let refused = asked.await?.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    Ok(())
}
