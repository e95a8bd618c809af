//! Keys and channels that the scripts derive from the name of a lock, and servers and proxies in front of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use redis::Value;
use testkit::proxy::{Proxy, Then, When};
use testkit::servers::RedisServer;
use tidelock::Client;
use tidelock::store::redis_scripts;
use tidelock::testing::AnyLock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

/// A client that sends nothing by itself.
async fn quiet(server: &RedisServer) -> Result<Client> {
    let builder = Client::builder().publish_process_info(false);
    Ok(builder.connect(&server.url()).await?)
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
    // One without a limit is given the usual one.
    server.admin(&["PERSIST", tombstone])?;
    assert_eq!(release()?, 0);
    let left: i64 = server.query(&["PTTL", tombstone])?;
    ensure!((290_000..=300_000).contains(&left), "{left}");
    Ok(())
}

/// A proxy that writes a prefix before each key changes what a script derives from the name as well. So the name of a
/// tombstone is derived by both scripts, or declared for both.
#[test]
fn a_withdrawal_writes_the_tombstone_for_which_an_attempt_looks() -> Result<()> {
    let server = RedisServer::start()?;
    let mut db = redis::Client::open(server.url())?.get_connection()?;
    let (acquire, release) = (redis_scripts::acquire(), redis_scripts::release());
    let redisson = (acquire, release, vec!["left:1", "publish", "60000"]);
    let (acquire, release) = (
        redis_scripts::plain_acquire(),
        redis_scripts::plain_release(),
    );
    let plain = (acquire, release, vec!["left:1", "", "60000"]);
    for (acquire, release, withdraw) in [redisson, plain] {
        for name in ["app:stock", "{app}:stock"] {
            let mut run = |script: &str, args: &[&str]| -> Result<Value> {
                let mut eval = redis::cmd("EVAL");
                eval.arg(script).arg(1).arg(name).arg(args);
                Ok(eval.query(&mut db)?)
            };
            assert_eq!(run(release, &withdraw)?, Value::Int(0));
            let refused = Value::Array(vec![Value::Int(2)]);
            assert_eq!(run(acquire, &["30000", "left:1"])?, refused, "{name}");
            assert_eq!(run(acquire, &["30000", "other:1"])?, Value::Int(1));
            server.admin(&["FLUSHALL"])?;
        }
    }
    Ok(())
}

/// The numbers of keys that the last calls of scripts declared.
fn declared(proxy: &Proxy) -> Vec<String> {
    let calls = proxy.log().into_iter();
    let calls = calls.filter(|call| matches!(&*call.name, "EVAL" | "EVALSHA"));
    calls
        .map(|call| String::from_utf8_lossy(&call.args[1]).into_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_and_its_withdrawal_declare_the_same_keys() -> Result<()> {
    let server = RedisServer::start()?;
    let other = quiet(&server).await?;
    for (n, keys) in ["1", "1", "3"].into_iter().enumerate() {
        let proxy = Proxy::start(server.addr())?;
        let builder = Client::builder().publish_process_info(false);
        let client = builder.connect(&proxy.url()).await?;
        let of = |client: &Client| -> AnyLock {
            match n {
                0 => client.lock("stock").into(),
                1 => client.plain_lock("plain").into(),
                _ => client.lock("fenced").fenced().into(),
            }
        };
        // Every script is there.
        let (lock, other) = (of(&client), of(&other));
        other.acquire().await?.release().await?;
        lock.acquire().await?.release().await?;
        proxy.reset_counts();
        let lost = proxy.on(When::command("EVALSHA", ""), Then::HoldReply);
        let waiting = tokio::spawn(async move { lock.acquire().await });
        lost.fired().await;
        waiting.abort();
        let withdrawn = proxy.until(|proxy| declared(proxy).len() > 1);
        tokio::time::timeout(Duration::from_secs(20), withdrawn).await?;
        let tombstone = if keys == "1" { "1" } else { "2" };
        assert_eq!(declared(&proxy)[..2], [keys, tombstone]);
        lost.release();
    }
    Ok(())
}

/// Random names of braces and other characters, and what each is made of.
fn names() -> impl Iterator<Item = String> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below).unwrap_or(0)
    };
    let parts = [
        "{", "}", "a", "\u{e4}", "\u{6f22}", "%", "^", " ", "{}", "\n",
    ];
    std::iter::repeat_with(move || {
        let length = 1 + random(9);
        (0..length).map(|_| parts[random(10)]).collect()
    })
}

#[test]
fn a_script_and_the_client_give_a_tombstone_the_same_name() -> Result<()> {
    let server = RedisServer::start()?;
    let mut db = redis::Client::open(server.url())?.get_connection()?;
    let script = format!(
        "{} return tombstone_of(KEYS[1], ARGV[1])",
        redis_scripts::TOMBSTONE
    );
    for name in names().take(2000) {
        let mut eval = redis::cmd("EVAL");
        let derived: String = (eval.arg(&script).arg(1).arg(&name).arg("me:1")).query(&mut db)?;
        assert_eq!(
            derived,
            redis_scripts::tombstone(&name, "me:1")?,
            "{name:?}"
        );
    }
    Ok(())
}

/// A proxy that refuses scripts that derive a key, as Dragonfly does. Counts the calls, and those that it has refused.
struct Declaring {
    addr: SocketAddr,
    counts: Arc<[AtomicU64; 2]>,
}

impl Declaring {
    /// `derive`: the hashes of the scripts that derive a key unless they have more than one.
    async fn before(server: SocketAddr, derive: Vec<String>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let counted = Arc::clone(&counts);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let counts = Arc::clone(&counted);
                tokio::spawn(Self::relay(client, server, derive.clone(), counts));
            }
        });
        Ok(Self { addr, counts })
    }

    /// The client sends one request after the other, so each comes alone.
    async fn relay(
        client: TcpStream,
        server: SocketAddr,
        derive: Vec<String>,
        counts: Arc<[AtomicU64; 2]>,
    ) -> Result<()> {
        let (mut from_client, to_client) = client.into_split();
        let (mut from_server, mut to_server) = TcpStream::connect(server).await?.into_split();
        let to_client = Arc::new(Mutex::new(to_client));
        let answers = Arc::clone(&to_client);
        tokio::spawn(async move {
            let mut answer = vec![0; 1 << 16];
            loop {
                let length = from_server.read(&mut answer).await?;
                if length == 0 {
                    return answers.lock().await.shutdown().await;
                }
                answers.lock().await.write_all(&answer[..length]).await?;
            }
        });
        let mut request = vec![0; 1 << 16];
        loop {
            let length = from_client.read(&mut request).await?;
            if length == 0 {
                return Ok(());
            }
            let text = String::from_utf8_lossy(&request[..length]);
            counts[0].fetch_add(text.matches("EVAL").count() as u64, Ordering::SeqCst);
            let derives = |sha| text.contains(&format!("{sha}\r\n$1\r\n1\r\n"));
            if !derive.iter().any(derives) {
                to_server.write_all(&request[..length]).await?;
                continue;
            }
            counts[1].fetch_add(1, Ordering::SeqCst);
            let words = "-ERR Error running script (call to 00): @user_script:1: script tried accessing undeclared key\r\n";
            to_client.lock().await.write_all(words.as_bytes()).await?;
        }
    }

    /// The calls since the previous look, and those of them that were refused.
    fn spent(&self) -> [u64; 2] {
        [0, 1].map(|n| self.counts[n].swap(0, Ordering::SeqCst))
    }
}

/// The first refusal costs one more request, and none is refused after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_wants_keys_declared_gets_them() -> Result<()> {
    let server = RedisServer::start()?;
    let load = |script| -> Result<String> { server.query(&["SCRIPT", "LOAD", script]) };
    load(redis_scripts::release())?;
    load(redis_scripts::plain_release())?;
    let derive = vec![
        load(redis_scripts::acquire())?,
        load(redis_scripts::plain_acquire())?,
    ];
    for is_plain in [false, true] {
        let proxy = Declaring::before(server.addr(), derive.clone()).await?;
        let builder = Client::builder().publish_process_info(false);
        let client = builder.connect(&format!("redis://{}", proxy.addr)).await?;
        let lock: AnyLock = if is_plain {
            client.plain_lock("plain").into()
        } else {
            client.lock("stock").into()
        };
        proxy.spent();
        let guard = lock.acquire().await?;
        assert_eq!(proxy.spent(), [2, 1]);
        guard.release().await?;
        for _ in 0..3 {
            lock.acquire().await?.release().await?;
        }
        assert_eq!(proxy.spent(), [7, 0]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_tries_the_form_that_locks_use() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let builder = Client::builder().publish_process_info(false);
    let client = builder.connect(&proxy.url()).await?;
    let load = ["SCRIPT", "LOAD", redis_scripts::acquire()];
    let acquire: String = server.query(&load)?;
    let used = || {
        let calls = proxy.log().into_iter();
        let calls = calls.filter(|call| call.args.first() == Some(&acquire.clone().into_bytes()));
        calls.map(|call| call.args[1].clone()).collect::<Vec<_>>()
    };
    client.lock("stock").acquire().await?.release().await?;
    let locks = used();
    ensure!(locks.len() == 1, "{locks:?}");
    proxy.reset_counts();
    client.diagnose().await?;
    let tries = used();
    ensure!(
        !tries.is_empty() && tries.iter().all(|keys| *keys == locks[0]),
        "{tries:?}"
    );
    Ok(())
}
