//! Plain locks of a user without permission to run scripts: each request is a transaction.

use std::time::Duration;

use anyhow::{Result, bail};
use testkit::proxy::{Proxy, Then, When};
use testkit::servers::RedisServer;
use tidelock::Client;

const LEASE: Duration = Duration::from_secs(30);

/// An acquisition is kept and not polled while its transaction waits for an answer. Transactions run one at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquisition_that_is_not_polled_stops_no_other_transaction() -> Result<()> {
    let server = RedisServer::builder()
        .acl("user default off\nuser app on >secret ~* &* +@all -@scripting")
        .start()?;
    let proxy = Proxy::start(server.addr())?;
    let settings = Client::builder().lease(LEASE).publish_process_info(false);
    let url = format!("redis://app:secret@{}?locks=plain", proxy.addr());
    let client = settings.connect(&url).await?;
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
