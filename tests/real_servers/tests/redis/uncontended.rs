//! What a lock that nobody else wants costs the server: commands inside the scripts, and bytes on the wire.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use redis::Value;
use testkit::servers::RedisServer;
use tidelock::Client;
use tidelock::store::redis_scripts;
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

/// The commands that the server runs for each of many pairs.
async fn commands(server: &RedisServer, lock: &AnyLock) -> Result<BTreeMap<String, u64>> {
    server.admin(&["CONFIG", "RESETSTAT"])?;
    for _ in 0..PAIRS {
        lock.acquire().await?.release().await?;
    }
    let stats: String = server.query(&["INFO", "COMMANDSTATS"])?;
    let lines = stats.lines();
    let mut commands = BTreeMap::new();
    for line in lines.filter_map(|line| line.strip_prefix("cmdstat_")) {
        let (command, rest) = line.split_once(":calls=").context("a count")?;
        let calls: u64 = rest.split(',').next().context("a number")?.parse()?;
        // A look at the replicas or at a setting now and then is less than one for each pair.
        if calls >= PAIRS {
            commands.insert(command.to_owned(), calls / PAIRS);
        }
    }
    Ok(commands)
}

fn counts(commands: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let owned = |(command, calls): &(&str, u64)| ((*command).to_owned(), *calls);
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
    assert_eq!(commands(&server, &lock).await?, counts(&expected));
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
    assert_eq!(commands(&server, &lock).await?, counts(&expected));
    // Where waiters may listen to the events of the key, a release counts them.
    server.admin(&["CONFIG", "SET", "notify-keyspace-events", "Kgx"])?;
    let lock = AnyLock::from(quiet(&server).await?.plain_lock("stock"));
    warm_up(&lock).await?;
    let mut expected = counts(&expected);
    expected.insert("pubsub|numsub".to_owned(), 1);
    assert_eq!(commands(&server, &lock).await?, expected);
    Ok(())
}

/// The bytes that the server gets and sends for a pair.
async fn bytes(server: &RedisServer, lock: &AnyLock) -> Result<[u64; 2]> {
    let total = || -> Result<[u64; 2]> {
        let read = |field| anyhow::Ok(server.info(field)?.parse()?);
        Ok([
            read("total_net_input_bytes")?,
            read("total_net_output_bytes")?,
        ])
    };
    warm_up(lock).await?;
    // What the question itself costs.
    let (first, before) = (total()?, total()?);
    for _ in 0..PAIRS {
        lock.acquire().await?.release().await?;
    }
    let after = total()?;
    let spent = |n: usize| (after[n] + first[n]).saturating_sub(2 * before[n]);
    Ok([0, 1].map(|n| spent(n).div_ceil(PAIRS)))
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
        // The answer to a question about the setting, or a beat, is spread over all pairs.
        ensure!(answered <= 20, "{what}: {answered} bytes of answers");
    }
    Ok(())
}

/// A script that is not given the tombstone builds its name, and a withdrawal writes it under that name.
#[test]
fn a_withdrawn_owner_is_refused_whatever_braces_are_in_the_name() -> Result<()> {
    let server = RedisServer::start()?;
    let mut db = redis::Client::open(server.url())?.get_connection()?;
    for (name, tag) in [
        ("abc", "abc"),
        ("{a}:b", "a"),
        ("x{y}z{w}", "y"),
        ("{}a{b}", "{}a{b}"),
        ("a{b", "a{b"),
        ("a}b", "a}b"),
        ("{a{b}c}", "a{b"),
        ("%d{.}[a]-^$", "."),
        ("\u{e4} {\u{6f22}}", "\u{6f22}"),
    ] {
        for script in [redis_scripts::acquire(), redis_scripts::plain_acquire()] {
            let mut acquire = |owner: &str| -> Result<Value> {
                let mut eval = redis::cmd("EVAL");
                eval.arg(script).arg(1).arg(name).arg("30000").arg(owner);
                Ok(eval.query(&mut db)?)
            };
            let tombstone = format!("tidelock:withdrawn:{{{tag}}}:left:1");
            server.admin(&["SET", &tombstone, "1"])?;
            let refused = Value::Array(vec![Value::Int(2)]);
            assert_eq!(acquire("left:1")?, refused, "{name}");
            assert_eq!(acquire("other:1")?, Value::Int(1), "{name}");
            // Withdrawn while another owner holds it.
            assert_eq!(acquire("left:1")?, refused, "{name}");
            server.admin(&["FLUSHALL"])?;
        }
    }
    Ok(())
}

/// The script has no tombstone in KEYS, so it writes under a name that it builds. That write has no effect.
#[test]
fn a_release_in_vain_leaves_nothing_and_shortens_no_tombstone() -> Result<()> {
    let server = RedisServer::start()?;
    let mut db = redis::Client::open(server.url())?.get_connection()?;
    let mut release = || -> Result<i64> {
        let mut eval = redis::cmd("EVAL");
        eval.arg(redis_scripts::plain_release());
        Ok(eval.arg(1).arg("stock").arg("me:1").query(&mut db)?)
    };
    assert_eq!(release()?, 0);
    assert!(server.keys()?.is_empty());
    let tombstone = "tidelock:withdrawn:{stock}:me:1";
    server.admin(&["SET", tombstone, "1", "PX", "60000"])?;
    assert_eq!(release()?, 0);
    let left: i64 = server.query(&["PTTL", tombstone])?;
    ensure!((50_000..=60_000).contains(&left), "{left}");
    Ok(())
}
