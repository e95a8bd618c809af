//! The primary is killed, is frozen, hands over in a planned failover, or is left behind and still responds.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::proxy::{Mode, Proxy, Way};
use testkit::servers::{RedisServer, Sentinels};
use tidelock::{AcquireOptions, Client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use real_servers::callers;
use real_servers::{SOON, boot_time, builder, eventually, insist, ms, within};

/// Sentinels that split their votes repeat the election some seconds later, and can split again.
pub(crate) const ELECTION: Duration = Duration::from_secs(40);

/// The time after the promotion of a new primary within which all clients must be able to lock again. They ask the
/// sentinels twice a second. It is much shorter than the lease and the response timeout, so that neither of them explains a
/// success.
const BACK: Duration = Duration::from_secs(5);

/// As [`BACK`], for the fastest of the clients: a busy machine may delay some of them, and hardly all. Shorter than the time until
/// a renewal, so that none explains a success.
fn first_back() -> Duration {
    ms(1500)
}

const LEASE: Duration = Duration::from_secs(12);

/// The time within which a release wakes the waiter: a third of the lease. One that hears no message asks again when
/// the lease ends that it has seen, which may be sooner than [`BACK`].
const WOKEN: Duration = Duration::from_secs(4);

/// The time within which the connections of a closed client end.
const CLOSED: Duration = Duration::from_secs(2);

/// Clients that share no state, so none of them learns from another one, and a task that waits for a lock.
struct Crowd {
    sentinels: Sentinels,
    clients: Vec<Client>,
}

impl Crowd {
    async fn gather() -> Result<Self> {
        let sentinels = Sentinels::start()?;
        let mut clients = Vec::new();
        for _ in 0..4 {
            // The response timeout is so long that only the sentinels can report a silent server in time.
            let patient = builder(LEASE).response_timeout(LEASE).connect_within(SOON);
            clients.push(patient.connect(&sentinels.url()).await?);
        }
        for client in &clients {
            client.lock("warm").acquire().await?.release().await?;
        }
        Ok(Self { sentinels, clients })
    }

    /// Each client retries until it has a lock of its own. Each task returns the boot time of its grant.
    fn try_all(&self) -> Vec<JoinHandle<Result<Duration>>> {
        let each = self.clients.iter().enumerate().map(|(number, client)| {
            let lock = client.lock(&format!("own {number}"));
            tokio::spawn(async move {
                let guard = insist(lock).await?;
                let begun = boot_time();
                // The key may be lost again. The release reports that, and it does not matter here.
                let _ = guard.release().await;
                Ok(begun)
            })
        });
        each.collect()
    }

    /// Triggers the fault, and checks that all clients are back in time: the waiter, and clients that start a new
    /// acquire.
    async fn survives(self, what: impl FnOnce(&Sentinels) -> Result<()>) -> Result<()> {
        let holder = self.clients[0].lock("stock").acquire().await?;
        let lock = self.clients[1].lock("stock");
        let waiter = tokio::spawn(async move {
            let guard = insist(lock).await?;
            anyhow::Ok((guard, boot_time()))
        });
        eventually(SOON, "somebody waits", || {
            let channel = "redisson_lock__channel:{stock}";
            let counts: Vec<(String, i64)> = self
                .sentinels
                .primary()?
                .query(&["PUBSUB", "NUMSUB", channel])
                .map(|pair: (String, i64)| vec![pair])?;
            Ok(counts[0].1 == 1)
        })?;
        let old = self.sentinels.primary()?;
        what(&self.sentinels)?;
        let trying = self.try_all();
        let new = self
            .sentinels
            .await_primary_other_than(old.addr(), ELECTION)?;
        let there = boot_time();
        let mut first = Duration::MAX;
        for one in trying {
            let begun = within(SOON, "a lock after the failover", one).await???;
            ensure!(
                begun <= there + BACK,
                "{:?} after the new primary was there",
                begun - there
            );
            first = first.min(begun);
        }
        ensure!(
            first <= there + first_back(),
            "the first {:?} after the new primary was there",
            first - there
        );
        // The old primary may serve requests for a while, so a client that has not heard of the new one still gets
        // locks from it.
        let since = boot_time();
        let arriving = self.clients.iter().map(|client| async move {
            arrives(client, new, there + BACK).await?;
            anyhow::Ok(boot_time())
        });
        let arrived = futures_util::future::try_join_all(arriving).await?;
        let first = arrived.into_iter().min().context("no client")?;
        ensure!(
            first <= since + first_back(),
            "the first locks there after {:?}",
            first - since
        );
        // The hold survived if the replica had it, and is lost otherwise. The waiter must get the lock in both cases.
        // No message tells of a hold that was lost, and its lease may go on for a while.
        let kept = holder.release().await.is_ok();
        let limit = if kept { WOKEN } else { BACK };
        let released = boot_time();
        let (guard, begun) = within(SOON, "the waiter is woken", waiter).await???;
        ensure!(
            begun <= released + limit,
            "woken {:?} after the release",
            begun - released
        );
        guard.release().await?;
        for client in &self.clients {
            client.close(Duration::ZERO).await;
        }
        for node in self.sentinels.nodes() {
            if node.port() != old.port() {
                eventually(CLOSED, "no connection is left", || Ok(callers(node)? == 0))?;
            }
        }
        Ok(())
    }
}

/// Acquires locks until one is on the given server. Fails if that takes longer than the limit.
async fn arrives(client: &Client, there: &RedisServer, by: Duration) -> Result<()> {
    loop {
        let lock = client.lock(&format!("who {:?}", boot_time()));
        let guard = insist(lock).await?;
        let found: i64 = there.query(&["EXISTS", guard.name()])?;
        // A lock from the old primary may be released on the new one, where nobody holds it: that release can fail.
        let given_back = guard.release().await;
        if found == 1 {
            return given_back.context("released where it was taken");
        }
        ensure!(boot_time() < by, "locks are still taken elsewhere");
    }
}

/// T33. The primary is killed, and the sentinels vote. All clients can lock again soon after the promotion of a
/// new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t33_a_killed_primary_is_followed() -> Result<()> {
    let crowd = Crowd::gather().await?;
    crowd
        .survives(|sentinels| sentinels.primary()?.kill())
        .await
}

/// T33, with a primary that keeps its connections open and sends nothing: only the sentinels can report it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t33_a_frozen_primary_is_left() -> Result<()> {
    let crowd = Crowd::gather().await?;
    crowd
        .survives(|sentinels| sentinels.primary()?.freeze())
        .await
}

/// T33, planned. The old primary serves requests for a while as if nothing had happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t33_a_planned_failover_is_followed() -> Result<()> {
    let crowd = Crowd::gather().await?;
    let ordered = |sentinels: &Sentinels| {
        let order = ["SENTINEL", "FAILOVER", sentinels.service()];
        sentinels.sentinels()[0].admin(&order).map(drop)
    };
    crowd.survives(ordered).await
}

/// T33, with a URL that names a single sentinel, which dies before the primary does. The client has learned the other
/// sentinels from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t33_sentinels_that_were_not_named_are_asked() -> Result<()> {
    let sentinels = Sentinels::start()?;
    let [named, others @ ..] = sentinels.sentinels() else {
        anyhow::bail!("no sentinels");
    };
    let url = format!("redis+sentinel://{}/{}", named.addr(), sentinels.service());
    let client = builder(LEASE).connect(&url).await?;
    for other in others {
        eventually(SOON, "it is asked too", || Ok(callers(other)? > 0))?;
    }
    named.kill()?;
    let old = sentinels.primary()?;
    old.kill()?;
    let new = sentinels.await_primary_other_than(old.addr(), ELECTION)?;
    arrives(&client, new, boot_time() + BACK).await
}

/// T33, with a URL that names a single sentinel, which answers later than sentinels usually do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t33_a_slow_sentinel_names_the_others() -> Result<()> {
    let sentinels = Sentinels::start()?;
    let [named, others @ ..] = sentinels.sentinels() else {
        anyhow::bail!("no sentinels");
    };
    let slow = Proxy::start(named.addr())?;
    slow.set(Way::ToClient, Mode::Delay(Duration::from_millis(150)));
    let url = format!("redis+sentinel://{}/{}", slow.addr(), sentinels.service());
    let patient = builder(LEASE).response_timeout(LEASE);
    let client = patient.connect(&url).await?;
    for other in others {
        eventually(SOON, "it is asked too", || Ok(callers(other)? > 0))?;
    }
    client.close(Duration::ZERO).await;
    Ok(())
}

/// Passes on the connection of a client, and counts what it says. Sentinels would tell each other of their primaries, and one
/// deployment would take over the other.
async fn forward(
    mut client: TcpStream,
    server: SocketAddr,
    asked: watch::Sender<u32>,
) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    let (mut said, mut answer) = ([0; 4096], [0; 4096]);
    let mut is_client = false;
    loop {
        tokio::select! {
            count = client.read(&mut said) => {
                let said = &said[..count?];
                is_client |= said.windows(5).any(|word| word == b"HELLO");
                if said.is_empty() || !is_client {
                    return Ok(());
                }
                asked.send_modify(|asked| *asked += 1);
                server.write_all(said).await?;
            }
            count = server.read(&mut answer) => match count? {
                0 => return Ok(()),
                count => client.write_all(&answer[..count]).await?,
            },
        }
    }
}

/// The address of a sentinel that has gone is given to a sentinel of another deployment, which knows a service of the same name and
/// has seen more failovers. The client has learned the address, so it asks there, and does not believe the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_sentinel_at_a_known_address_is_not_believed() -> Result<()> {
    let (sentinels, others) = (
        Sentinels::start()?,
        Sentinels::builder().replicas(1).start()?,
    );
    let foreign = others.failover()?;
    let [named, .., gone] = sentinels.sentinels() else {
        anyhow::bail!("no sentinels");
    };
    let url = format!("redis+sentinel://{}/{}", named.addr(), sentinels.service());
    let client = builder(LEASE).connect(&url).await?;
    eventually(SOON, "it is asked too", || Ok(callers(gone)? > 0))?;
    gone.kill()?;
    let address = TcpListener::bind(gone.addr()).await?;
    let upstream = others.sentinels()[0].addr();
    let (asked, mut questions) = watch::channel(0);
    let forwarder = tokio::spawn(async move {
        while let Ok((client, _)) = address.accept().await {
            tokio::spawn(forward(client, upstream, asked.clone()));
        }
    });
    // The handshake, and some queries after it.
    let often = questions.wait_for(|asked| *asked >= 8);
    within(SOON, "it is asked there", often).await??;
    let primary = sentinels.primary()?;
    arrives(&client, primary, boot_time() + BACK).await?;
    let strayed: i64 = foreign.query(&["DBSIZE"])?;
    ensure!(strayed == 0, "it has locked elsewhere");
    client.close(Duration::ZERO).await;
    forwarder.abort();
    Ok(())
}

/// T33, with a connection to a sentinel that leads nowhere, while another sentinel answers. It is not kept until TCP gives it
/// up: the other one may be gone before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t33_a_silent_sentinel_is_connected_to_again() -> Result<()> {
    let sentinels = Sentinels::start()?;
    let [silent, named, ..] = sentinels.sentinels() else {
        anyhow::bail!("no sentinels");
    };
    let silent = Proxy::start(silent.addr())?;
    let hosts = format!("{},{}", silent.addr(), named.addr());
    let url = format!("redis+sentinel://{hosts}/{}", sentinels.service());
    let client = builder(LEASE / 4).connect(&url).await?;
    let asked = silent.until(|proxy| proxy.count("SENTINEL") > 0);
    within(SOON, "both are asked", asked).await?;
    silent.set_both(Mode::Drop);
    let before = silent.accepted();
    // Each twentieth of the queries, which come twice a second, looks for silent ones.
    let again = silent.until(|proxy| proxy.accepted() > before);
    within(SOON * 3, "it is connected to again", again).await?;
    client.close(Duration::ZERO).await;
    Ok(())
}

/// T33, with a URL that names two sentinels, the first of which is frozen. The client learns of the third one from the
/// second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t33_a_frozen_sentinel_hides_no_other() -> Result<()> {
    let sentinels = Sentinels::start()?;
    let [frozen, named, other] = sentinels.sentinels() else {
        anyhow::bail!("three sentinels");
    };
    frozen.freeze()?;
    let hosts = format!("{},{}", frozen.addr(), named.addr());
    let url = format!("redis+sentinel://{hosts}/{}", sentinels.service());
    let client = builder(LEASE).connect(&url).await?;
    eventually(SOON, "it is asked too", || Ok(callers(other)? > 0))?;
    client.close(Duration::ZERO).await;
    frozen.thaw()?;
    Ok(())
}

/// T33, without any message: the sentinels name another server, but the old one has not been told, still responds and
/// still accepts writes. A waiter there is woken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t33_an_old_primary_that_still_answers_is_left() -> Result<()> {
    let sentinels = Sentinels::builder().replicas(1).start()?;
    let other = RedisServer::start()?;
    let (one, two) = (
        builder(LEASE).connect(&sentinels.url()).await?,
        builder(LEASE).connect(&sentinels.url()).await?,
    );
    let long = AcquireOptions::new().expires_after(Duration::from_secs(60));
    let _holder = one.lock("stock").acquire_with(long).await?;
    let waiter = tokio::spawn(two.lock("stock").acquire());
    let port = other.port().to_string();
    for sentinel in sentinels.sentinels() {
        sentinel.admin(&["SENTINEL", "REMOVE", "mymaster"])?;
        sentinel.admin(&["SENTINEL", "MONITOR", "mymaster", "127.0.0.1", &port, "2"])?;
    }
    let guard = within(BACK, "the waiter asks the new one", waiter).await???;
    let kept: i64 = other.query(&["EXISTS", "stock"])?;
    ensure!(kept == 1, "it holds the lock elsewhere");
    // The other client detects the change by itself.
    arrives(&one, &other, boot_time() + BACK).await?;
    guard.release().await?;
    Ok(())
}
