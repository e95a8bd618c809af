//! Plain locks of a user without permission to run scripts: each request is a transaction.

use std::time::Duration;

use anyhow::{Result, bail};
use real_servers::{secs, within};
use testkit::proxy::{Proxy, Then, When};
use testkit::servers::RedisServer;
use tidelock::{Client, ErrorKind};
use tokio::runtime::{Builder, Runtime};

const LEASE: Duration = Duration::from_secs(30);

/// The lease where a test awaits renewals, or its end.
fn short() -> Duration {
    secs(3)
}

/// A server on which the user `app` may not run scripts.
fn server() -> Result<RedisServer> {
    RedisServer::builder()
        .acl("user default off\nuser app on >secret ~* &* +@all -@scripting")
        .start()
}

async fn client(proxy: &Proxy) -> Result<Client> {
    with_lease(proxy, LEASE).await
}

async fn with_lease(proxy: &Proxy, lease: Duration) -> Result<Client> {
    let settings = Client::builder().lease(lease).publish_process_info(false);
    let url = format!("redis://app:secret@{}?locks=plain", proxy.addr());
    Ok(settings.connect(&url).await?)
}

/// One that works only while somebody waits on it.
fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// An acquisition is kept and not polled while its transaction waits for an answer. Transactions run one at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquisition_that_is_not_polled_stops_no_other_transaction() -> Result<()> {
    let server = server()?;
    let proxy = Proxy::start(server.addr())?;
    let client = client(&proxy).await?;
    let watched = proxy.on(When::command("WATCH", "idle"), Then::HoldReply);
    let mut idle = Box::pin(client.lock("idle").acquire());
    tokio::select! {
        granted = &mut idle => bail!("{granted:?} without an answer"),
        () = watched.fired() => {}
    }
    watched.release();
    let guard = client.lock("stock").acquire_timeout(LEASE).await?;
    guard.release().await?;
    Ok(())
}

/// An acquisition is given up while its transaction waits for an answer, and its runtime is kept and not driven.
#[test]
fn a_runtime_that_nobody_drives_stops_no_other_transaction() -> Result<()> {
    let server = server()?;
    let proxy = Proxy::start(server.addr())?;
    let (first, second) = (runtime()?, runtime()?);
    let client = first.block_on(client(&proxy))?;
    let watched = proxy.on(When::command("WATCH", "idle"), Then::HoldReply);
    first.block_on(async {
        tokio::select! {
            granted = client.lock("idle").acquire() => bail!("{granted:?} without an answer"),
            () = watched.fired() => Ok(()),
        }
    })?;
    watched.release();
    second.block_on(async {
        let guard = client.lock("stock").acquire_timeout(LEASE).await?;
        guard.release().await?;
        Ok(())
    })
}

/// Transactions run one at a time. With one for each lock the last ones of many locks would be renewed too late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_locks_are_renewed_in_few_transactions() -> Result<()> {
    let server = server()?;
    let proxy = Proxy::start(server.addr())?;
    let client = with_lease(&proxy, short()).await?;
    let mut held = Vec::new();
    for n in 0..30 {
        held.push(client.lock(&format!("many:{n}")).acquire().await?);
    }
    proxy.reset_counts();
    let last = proxy.on(When::command("WATCH", "many:29"), Then::HoldReply);
    within(short(), "the renewal of the last lock", last.fired()).await?;
    let transactions = proxy.counts().get("WATCH").copied().unwrap_or(0);
    last.release();
    assert!(transactions < 10, "{transactions} for 30 locks");
    for guard in held {
        guard.release().await?;
    }
    Ok(())
}

/// Nobody knows whether a batch of renewals without a reply has taken effect, so it is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_without_a_reply_are_repeated() -> Result<()> {
    let server = server()?;
    let proxy = Proxy::start(server.addr())?;
    let client = with_lease(&proxy, short()).await?;
    let mut held = Vec::new();
    for n in 0..10 {
        held.push(client.lock(&format!("many:{n}")).acquire().await?);
    }
    // The first EXEC ends an empty transaction.
    let executed = proxy.on(When::command("EXEC", "").skip(1), Then::CutReply);
    within(short(), "the renewals", executed.fired()).await?;
    // Two for each third of a lease, for more than a lease.
    let later = proxy.on(When::command("EXEC", "").skip(8), Then::HoldReply);
    within(short() * 3, "the renewals after them", later.fired()).await?;
    later.release();
    for guard in held {
        guard.release().await?;
    }
    Ok(())
}

/// The server refuses a transaction if the user may not use one of its keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forbidden_lock_costs_no_other_its_lease() -> Result<()> {
    let server = server()?;
    let proxy = Proxy::start(server.addr())?;
    let client = with_lease(&proxy, short()).await?;
    let allowed = client.lock("allowed").acquire().await?;
    let forbidden = client.lock("forbidden").acquire().await?;
    let keys = ["~allowed", "~*{allowed}*"];
    server.admin(&["ACL", "SETUSER", "app", "resetkeys", keys[0], keys[1]])?;
    // The other one was acquired before it, so it is lost by then too, unless it was renewed alone.
    within(short() * 2, "the loss", forbidden.lost()).await?;
    allowed.release().await?;
    Ok(())
}

/// The reply to EXEC is lost, so nobody knows whether the lease is longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_without_a_reply_may_have_taken_effect() -> Result<()> {
    let server = server()?;
    let proxy = Proxy::start(server.addr())?;
    let client = client(&proxy).await?;
    let guard = client.lock("stock").acquire().await?;
    // The first EXEC ends an empty transaction.
    let executed = proxy.on(When::command("EXEC", "").skip(1), Then::CutReply);
    let error = guard.extend(LEASE * 2).await.expect_err("no reply");
    within(short(), "the request", executed.fired()).await?;
    assert!(error.outcome_unknown(), "{error}");
    guard.release().await?;
    Ok(())
}

/// Without MULTI the server would run the writes one by one, and a DEL could hit the lock of another owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_written_if_transactions_are_forbidden() -> Result<()> {
    let server = server()?;
    let proxy = Proxy::start(server.addr())?;
    let client = client(&proxy).await?;
    let guard = client.lock("held").acquire().await?;
    server.admin(&["ACL", "SETUSER", "app", "-multi"])?;
    let refused = client.lock("stock").try_acquire().await;
    let error = refused.expect_err("without MULTI");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("multi"), "{error}");
    let error = guard.release().await.expect_err("without MULTI");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    let held: String = server.query(&["GET", "held"])?;
    assert!(!held.is_empty());
    for write in ["SET", "DEL"] {
        assert_eq!(proxy.count(write), u64::from(write == "SET"), "{write}");
    }
    Ok(())
}

/// The first attempt leaves the connection inside a transaction, which would make the error of the second one strange.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_attempt_is_refused_if_transactions_may_not_be_executed() -> Result<()> {
    let server = server()?;
    let proxy = Proxy::start(server.addr())?;
    let client = client(&proxy).await?;
    server.admin(&["ACL", "SETUSER", "app", "-exec"])?;
    for _ in 0..3 {
        let refused = client.lock("stock").try_acquire().await;
        let error = refused.expect_err("without EXEC");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.to_string().contains("exec"), "{error}");
    }
    assert_eq!(proxy.count("SET"), 0);
    server.admin(&["ACL", "SETUSER", "app", "+exec"])?;
    client.lock("stock").acquire().await?.release().await?;
    Ok(())
}

/// A proxy or a renamed command: the server does not know EXEC, and leaves the connection inside a transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_attempt_fails_alike_if_the_server_does_not_know_exec() -> Result<()> {
    let server = RedisServer::builder()
        .acl("user default off\nuser app on >secret ~* &* +@all -@scripting")
        .args(["--rename-command", "EXEC", ""])
        .start()?;
    let proxy = Proxy::start(server.addr())?;
    let client = client(&proxy).await?;
    for _ in 0..3 {
        let failed = client.lock("stock").try_acquire().await;
        let error = failed.expect_err("without EXEC");
        assert!(!error.outcome_unknown(), "{error}");
        assert!(error.to_string().contains("'EXEC'"), "{error}");
    }
    assert_eq!(proxy.count("SET"), 0);
    Ok(())
}
