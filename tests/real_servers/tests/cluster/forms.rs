//! Release messages in two forms, plain and sharded: every waiter is woken whichever form it hears, and no message is
//! sent without a listener.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::servers::{Cluster, Flavour, RedisServer};
use tidelock::Client;

use real_servers::{SOON, builder, eventually, ms, within};

/// So long that only a message can wake a waiter in time.
const LEASE: Duration = Duration::from_secs(30);

/// After a change of the cluster, releases are sent in both forms for 30 s. This is a little longer.
const SETTLED: Duration = Duration::from_millis(30_500);

/// A subscriber that hears one form only, as a Java service does, and stays at one node.
struct Ear {
    stream: TcpStream,
    heard: String,
}

impl Ear {
    fn at(node: &RedisServer, subscribe: &str, name: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(node.addr())?;
        stream.set_read_timeout(Some(ms(10)))?;
        write!(stream, "{subscribe} redisson_lock__channel:{{{name}}}\r\n")?;
        let heard = String::new();
        let mut ear = Self { stream, heard };
        eventually(SOON, "the subscription stands", || {
            Ok(ear.listen()?.contains(":1"))
        })?;
        ear.heard.clear();
        Ok(ear)
    }

    fn listen(&mut self) -> Result<&str> {
        let mut bytes = [0; 4096];
        if let Ok(count) = self.stream.read(&mut bytes) {
            self.heard.push_str(std::str::from_utf8(&bytes[..count])?);
        }
        Ok(&self.heard)
    }

    /// Waits for a message and returns its payload.
    fn message(&mut self) -> Result<String> {
        eventually(LEASE / 10, "a message", || {
            Ok(self.listen()?.contains("message"))
        })?;
        eventually(LEASE / 10, "the rest of it", || {
            Ok(self.listen()?.ends_with("0\r\n"))
        })?;
        let heard = std::mem::take(&mut self.heard);
        Ok(heard
            .trim_end()
            .rsplit("\r\n")
            .next()
            .unwrap_or_default()
            .to_owned())
    }
}

/// The number of calls of this publish command at a node.
fn published(node: &RedisServer, command: &str) -> Result<u64> {
    let stats: String = node.query(&["INFO", "COMMANDSTATS"])?;
    let prefix = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&*prefix));
    let calls = line.and_then(|line| line.split(',').next());
    Ok(calls.map_or(Ok(0), str::parse)?)
}

/// The number of tidelock processes that the node counts as waiters for a lock.
fn counted(node: &RedisServer, name: &str) -> Result<i64> {
    let own = format!("tidelock:waiting:{{{name}}}");
    let (_, count): (String, i64) = node.query(&["PUBSUB", "SHARDNUMSUB", &own])?;
    Ok(count)
}

fn knows_shards(cluster: &Cluster) -> bool {
    cluster.nodes()[0].flavour() != Flavour::Redis62
}

/// `to` waits for a lock that `from` holds, and gets it after the release.
async fn pass(from: &Client, to: &Client, node: &RedisServer, name: &str) -> Result<()> {
    let guard = from.lock(name).acquire().await?;
    let waiter = tokio::spawn(to.lock(name).acquire());
    eventually(SOON, "it waits and is counted", || {
        Ok(counted(node, name)? == 1)
    })?;
    guard.release().await?;
    within(LEASE / 10, "woken", waiter)
        .await???
        .release()
        .await?;
    Ok(())
}

/// A plain message goes to every node of the cluster, so it is sent only if there is a listener for it. For half a
/// minute after a slot migration it is always sent, because a listener may still be subscribed at another node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t71_only_those_who_need_it_are_told_in_the_plain_form() -> Result<()> {
    let cluster = Cluster::start()?;
    if !knows_shards(&cluster) {
        return Ok(());
    }
    let (one, two) = (
        builder(LEASE).connect(&cluster.url()).await?,
        builder(LEASE).connect(&cluster.url()).await?,
    );
    let node = cluster.node_of("stock")?;
    // A plain listener at another node, as after a migration: the publishing node does not count it.
    let other = cluster
        .primaries()?
        .into_iter()
        .find(|other| other.port() != node.port());
    let mut far = Ear::at(other.context("three primaries")?, "SUBSCRIBE", "stock")?;
    one.lock("stock").acquire().await?.release().await?;
    ensure!(far.message()? == "0");
    tokio::time::sleep(SETTLED).await;

    let (plain, sharded) = (published(node, "publish")?, published(node, "spublish")?);
    for _ in 0..5 {
        one.lock("stock").acquire().await?.release().await?;
    }
    pass(&one, &two, node, "stock").await?;
    ensure!(published(node, "publish")? == plain, "nobody needs it");
    ensure!(published(node, "spublish")? == sharded + 7);

    // Two listeners of one form each, next to a tidelock process that hears both.
    let mut ears = [
        Ear::at(node, "SUBSCRIBE", "stock")?,
        Ear::at(node, "SSUBSCRIBE", "stock")?,
    ];
    pass(&one, &two, node, "stock").await?;
    let heard = [ears[0].message()?, ears[1].message()?];
    // The second payload marks a duplicate, so that a listener of both forms sees one release.
    ensure!(heard == ["0", "00"], "{heard:?}");
    drop(ears);

    let slot = cluster.slot_of("stock")?;
    let mut stays = Ear::at(node, "SUBSCRIBE", "stock")?;
    cluster.failover(slot)?;
    one.lock("stock").acquire().await?.release().await?;
    ensure!(
        stays.message()? == "0",
        "whoever has not followed yet hears it too"
    );
    for client in [one, two] {
        client.close(Duration::ZERO).await;
    }
    Ok(())
}

/// A user with the rights for one form only is woken by that form, and polls at intervals in case the other form is
/// used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t71_with_the_right_to_one_form_waiters_are_woken_in_it() -> Result<()> {
    let acl = "user plain on >p ~* &* +@all -ssubscribe -spublish\n\
               user sharded on >s ~* &* +@all -subscribe -publish\n\
               user blind on >b ~* &* +@all -pubsub|numsub";
    let server = RedisServer::builder().acl(acl);
    let cluster = Cluster::builder().replicas(0).server(server).start()?;
    if !knows_shards(&cluster) {
        return Ok(());
    }
    let connect = async |user: &str| {
        let url = cluster.url_as(user, &user[..1]);
        builder(LEASE).connect(&url).await
    };
    for user in ["plain", "sharded", "blind"] {
        let (one, two) = (connect(user).await?, connect(user).await?);
        let node = cluster.node_of(user)?;
        let guard = one.lock(user).acquire().await?;
        let waiter = tokio::spawn(two.lock(user).acquire());
        crate::heard_at(node, user, SOON)?;
        guard.release().await?;
        let guard = within(LEASE / 10, "woken in that form", waiter).await???;
        if user != "blind" {
            // A wait that ran out leaves the client subscribed for a while, so the next one begins with a wake.
            let early = one.lock(user).acquire_timeout(ms(200)).await;
            ensure!(early.is_err(), "it is held");
            // The key is deleted without a message in this waiter's form, so the waiter has to poll. The other client
            // is still subscribed from before.
            let waiter = tokio::spawn(one.lock(user).acquire());
            eventually(
                SOON,
                "both listen",
                || Ok(crate::listeners(node, user) == 2),
            )?;
            tokio::time::sleep(ms(100)).await;
            ensure!(!waiter.is_finished(), "it is held");
            node.admin(&["DEL", user])?;
            drop(within(LEASE / 3, "looked for itself", waiter).await???);
        }
        // An error means that the key was deleted.
        let _ = guard.release().await;
        for client in [one, two] {
            client.close(Duration::ZERO).await;
        }
    }
    Ok(())
}

/// Both forms share one connection. When it is killed, the waiter subscribes again and retries, and nothing is left
/// over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t71_waiters_whose_connection_is_killed_hear_both_forms_again() -> Result<()> {
    let cluster = Cluster::builder().replicas(0).start()?;
    if !knows_shards(&cluster) {
        return Ok(());
    }
    let (one, two) = (
        builder(LEASE).connect(&cluster.url()).await?,
        builder(LEASE).connect(&cluster.url()).await?,
    );
    let node = cluster.node_of("stock")?;
    for _ in 0..5 {
        let guard = one.lock("stock").acquire().await?;
        let waiter = tokio::spawn(two.lock("stock").acquire());
        eventually(SOON, "it is counted", || Ok(counted(node, "stock")? == 1))?;
        node.admin(&["CLIENT", "KILL", "TYPE", "pubsub"])?;
        guard.release().await?;
        within(LEASE / 10, "woken", waiter)
            .await???
            .release()
            .await?;
    }
    let guard = one.lock("stock").acquire().await?;
    let waiter = tokio::spawn(two.lock("stock").acquire());
    eventually(SOON, "it is counted again", || {
        Ok(counted(node, "stock")? == 1)
    })?;
    let seen = one.lock("stock").inspect().await?;
    ensure!(
        seen.waiters == Some(1),
        "one process, heard in two forms: {seen:?}"
    );
    guard.release().await?;
    within(LEASE / 10, "woken", waiter)
        .await???
        .release()
        .await?;
    for client in [one, two] {
        client.close(Duration::ZERO).await;
    }
    eventually(SOON, "nothing is left", || {
        Ok(counted(node, "stock")? == 0 && crate::listeners(node, "stock") == 0)
    })?;
    Ok(())
}
