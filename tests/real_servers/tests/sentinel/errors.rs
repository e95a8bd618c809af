//! Error messages when no sentinel responds, or when none of them knows a primary.

use anyhow::{Result, ensure};
use real_servers::connecting::is_waited_for;
use testkit::servers::{RedisServer, Sentinels};
use tidelock::{Client, ErrorKind};

use crate::shared;
use real_servers::{builder, ms, secs};

async fn refusal(url: &str) -> (ErrorKind, String) {
    let error = builder(secs(20)).connect(url).await.err();
    error.map_or((ErrorKind::Closed, String::new()), |error| {
        (error.kind(), format!("{error} {error:?}"))
    })
}

#[tokio::test]
async fn an_unknown_service_is_named_beside_the_known_ones() -> Result<()> {
    let sentinels = shared();
    let url = sentinels.url().replace("/mymaster", "/mymistress");
    let (kind, text) = refusal(&url).await;
    ensure!(kind == ErrorKind::InvalidOptions, "{text}");
    ensure!(text.contains("they know mymaster"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_no_sentinel_is_told_apart() -> Result<()> {
    let server = RedisServer::start()?;
    let (_, text) = refusal(&format!("redis+sentinel://{}/shop", server.addr())).await;
    ensure!(text.contains("no sentinel; the port"), "{text}");
    Ok(())
}

#[tokio::test]
async fn sentinels_that_cannot_be_reached_are_named() -> Result<()> {
    let url = "redis+sentinel://:hunter2@127.0.0.1:1,127.0.0.1:2/shop";
    let (kind, text) = refusal(url).await;
    ensure!(kind == ErrorKind::Unavailable, "{text}");
    ensure!(
        text.contains("127.0.0.1:1,127.0.0.1:2/shop") && !text.contains("hunter2"),
        "{text}"
    );
    Ok(())
}

/// Sentinels and servers have separate passwords, and each of them can be wrong.
#[tokio::test]
async fn passwords_of_sentinels_and_servers_are_told_apart() -> Result<()> {
    let sentinels = Sentinels::builder()
        .server(RedisServer::builder().password("data"))
        .sentinel_password("watch")
        .replicas(1)
        .start()?;
    let url = sentinels.url();
    let client = Client::connect(&url).await?;
    client.lock("stock").acquire().await?.release().await?;
    let (kind, text) = refusal(&url.replace("=watch", "=hunter2")).await;
    ensure!(
        kind == ErrorKind::Refused && text.contains("sentinel_password"),
        "{text}"
    );
    ensure!(
        !text.contains("hunter2") && !text.contains("data"),
        "{text}"
    );
    let (kind, text) = refusal(&url.replace(":data@", ":hunter2@")).await;
    ensure!(
        kind == ErrorKind::Refused && text.contains("authentication failed"),
        "{text}"
    );
    ensure!(!text.contains("hunter2"), "{text}");
    Ok(())
}

/// T76: the sentinels, or the server that they name, do not respond yet when a client connects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_sentinels_and_servers_that_do_not_answer_are_waited_for() -> Result<()> {
    let sentinels = Sentinels::builder().replicas(0).start()?;
    let (watchers, servers) = (sentinels.sentinels(), sentinels.nodes());
    for mute in [watchers, servers] {
        mute.iter().try_for_each(|node| node.freeze())?;
        let open = || mute.iter().try_for_each(|node| node.thaw());
        is_waited_for(builder(ms(4000)), &sentinels.url(), open).await?;
    }
    Ok(())
}
