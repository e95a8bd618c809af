//! A cluster node given as a single server. It owns only some of the locks, so the client refuses it, however it is
//! addressed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::proxy::Proxy;
use testkit::servers::{Cluster, RedisServer, Sentinels};
use tidelock::redis::Topology;
use tidelock::{Error, ErrorKind};

use crate::shared;
use real_servers::{SOON, builder, eventually, insist, ms, within};

/// A lease whose tenth a refusal does not take, even on a busy machine.
const PATIENT: Duration = Duration::from_secs(30);

/// A node that does not own the lock "stock".
fn elsewhere() -> Result<usize> {
    let cluster = shared();
    let owner = cluster.node_of("stock")?.port();
    let others = cluster.primaries()?;
    let other = others.iter().find(|node| node.port() != owner);
    let port = other.map(|node| node.port());
    let nodes = cluster.nodes();
    Ok(nodes
        .iter()
        .position(|node| Some(node.port()) == port)
        .unwrap_or(0))
}

fn is_refused(error: &Error) -> Result<()> {
    let text = error.to_string();
    ensure!(error.kind() == ErrorKind::InvalidOptions, "{error:?}");
    ensure!(!error.is_retryable(), "{error:?}");
    ensure!(text.contains("redis+cluster://"), "{text}");
    Ok(())
}

#[tokio::test]
async fn t70_a_node_of_a_cluster_is_refused_as_a_single_server() -> Result<()> {
    let cluster = shared();
    let node = &cluster.nodes()[elsewhere()?];
    let urls = [
        node.url(),
        format!("{}/3", node.url()),
        format!("{}?locks=plain", node.url()),
        node.unix_url(),
    ];
    for url in urls {
        let began = Instant::now();
        let Err(error) = builder(PATIENT).connect(&url).await else {
            anyhow::bail!("{url}: let in");
        };
        is_refused(&error)?;
        ensure!(began.elapsed() < PATIENT / 10, "{url}: not at once");
    }
    let parts = [
        Topology::one(node.addr().to_string()),
        Topology::one(node.addr().to_string()).plain_locks(true),
        Topology::socket(node.socket()),
    ];
    for servers in parts {
        let Err(error) = servers.clone().connect(builder(PATIENT)).await else {
            anyhow::bail!("{servers:?}: let in");
        };
        is_refused(&error)?;
    }
    Ok(())
}

/// Sentinels can monitor any server, and so also a cluster node.
#[tokio::test]
async fn t70_a_node_of_a_cluster_that_sentinels_name_is_refused() -> Result<()> {
    let (cluster, sentinels) = (shared(), Sentinels::start()?);
    let node = &cluster.nodes()[elsewhere()?];
    let port = node.port().to_string();
    for sentinel in sentinels.sentinels() {
        sentinel.admin(&["SENTINEL", "MONITOR", "shop", "127.0.0.1", &port, "2"])?;
    }
    let url = sentinels.url().replace("/mymaster", "/shop");
    let Err(error) = builder(PATIENT).connect(&url).await else {
        anyhow::bail!("let in");
    };
    is_refused(&error)
}

/// The server restarts as a cluster node, or another server takes over its address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t70_a_server_that_becomes_a_node_is_refused_behind_a_live_client() -> Result<()> {
    let lease = ms(4000);
    let (cluster, server) = (shared(), RedisServer::start()?);
    let proxy = Proxy::start(server.addr())?;
    let client = builder(lease).connect(&proxy.url()).await?;
    let plain = builder(lease)
        .connect(&format!("{}?locks=plain", proxy.url()))
        .await?;
    let guard = client.lock("held").acquire().await?;
    let direct = builder(lease).connect(&server.url()).await?;
    let other = direct.lock("awaited").acquire().await?;
    let waiter = tokio::spawn(client.lock("awaited").acquire());
    eventually(lease, "somebody waits", || {
        let channel = "redisson_lock__channel:{awaited}";
        let (_, count): (String, i64) = server.query(&["PUBSUB", "NUMSUB", channel])?;
        Ok(count == 1)
    })?;
    proxy.set_upstream(cluster.nodes()[elsewhere()?].addr());
    proxy.cut();
    let began = Instant::now();
    let error = client.lock("stock").acquire().await.map(drop).unwrap_err();
    is_refused(&error)?;
    let error = plain.lock("stock").acquire().await.map(drop).unwrap_err();
    is_refused(&error)?;
    let told = within(lease, "the waiter is told", waiter).await??;
    is_refused(&told.map(drop).unwrap_err())?;
    ensure!(began.elapsed() < lease / 2, "{:?}", began.elapsed());
    // The client can no longer reach the server that has the key.
    within(lease, "the holder is told", guard.lost()).await?;
    drop(other);
    direct.close(ms(0)).await;
    client.close(ms(0)).await;
    plain.close(ms(0)).await;
    Ok(())
}

/// A cluster whose nodes do not reveal that they are cluster nodes.
fn undisclosed() -> Result<Cluster> {
    let server = RedisServer::builder().args(["--rename-command", "HELLO", ""]);
    Cluster::builder().replicas(0).server(server).start()
}

/// The server does not reveal that it is a cluster node; its redirection does.
#[tokio::test]
async fn t70_a_redirection_is_no_outage_for_a_single_server() -> Result<()> {
    let cluster = undisclosed()?;
    let owner = cluster.node_of("stock")?.port();
    let others = cluster.primaries()?;
    let node = others.iter().find(|node| node.port() != owner);
    let Some(node) = node else {
        anyhow::bail!("one node has all slots");
    };
    for choice in ["", "?locks=plain"] {
        let client = builder(PATIENT)
            .connect(&format!("{}{choice}", node.url()))
            .await?;
        let began = Instant::now();
        let error = client.lock("stock").acquire().await.map(drop).unwrap_err();
        is_refused(&error)?;
        ensure!(began.elapsed() < PATIENT / 10, "{:?}", began.elapsed());
        let error = client
            .lock("stock")
            .try_acquire()
            .await
            .map(drop)
            .unwrap_err();
        is_refused(&error)?;
    }
    Ok(())
}

/// A proxy in front of several servers refuses a request with keys of several slots. So does a node, which stands for it here:
/// all locks are its own. The locks of a client are renewed all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_several_slots_are_renewed_where_no_request_may_name_two() -> Result<()> {
    let (cluster, lease) = (undisclosed()?, ms(3000));
    let node = cluster.node_of("stock")?;
    node.admin(&[
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">secret",
        "~*",
        "&*",
        "+@all",
        "-@scripting",
    ])?;
    let mut own = Vec::new();
    for name in (0..100).map(|n| format!("stock:{n}")) {
        if cluster.node_of(&name)?.port() == node.port() {
            own.push(name);
        }
    }
    let (mut clients, mut held) = (Vec::new(), Vec::new());
    for (user, choice) in [
        ("", ""),
        ("", "?locks=plain"),
        ("app:secret@", "?locks=plain"),
    ] {
        let url = format!("redis://{user}{}{choice}", node.addr());
        // The node answers each request, on a busy machine perhaps late.
        let patient = builder(lease).response_timeout(lease * 2);
        let client = patient.connect_within(SOON).connect(&url).await?;
        // No other client has these.
        for name in own.split_off(own.len() - 3) {
            held.push(client.lock(&name).acquire().await?);
        }
        clients.push(client);
    }
    tokio::time::sleep(lease * 3 / 2).await;
    for guard in held {
        guard.release().await?;
    }
    Ok(())
}

/// Forwards every connection to another address, and counts them.
async fn forward(
    listener: tokio::net::TcpListener,
    to: std::net::SocketAddr,
    count: Arc<AtomicUsize>,
) {
    while let Ok((mut here, _)) = listener.accept().await {
        count.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            if let Ok(mut there) = tokio::net::TcpStream::connect(to).await {
                // Either side may close the connection, so we ignore the error.
                let _ = tokio::io::copy_bidirectional(&mut here, &mut there).await;
            }
        });
    }
}

/// The server gets the address of a node of a cluster, while a client of that cluster lives.
async fn grants_nothing_in_the_place_of_a_node(stranger: &RedisServer) -> Result<()> {
    let cluster = Cluster::builder().replicas(0).start()?;
    let client = builder(PATIENT).connect(&cluster.url()).await?;
    client.lock("stock").acquire().await?.release().await?;
    let node = cluster.node_of("stock")?;
    node.kill()?;
    let listener = tokio::net::TcpListener::bind(node.addr()).await?;
    let connections = Arc::new(AtomicUsize::new(0));
    // It ends with the runtime of this test.
    tokio::spawn(forward(listener, stranger.addr(), Arc::clone(&connections)));
    let options = tidelock::AcquireOptions::new().wait(ms(2000));
    let granted = client.lock("stock").acquire_with(options).await;
    ensure!(granted.is_err(), "by a server that is no node");
    ensure!(stranger.keys()?.is_empty(), "{:?}", stranger.keys()?);
    let asked: String = stranger.query(&["INFO", "commandstats"])?;
    ensure!(
        connections.load(Ordering::SeqCst) > 0 && asked.contains("cmdstat_hello"),
        "it was not asked at all: {asked}"
    );
    Ok(())
}

/// The reverse: a standalone server has the address of a cluster node. It would accept every request and grant a lock
/// that a promoted replica grants as well.
#[tokio::test]
async fn t70_a_server_in_the_place_of_a_node_grants_nothing() -> Result<()> {
    grants_nothing_in_the_place_of_a_node(&RedisServer::start()?).await
}

/// A node of another cluster accepts the requests for its own slots.
#[tokio::test]
async fn t70_a_node_of_another_cluster_in_the_place_of_a_node_grants_nothing() -> Result<()> {
    let another = Cluster::builder().primaries(1).replicas(0).start()?;
    grants_nothing_in_the_place_of_a_node(&another.nodes()[0]).await
}

/// The address of the URL leads to another cluster, and the first node of the old one is killed. A client that moved at once
/// would have a lock that a holder of the old cluster still has.
async fn is_left_after_a_lease(old: &Cluster) -> Result<()> {
    let lease = ms(6000);
    let new = Cluster::builder().primaries(1).replicas(0).start()?;
    let proxy = Proxy::start(old.nodes()[0].addr())?;
    let url = format!("redis+cluster://{}", proxy.addr());
    let patient = || builder(lease).response_timeout(lease / 10);
    let (client, other) = (
        patient().connect_within(SOON).connect(&url).await?,
        patient().connect_within(SOON).connect(&url).await?,
    );
    let guard = client.lock("stock").acquire().await?;
    old.nodes()[0].kill()?;
    proxy.set_upstream(new.nodes()[0].addr());
    proxy.cut();
    let again = within(SOON * 4, "the new cluster", insist(other.lock("stock"))).await??;
    ensure!(!guard.is_held(), "two holders");
    again.release().await?;
    client.close(ms(0)).await;
    other.close(ms(0)).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_another_one_has_replaced_is_left_after_a_lease() -> Result<()> {
    is_left_after_a_lease(&Cluster::builder().primaries(1).replicas(0).start()?).await
}

/// The node that is left over knows the old nodes, and reports that its cluster is down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_left_over_keeps_no_client_from_a_new_cluster() -> Result<()> {
    is_left_after_a_lease(&Cluster::builder().primaries(2).replicas(0).start()?).await
}
