//! What a lock that nobody else wants costs the server: commands inside the scripts, and bytes on the wire.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use testkit::servers::RedisServer;
use tidelock::Client;
use tidelock::testing::AnyLock;

const PAIRS: u64 = 200;

/// A client that sends nothing by itself.
async fn quiet(server: &RedisServer) -> Result<Client> {
    let builder = Client::builder().publish_process_info(false);
    Ok(builder.connect(&server.url()).await?)
}

/// Enough that the client has learned what it asks for in the background.
async fn warm_up(lock: &AnyLock) -> Result<()> {
    for _ in 0..PAIRS {
        lock.acquire().await?.release().await?;
    }
    Ok(())
}

/// The commands that the server runs for each of many pairs, and how long these take.
async fn commands(
    server: &RedisServer,
    lock: &AnyLock,
) -> Result<(BTreeMap<String, u64>, Duration)> {
    server.admin(&["CONFIG", "RESETSTAT"])?;
    let begun = Instant::now();
    for _ in 0..PAIRS {
        lock.acquire().await?.release().await?;
    }
    let took = begun.elapsed();
    let stats: String = server.query(&["INFO", "COMMANDSTATS"])?;
    let lines = stats.lines();
    let mut commands = BTreeMap::new();
    for line in lines.filter_map(|line| line.strip_prefix("cmdstat_")) {
        let (command, rest) = line.split_once(":calls=").context("a count")?;
        let calls: u64 = rest.split(',').next().context("a number")?.parse()?;
        if NOW_AND_THEN.contains(&command) {
            ensure!(calls <= PAIRS / 10, "{command}: {calls}");
            continue;
        }
        commands.insert(command.to_owned(), calls);
    }
    Ok((commands, took))
}

/// How many releases of a plain lock may count listeners in this time: a client believes for a second that the server
/// publishes no events, and asks again at the hundredth release after that. Until then its releases count.
fn may_count(took: Duration) -> u64 {
    100 * (took.as_secs() + 1)
}

/// The questions of this test, and what a client asks now and then: about the replicas, and about the setting.
const NOW_AND_THEN: [&str; 3] = ["config|resetstat", "config|get", "info"];

/// The commands of a pair, as those of all pairs.
fn counts(commands: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let owned = |(command, calls): &(&str, u64)| ((*command).to_owned(), *calls * PAIRS);
    commands.iter().map(owned).collect()
}

#[tokio::test]
async fn the_scripts_of_an_uncontended_lock_run_six_commands() -> Result<()> {
    let server = RedisServer::start()?;
    let lock = AnyLock::from(quiet(&server).await?.lock("stock"));
    warm_up(&lock).await?;
    let expected = [
        ("evalsha", 2),
        ("exists", 2),
        ("hset", 1),
        ("pexpire", 1),
        ("hdel", 1),
        ("publish", 1),
    ];
    assert_eq!(commands(&server, &lock).await?.0, counts(&expected));
    Ok(())
}

/// `SET NX` and a compare and delete run three. The fourth looks for the tombstone, which stops a late request.
#[tokio::test]
async fn the_scripts_of_an_uncontended_plain_lock_run_four_commands() -> Result<()> {
    let server = RedisServer::start()?;
    let lock = AnyLock::from(quiet(&server).await?.plain_lock("stock"));
    warm_up(&lock).await?;
    let expected = [
        ("evalsha", 2),
        ("exists", 1),
        ("set", 1),
        ("get", 1),
        ("del", 1),
    ];
    let (mut counted, took) = commands(&server, &lock).await?;
    let listened = counted.remove("pubsub|numsub").unwrap_or(0);
    ensure!(listened <= may_count(took), "{listened} in {took:?}");
    assert_eq!(counted, counts(&expected));
    // Where waiters may listen to the events of the key, a release counts them.
    server.admin(&["CONFIG", "SET", "notify-keyspace-events", "Kgx"])?;
    let lock = AnyLock::from(quiet(&server).await?.plain_lock("stock"));
    warm_up(&lock).await?;
    let mut expected = counts(&expected);
    expected.insert("pubsub|numsub".to_owned(), PAIRS);
    assert_eq!(commands(&server, &lock).await?.0, expected);
    Ok(())
}

/// The bytes that the server gets and sends for a pair: those of the cheapest of several rounds.
async fn bytes(server: &RedisServer, lock: &AnyLock) -> Result<[u64; 2]> {
    let total = || -> Result<[u64; 2]> {
        let read = |field| anyhow::Ok(server.info(field)?.parse()?);
        Ok([
            read("total_net_input_bytes")?,
            read("total_net_output_bytes")?,
        ])
    };
    warm_up(lock).await?;
    let mut least = [u64::MAX; 2];
    // In some rounds a client asks for something, or counts listeners until it does.
    for _ in 0..8 {
        // The question itself costs bytes too.
        let (first, before) = (total()?, total()?);
        for _ in 0..PAIRS / 4 {
            lock.acquire().await?.release().await?;
        }
        let after = total()?;
        let spent = |n: usize| (after[n] + first[n]).saturating_sub(2 * before[n]);
        let pair = |n: usize| spent(n).div_ceil(PAIRS / 4);
        least = [0, 1].map(|n| least[n].min(pair(n)));
    }
    Ok(least)
}

/// docs/decisions/0051 says which bytes these are.
#[tokio::test]
async fn an_uncontended_pair_sends_at_most_three_hundred_bytes() -> Result<()> {
    let server = RedisServer::start()?;
    let client = quiet(&server).await?;
    for (what, lock) in [
        ("a lock", AnyLock::from(client.lock("shop:stock:4711"))),
        (
            "a plain lock",
            AnyLock::from(client.plain_lock("shop:plain:4711")),
        ),
    ] {
        let [sent, answered] = bytes(&server, &lock).await?;
        println!("{what}: {sent} bytes, and {answered} of answers");
        ensure!(sent <= 300, "{what}: {sent} bytes");
        ensure!(answered <= 20, "{what}: {answered} bytes of answers");
    }
    Ok(())
}
