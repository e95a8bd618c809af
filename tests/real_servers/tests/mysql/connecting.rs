//! T76: a client connects to a server that is at its connection limit, slow, or not running yet.

use std::time::Duration;

use anyhow::Result;
use real_servers::connecting::{crowd, is_waited_for};
use real_servers::secs;
use testkit::servers::MariaDb;
use tidelock::{Client, ClientBuilder, ErrorKind};

use super::lease;

fn builder() -> ClientBuilder {
    let patience = secs(3);
    Client::builder()
        .lease(lease() * 4)
        .response_timeout(patience)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_full_server_is_waited_for() -> Result<()> {
    // The lowest limit that the server accepts.
    let server = MariaDb::start_with(&["--max-connections=10"])?;
    let inside = crowd(server.addr(), 12)?;
    let open = || {
        drop(inside);
        Ok(())
    };
    is_waited_for(builder(), &server.url(), open).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_server_that_is_slow_or_started_later_is_waited_for() -> Result<()> {
    let server = MariaDb::start()?;
    server.freeze()?;
    is_waited_for(builder(), &server.url(), || server.thaw()).await?;
    server.kill()?;
    is_waited_for(builder(), &server.url(), || server.restart()).await?;
    Ok(())
}

/// A permanent error is returned at once, even when the caller has a long timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_login_that_is_not_taken_is_not_waited_for() -> Result<()> {
    let server = MariaDb::start()?;
    let wrong = server.url().replace(":pass@", ":loud@");
    let patient = builder().connect_within(Duration::from_secs(60));
    let asked = tokio::time::timeout(Duration::from_secs(10), patient.connect(&wrong));
    let refused = asked.await?.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    Ok(())
}

/// The driver panics for a plugin that it was built without.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_a_password_of_ed25519_can_log_in() -> Result<()> {
    let server = MariaDb::start()?;
    server.query(
        "INSTALL SONAME 'auth_ed25519'; \
         CREATE USER eddy@'127.0.0.1' IDENTIFIED VIA ed25519 USING PASSWORD('pass'); \
         GRANT ALL ON locks.* TO eddy@'127.0.0.1'",
    )?;
    let url = server.url().replace("://tide:", "://eddy:");
    let client = builder().connect(&url).await?;
    client.lock("stock").acquire().await?.release().await?;
    client.close(Duration::ZERO).await;
    Ok(())
}
