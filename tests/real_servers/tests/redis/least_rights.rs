//! The line in `docs/guarantees.md` that lists a user's least rights: the list is sufficient, and no entry is
//! superfluous.

use std::fmt::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use real_servers::{ms, secs};
use testkit::servers::RedisServer;
use testkit::workspace;
use tidelock::{Client, ErrorKind, Severity};

use crate::listeners;

/// A wake must come within half of it. A busy machine may need a second for a request.
fn lease() -> Duration {
    secs(3)
}

/// A waiter of a fair lock that hears nothing finds its grant with the next beat, which comes after two seconds.
const HANDED_OVER: Duration = Duration::from_millis(1500);

/// Reached only if a member of a barrier waits in vain.
const HANGS: Duration = Duration::from_secs(24);

/// The rights from the document, without the user's name and password.
fn rights() -> Result<Vec<String>> {
    let page = std::fs::read_to_string(workspace().join("docs/guarantees.md"))?;
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix("ACL SETUSER locks on >PASSWORD "));
    let rights = line.context("the page has no such line")?;
    Ok(rights.split(' ').map(str::to_owned).collect())
}

/// A server on which the user `locks` has these rights, and no other user has any.
fn server(rights: &[String]) -> Result<RedisServer> {
    let server = RedisServer::builder().acl("user default off").start()?;
    let user = ["ACL", "SETUSER", "locks", "on", ">secret"].map(str::to_owned);
    server.admin(&[&user, rights].concat())?;
    Ok(server)
}

async fn login(server: &RedisServer) -> tidelock::Result<Client> {
    Client::builder()
        .lease(lease())
        .response_timeout(lease())
        .connect(&format!("redis://locks:secret@{}", server.addr()))
        .await
}

/// Returns when a hold was renewed: it is proved for longer than before. `left` tells for how long that is.
async fn renewed(left: impl Fn() -> Duration) -> Result<()> {
    let (begun, mut before) = (Instant::now(), left());
    loop {
        tokio::time::sleep(ms(10)).await;
        let now = left();
        if now > before {
            return Ok(());
        }
        ensure!(begun.elapsed() < lease() * 7 / 6, "lost: not renewed");
        before = now;
    }
}

/// Everything that is wrong on a server with these rights: requests that are refused, and findings of the doctor.
async fn complaints(server: &RedisServer) -> Result<Vec<String>> {
    let mut said = Vec::new();
    let client = match login(server).await {
        Ok(client) => client,
        Err(error) => return Ok(vec![format!("connect: {error}")]),
    };
    for finding in client.diagnose().await? {
        // Persistence has nothing to do with the user's rights.
        let blind = finding.found.contains("cannot see");
        if blind || finding.subject.contains("rights") && finding.severity != Severity::Good {
            said.push(format!("doctor: {}: {}", finding.subject, finding.found));
        }
    }
    let work: [(&str, Result<()>); 13] = [
        ("lock", lock(server, &client).await),
        ("fenced", fenced(&client).await),
        ("forced", forced(&client).await),
        ("look", look(&client).await),
        ("wait", wait(server, &client).await),
        ("fair", fair(&client).await),
        ("sides", sides(server, &client).await),
        ("latch", latch(server, &client).await),
        ("once", real_servers::runs_once(&client, "shop:8").await),
        ("election", real_servers::leads(&client, "shop:9").await),
        ("semaphore", semaphore(server, &client).await),
        ("counting", counting(&client).await),
        ("barrier", barrier(server, &client).await),
    ];
    for (name, done) in work {
        if let Err(error) = done {
            said.push(format!("{name}: {error:#}"));
        }
    }
    client.close(Duration::ZERO).await;
    Ok(said)
}

async fn lock(server: &RedisServer, client: &Client) -> Result<()> {
    let guard = client.lock("shop:1").acquire().await?;
    renewed(|| guard.valid_for()).await?;
    ensure!(guard.is_held(), "lost: not renewed");
    ensure!(server.query::<i64, _>(&["PTTL", "shop:1"])? > 0);
    guard.release().await?;
    ensure!(
        server.query::<i64, _>(&["EXISTS", "shop:1"])? == 0,
        "not freed"
    );
    Ok(())
}

async fn fenced(client: &Client) -> Result<()> {
    let guard = client.lock("shop:2").fenced().acquire().await?;
    Ok(guard.release().await?)
}

async fn forced(client: &Client) -> Result<()> {
    let guard = client.lock("shop:3").acquire().await?;
    ensure!(client.lock("shop:3").force_release().await?, "was free");
    let late = guard.release().await.map_err(|error| error.kind());
    ensure!(late == Err(ErrorKind::Lost), "{late:?}");
    Ok(())
}

async fn look(client: &Client) -> Result<()> {
    let guard = client.lock("shop:4").fenced().acquire().await?;
    let seen = client.lock("shop:4").inspect().await?;
    ensure!(
        seen.is_locked() && seen.token == Some(guard.token()),
        "{seen:?}"
    );
    ensure!(seen.waiters == Some(0), "{seen:?}");
    ensure!(
        seen.holders.iter().all(|holder| holder.client.is_some()),
        "without details: {seen:?}"
    );
    let listed = client.list("shop:*").limit(10).await?;
    ensure!(listed == ["shop:4"], "{listed:?}");
    Ok(guard.release().await?)
}

/// A waiter is woken long before the lease ends, and leaves no subscription.
async fn wait(server: &RedisServer, client: &Client) -> Result<()> {
    let other = login(server).await?;
    let guard = client.lock("shop:5").acquire().await?;
    let waiting = tokio::spawn(other.lock("shop:5").acquire());
    let channel = "redisson_lock__channel:{shop:5}";
    let heard = listeners(server, channel, 1);
    tokio::time::timeout(lease(), heard)
        .await
        .context("nobody listens")??;
    let counted = listeners(server, "tidelock:waiting:{shop:5}", 1);
    tokio::time::timeout(lease(), counted)
        .await
        .context("not counted among tidelock's waiters")??;
    guard.release().await?;
    waiting.await??.release().await?;
    other.close(Duration::ZERO).await;
    listeners(server, channel, 0).await
}

/// A waiter of a fair lock is handed the lock long before the lease ends.
async fn fair(client: &Client) -> Result<()> {
    let guard = client.fair_lock("shop:6").acquire().await?;
    let waiting = tokio::spawn(client.fair_lock("shop:6").acquire());
    let queued = async {
        while client.fair_lock("shop:6").inspect().await?.queue.is_empty() {
            tokio::task::yield_now().await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(lease(), queued)
        .await
        .context("no queue")??;
    guard.release().await?;
    let guard = tokio::time::timeout(HANDED_OVER, waiting)
        .await
        .context("not handed over")???;
    Ok(guard.release().await?)
}

/// A reader is woken by a writer, both are renewed, and a force release frees both sides.
async fn sides(server: &RedisServer, client: &Client) -> Result<()> {
    let other = login(server).await?;
    let [one, two] = [client, &other].map(|client| client.read_write_lock("shop:7"));
    let writer = one.write().acquire().await?;
    let waiting = tokio::spawn(two.read().acquire());
    renewed(|| writer.valid_for()).await?;
    ensure!(writer.is_held(), "lost: not renewed");
    ensure!(
        one.read().inspect().await?.waiters == Some(1),
        "no waiter is shown"
    );
    writer.release().await?;
    let limit = lease() / 2;
    let reader = tokio::time::timeout(limit, waiting).await???;
    let again = one.read().fenced().acquire().await?;
    reader.release().await?;
    ensure!(one.read().force_release().await?, "was free");
    ensure!(again.release().await.is_err(), "was not freed");
    other.close(Duration::ZERO).await;
    Ok(())
}

/// A waiter listens, and goes on after the last count.
async fn latch(server: &RedisServer, client: &Client) -> Result<()> {
    let latch = client.latch("shop:10");
    ensure!(latch.set_count_if_new(2).await?, "there already");
    let waiter = latch.clone();
    let waiting = tokio::spawn(async move { waiter.wait().await });
    let channel = "redisson_countdownlatch__channel__{shop:10}";
    let heard = listeners(server, channel, 1);
    tokio::time::timeout(lease(), heard)
        .await
        .context("nobody listens")??;
    ensure!(latch.count_down().await? == 1);
    ensure!(latch.count_down().await? == 0);
    Ok(waiting.await??)
}

/// Permits are renewed, shown, given back to a waiter that listens, and taken back by force.
async fn semaphore(server: &RedisServer, client: &Client) -> Result<()> {
    let other = login(server).await?;
    let semaphore = client.semaphore("shop:11");
    ensure!(semaphore.set_permits_if_new(1).await?, "there already");
    semaphore.set_permits(2).await?;
    let both = semaphore.permits(2).acquire().await?;
    tokio::time::sleep(lease() * 7 / 6).await; // the hold outlives its lease, because it is renewed
    ensure!(both.is_held(), "lost: not renewed");
    let shown = semaphore.inspect().await?.permits;
    ensure!(shown.is_some_and(|count| count.total == 2), "{shown:?}");
    let waiting = tokio::spawn(other.semaphore("shop:11").acquire());
    let heard = listeners(server, "redisson_sc:{shop:11}", 1);
    tokio::time::timeout(lease(), heard)
        .await
        .context("nobody listens")??;
    both.release().await?;
    let one = waiting.await??;
    ensure!(semaphore.force_release().await?, "was free");
    ensure!(one.release().await.is_err(), "was not taken back");
    other.close(Duration::ZERO).await;
    Ok(())
}

async fn counting(client: &Client) -> Result<()> {
    let slots = client.counting_semaphore("shop:12");
    ensure!(slots.set_permits_if_new(3).await?, "there already");
    ensure!(slots.try_acquire(2).await?, "too few permits");
    ensure!(slots.release(2).await? == 3);
    ensure!(slots.drain().await? == 3);
    ensure!(slots.available().await? == 0);
    Ok(())
}

/// Two members enter and leave together.
async fn barrier(server: &RedisServer, client: &Client) -> Result<()> {
    let other = login(server).await?;
    tokio::try_join!(member(client), member(&other))?;
    other.close(Duration::ZERO).await;
    Ok(())
}

async fn member(client: &Client) -> Result<()> {
    let barrier = client.barrier("shop:13", 2);
    let inside = barrier.enter_timeout(HANGS).await?;
    Ok(inside.leave_timeout(HANGS).await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t27_the_rights_in_the_guarantees_are_enough() -> Result<()> {
    let server = server(&rights()?)?;
    let said = complaints(&server).await?;
    ensure!(said.is_empty(), "{said:#?}");
    Ok(())
}

/// Without `+unsubscribe` a superfluous subscription stays until the connection is closed, which only the server log shows.
/// Without `+lpos` some waiters for a fair lock subscribe once more than they need.
const QUIET: [&str; 2] = ["+unsubscribe", "+lpos"];

/// Rights that the doctor cannot check or does not need: the first request that lacks one reports it.
const TOLD_BY_WORK: [&str; 6] = [
    "~shop:*",
    "~{shop:*",
    "~redisson_lock_*:{shop:*",
    "&redisson_*:{shop:*",
    "&redisson_countdownlatch__channel__{shop:*",
    "&tidelock:waiting:{shop:*",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t27_a_right_that_is_missing_is_told() -> Result<()> {
    let rights = rights()?;
    let mut silent = String::new();
    // We start only a few servers at a time.
    let grants = |at: &usize| rights[*at].starts_with(['~', '&', '+']);
    let grants: Vec<usize> = (0..rights.len()).filter(grants).collect();
    for some in grants.chunks(8) {
        let tries = some.iter().map(|&at| {
            let mut fewer = rights.clone();
            let missing = fewer.remove(at);
            tokio::spawn(async move {
                let server = server(&fewer)?;
                anyhow::Ok((missing, complaints(&server).await?))
            })
        });
        for done in futures_util::future::join_all(tries).await {
            let (missing, said) = done??;
            let by_doctor = said.iter().any(|one| one.starts_with("doctor: "));
            let told = match missing.as_str() {
                quiet if QUIET.contains(&quiet) => true,
                work if TOLD_BY_WORK.contains(&work) => !said.is_empty(),
                _ => by_doctor,
            };
            if !told {
                let _ = writeln!(silent, "nobody misses {missing}: {said:#?}");
            }
        }
    }
    ensure!(silent.is_empty(), "{silent}");
    Ok(())
}

/// A user whose rights predate the support for waiters of Redisson's fair locks: it locks, waits and releases as
/// before, also while such a queue exists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t27_a_user_without_rights_to_fair_queues_can_still_lock() -> Result<()> {
    let mut fewer = rights()?;
    let later = [
        "+hlen",
        "+hrandfield",
        "+lindex",
        "+zscore",
        "+llen",
        "+lrange",
        "+rpush",
        "+lpush",
        "+lpop",
        "+lrem",
        "+zadd",
        "+zrem",
    ];
    fewer.retain(|right| !later.contains(&right.as_str()));
    for right in &mut fewer {
        *right = right.replace("redisson_lock_*:", "redisson_lock_token:");
        *right = right.replace("redisson_*:", "redisson_lock__channel:");
    }
    let server = server(&fewer)?;
    for name in ["shop:1", "shop:2", "shop:3", "shop:5"] {
        let queue = format!("redisson_lock_queue:{{{name}}}");
        server.admin(&["RPUSH", &queue, "8a2f3c1e-5b64-4d0a-9c57-1f0e6b7a9d21:7"])?;
    }
    let said = complaints(&server).await?;
    let told = [
        "doctor: rights: other locks: refused",
        "doctor: rights: fair locks: refused",
        "doctor: rights: read-write locks: refused",
        "doctor: rights: semaphores: refused",
        "fair: ",
        "sides: ",
        "once: ",
        "election: ",
        "semaphore: ",
        "barrier: ",
    ];
    let is_told = |(one, begins): (&String, &str)| one.starts_with(begins);
    ensure!(
        said.len() == told.len() && said.iter().zip(told).all(is_told),
        "{said:#?}"
    );
    Ok(())
}
