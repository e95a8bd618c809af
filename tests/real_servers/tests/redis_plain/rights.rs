//! The line in `docs/stores/redis-plain.md` with the least rights of a user of plain locks.

use anyhow::{Context, Result, ensure};
use real_servers::{SOON, eventually, secs, within};
use testkit::servers::{RedisServer, Reply};
use tidelock::{Client, ErrorKind};

const NAME: &str = "lock:stock";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t27_the_rights_of_the_page_are_enough() -> Result<()> {
    let words = "distinguishes a lock from other keys";
    let lines = testkit::pages::block("stores/redis-plain.md", words)?;
    let line = lines.first().context("the line of the user")?;
    let server = RedisServer::builder()
        .acl(&format!("user default on nopass ~* &* +@all\n{line}"))
        .args(["--notify-keyspace-events", "Kgx"])
        .start()?;
    let url = format!("redis://app:secret@{}?locks=plain", server.addr());
    let connect = async || {
        let builder = Client::builder().lease(secs(6));
        builder.publish_process_info(false).connect(&url).await
    };
    let (a, b) = (connect().await?, connect().await?);
    let guard = a.lock(NAME).fenced().acquire().await?;
    ensure!(a.list("lock:*").limit(10).await? == [NAME]);
    ensure!(b.lock(NAME).inspect().await?.is_locked());
    let waiting = tokio::spawn(b.lock(NAME).acquire());
    eventually(SOON, "a waiter listens", || {
        let numsub = ["PUBSUB", "NUMSUB", "__keyspace@0__:lock:stock"];
        let (_, count): (String, u64) = server.query(&numsub)?;
        Ok(count == 1)
    })?;
    guard.extend(secs(9)).await?;
    guard.release().await?;
    let guard = within(SOON, "its turn", waiting).await???;
    ensure!(a.lock(NAME).force_release().await?, "it was held");
    ensure!(guard.release().await.is_err(), "it was lost");
    let refused = server.admin(&["ACL", "LOG"])?;
    ensure!(refused == Reply::Array(Vec::new()), "{refused:?}");
    Ok(())
}

/// A key that the user may not read hides none of its locks. Without the right to a command the list would always be empty, so
/// that is an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_passes_over_keys_that_the_user_may_not_read() -> Result<()> {
    let server = RedisServer::builder()
        .acl(
            "user default on nopass ~* &* +@all\n\
             user app on >secret ~app:* ~tidelock:* &* +@all\n\
             user blind on >secret ~app:* ~tidelock:* &* +@all -strlen",
        )
        .start()?;
    server.admin(&["SET", "theirs", "0123456789abcdef", "PX", "60000"])?;
    let connect = async |user: &str| {
        let url = format!("redis://{user}:secret@{}?locks=plain", server.addr());
        let builder = Client::builder().publish_process_info(false);
        builder.connect(&url).await
    };
    let (app, blind) = (connect("app").await?, connect("blind").await?);
    let guard = app.lock("app:stock").acquire().await?;
    ensure!(app.list("*").limit(10).await? == ["app:stock"]);
    let refused = blind.list("app:*").limit(10).await;
    let refused = refused.map_err(|error| error.kind());
    ensure!(refused == Err(ErrorKind::Refused), "{refused:?}");
    guard.release().await?;
    Ok(())
}
