//! The number of round trips of each verb, counted on the wire, and the cost of waiting.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use real_servers::waiting::{A_MINUTE, cost_next_to_nothing, hand_overs};
use testkit::process::cpu_time;
use testkit::servers::MariaDb;
use tidelock::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::soon;

/// A proxy that counts the first packet of each command from the client: one such packet is one round trip.
struct Counter {
    addr: SocketAddr,
    commands: Arc<AtomicU64>,
}

impl Counter {
    async fn before(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let commands = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&commands);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, server, Arc::clone(&counted)));
            }
        });
        Ok(Self { addr, commands })
    }

    /// The total number of round trips.
    fn total(&self) -> u64 {
        self.commands.load(Ordering::SeqCst)
    }

    /// The number of round trips since the previous call.
    fn spent(&self) -> u64 {
        self.commands.swap(0, Ordering::SeqCst)
    }
}

async fn relay(client: TcpStream, server: SocketAddr, counted: Arc<AtomicU64>) -> Result<()> {
    let server = TcpStream::connect(server).await?;
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    loop {
        // The packet header: three bytes of length, and a sequence number that restarts at 0 with each command.
        let mut head = [0; 4];
        from_client.read_exact(&mut head).await?;
        if head[3] == 0 {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]);
        let mut packet = head.to_vec();
        packet.resize(4 + usize::try_from(length)?, 0);
        from_client.read_exact(&mut packet[4..]).await?;
        to_server.write_all(&packet).await?;
    }
}

async fn client(url: &str) -> Result<Client> {
    Ok(Client::builder()
        .publish_process_info(false)
        .connect(url)
        .await?)
}

/// Each verb takes one round trip once a connection is open.
#[tokio::test(flavor = "multi_thread")]
async fn each_verb_costs_one_trip() -> Result<()> {
    let server = MariaDb::start()?;
    let counter = Counter::before(server.addr()).await?;
    let a = client(&server.url_at(counter.addr, "tide")).await?;
    let lock = a.lock("stock").fenced();
    // The dropped guard is released on the second connection. After this, both connections are open.
    drop(lock.acquire().await?);
    soon("the lock is free", lock.acquire())
        .await?
        .release()
        .await?;
    counter.spent();
    let guard = lock.acquire().await?;
    assert_eq!(counter.spent(), 1, "acquire");
    assert!(lock.try_acquire().await?.is_none());
    assert_eq!(counter.spent(), 1, "try_acquire, refused");
    assert!(lock.inspect().await?.is_locked());
    assert_eq!(counter.spent(), 1, "inspect");
    assert_eq!(a.list("*").limit(10).await?, ["stock"]);
    assert_eq!(counter.spent(), 1, "list");
    guard.extend(Duration::from_secs(60)).await?;
    assert_eq!(counter.spent(), 1, "extend");
    guard.release().await?;
    assert_eq!(counter.spent(), 1, "release");
    let guard = lock.try_acquire().await?.context("it is free")?;
    assert_eq!(counter.spent(), 1, "try_acquire");
    assert!(lock.force_release().await?);
    assert_eq!(counter.spent(), 1, "force_release");
    drop(guard);
    Ok(())
}

/// A hundred locks are renewed with one statement.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_renewals_cost_one_trip() -> Result<()> {
    let server = MariaDb::start()?;
    let counter = Counter::before(server.addr()).await?;
    let builder = Client::builder()
        .publish_process_info(false)
        .lease(Duration::from_secs(6));
    let a = builder
        .connect(&server.url_at(counter.addr, "tide"))
        .await?;
    let mut guards = Vec::new();
    for n in 0..100 {
        guards.push(a.lock(&format!("stock:{n}")).acquire().await?);
    }
    counter.spent();
    tokio::time::sleep(Duration::from_secs(5)).await;
    // Two renewals. The locks were not all acquired at the same instant, and the first renewal also opens the
    // connection.
    let spent = counter.spent();
    assert!((2..=12).contains(&spent), "{spent} trips for 200 renewals");
    assert!(guards.iter().all(tidelock::Guard::is_held));
    Ok(())
}

/// A hundred waiters in one process cost as much as one.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_waiters_costs_little() -> Result<()> {
    const SECONDS: u64 = 10;
    let server = MariaDb::start()?;
    let counter = Counter::before(server.addr()).await?;
    let holder = client(&server.url()).await?;
    let held = holder.lock("stock").acquire().await?;
    let crowd = client(&server.url_at(counter.addr, "tide")).await?;
    let mut waiters = JoinSet::new();
    for _ in 0..100 {
        let lock = crowd.lock("stock");
        waiters.spawn(async move { lock.acquire().await?.release().await });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    counter.spent();
    let before = cpu_time(std::process::id())?;
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    let spent = counter.spent();
    println!(
        "{} trips a second, {:?} of a core in {SECONDS} s",
        spent / SECONDS,
        cpu_time(std::process::id())?.saturating_sub(before)
    );
    ensure!(spent <= 30 * SECONDS, "{spent} trips in {SECONDS} s");
    held.release().await?;
    for turn in soon("everybody's turn", waiters.join_all()).await {
        turn?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a minute: `cargo xtask full` runs it"]
async fn a_hundred_waiters_cost_next_to_nothing_for_a_minute() -> Result<()> {
    let server = MariaDb::start()?;
    let counter = Counter::before(server.addr()).await?;
    let held = client(&server.url()).await?.lock("stock").acquire().await?;
    let url = server.url_at(counter.addr, "tide");
    let peer = (env!("CARGO_BIN_EXE_peer"), &*url);
    cost_next_to_nothing(peer, held, A_MINUTE, || Ok(counter.total())).await
}

/// The time from a release in one client to the grant in another one, which polls.
#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_takes_half_a_pause() -> Result<()> {
    let server = MariaDb::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    // Each hold lasts long enough for the poll interval to reach its maximum. The holds differ in length, so the
    // releases fall at different points of that interval.
    let took = hand_overs(&a, &b, 30, |turn| Duration::from_millis(500 + turn * 7)).await?;
    let (median, worst) = (took[took.len() / 2], took[took.len() - 1]);
    println!("hand-over: median {median:?}, worst {worst:?}");
    ensure!(median <= Duration::from_millis(50), "{median:?}");
    Ok(())
}
