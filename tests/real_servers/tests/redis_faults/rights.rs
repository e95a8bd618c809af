//! Access rights on the server: no right to publish or subscribe, and a password that changes under a connected client.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::proxy::Proxy;
use testkit::servers::RedisServer;
use tidelock::{ClientBuilder, Credentials, ErrorKind, LostReason, Severity};

use crate::looks::{FAST, listening, more_scripts, scripts, wary_builder};
use crate::setup::{Shop, patient_builder};
use real_servers::{SOON, builder, listen, secs, within};

type Password = Arc<Mutex<String>>;

/// A shop whose clients log in as the user `app` and fetch the password at every connect.
async fn shop_for(
    user: &str,
    password: &Password,
    settings: ClientBuilder,
    lease: Duration,
) -> Result<Shop> {
    let acl = format!("user default off\nuser app on >old {user}");
    let server = RedisServer::builder().acl(&acl).start()?;
    let proxy = Proxy::start(server.addr())?;
    let password = Arc::clone(password);
    let now = move || Credentials::new("app", slot(&password).clone());
    let settings = settings.credentials_from(now).connect_within(SOON);
    Ok(Shop {
        client: settings.clone().connect(&proxy.url()).await?,
        proxy,
        server,
        lease,
        settings,
    })
}

fn slot(password: &Password) -> MutexGuard<'_, String> {
    password.lock().unwrap_or_else(PoisonError::into_inner)
}

fn old_password() -> Password {
    Arc::new(Mutex::new("old".to_owned()))
}

/// T28: a user that may run scripts but has no right to any channel, the default for new users in Redis 7. Every kind
/// of release succeeds and is reported as such. No message can wake a waiter, so it polls, and has the lock when the
/// lease ends at the latest. The doctor reports the missing right beforehand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t28_without_channel_rights_locks_work_and_waiters_poll() -> Result<()> {
    let password = old_password();
    let lease = secs(6);
    let settings = patient_builder(lease);
    let shop = shop_for("~* resetchannels +@all", &password, settings, lease).await?;
    let other = shop.another().await?;
    let findings = shop.client.diagnose().await?;
    let channels = findings
        .iter()
        .find(|found| found.subject.contains("channels"));
    ensure!(
        channels.is_some_and(|found| found.severity > Severity::Good && found.advice.is_some()),
        "{findings:?}"
    );
    let lock = shop.client.lock("till");
    lock.acquire().await?.release().await?;
    ensure!(shop.is_free("till")?);
    let forced = lock.acquire().await?;
    ensure!(lock.force_release().await?, "it was held");
    ensure!(shop.is_free("till")?);
    let error = forced.release().await.unwrap_err();
    ensure!(error.kind() == ErrorKind::Lost, "{error}");
    let held = lock.acquire().await?;
    let before = scripts(&shop.proxy);
    let waiting = tokio::spawn(other.lock("till").acquire());
    let asked = more_scripts(&shop.proxy, before, 2);
    within(SOON, "the questions of the waiter", asked).await?;
    let rest = shop.time_left("till")?.context("it is held")?;
    held.release().await?;
    let next = within(rest + FAST, "the waiter", waiting).await???;
    shop.held_once(&next)?;
    next.release().await?;
    shop.nothing_left(vec![other]).await
}

/// Makes the server accept only the new password, and closes every session.
fn rotate(server: &RedisServer) -> Result<()> {
    server.admin(&["ACL", "SETUSER", "app", "resetpass", ">new"])?;
    let killed: u64 = server.query(&["CLIENT", "KILL", "USER", "app"])?;
    ensure!(killed > 0, "no session was open");
    Ok(())
}

/// T30: the client does not know the new password. Its holder is told before the lease can end; an acquire reports the
/// password as the cause; and once the client has the new password, it recovers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t30_a_rotated_password_is_named_and_recovered_from() -> Result<()> {
    let password = old_password();
    let lease = secs(2);
    let shop = shop_for("~* &* +@all", &password, wary_builder(lease), lease).await?;
    let held = shop.client.lock("till").acquire().await?;
    let told = listen(&held);
    rotate(&shop.server)?;
    let ends_at = shop.ends_at("till")?;
    let answer = within(SOON, "an answer", shop.client.lock("safe").acquire()).await?;
    let error = answer.map(drop).unwrap_err();
    ensure!(error.kind() == ErrorKind::Refused, "{error}");
    ensure!(error.to_string().contains("password"), "{error}");
    let (at, reason) = told.told(SOON).await?;
    ensure!(at < ends_at, "told {:?} too late", at - ends_at);
    ensure!(reason == LostReason::Expired, "{reason}");
    let error = held.release().await.unwrap_err();
    ensure!(error.kind() == ErrorKind::Lost, "{error}");
    "new".clone_into(&mut slot(&password));
    let lock = shop.client.lock("till");
    let guard = within(lease + FAST, "the same client", lock.acquire()).await??;
    shop.held_once(&guard)?;
    guard.release().await?;
    shop.nothing_left(vec![]).await
}

/// T30, in the right order: the client has the new password before the old sessions are closed. Nothing is lost, and a
/// sleeping waiter is still woken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t30_a_rotated_password_known_in_time_loses_nothing() -> Result<()> {
    let password = old_password();
    let lease = secs(3);
    let shop = shop_for("~* &* +@all", &password, builder(lease), lease).await?;
    let other = shop.another().await?;
    let held = shop.client.lock("till").acquire().await?;
    let told = listen(&held);
    let waiting = tokio::spawn(other.lock("till").acquire());
    listening(&shop.server, "till").await?;
    "new".clone_into(&mut slot(&password));
    rotate(&shop.server)?;
    listening(&shop.server, "till").await?;
    tokio::time::sleep(lease).await;
    ensure!(told.is_quiet(), "lost although the new password was known");
    shop.held_once(&held)?;
    held.release().await?;
    let next = within(lease / 2, "the wake-up", waiting).await???;
    shop.held_once(&next)?;
    next.release().await?;
    shop.nothing_left(vec![other]).await
}
