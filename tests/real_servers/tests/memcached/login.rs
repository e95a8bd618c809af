//! User and password from the URL, on servers that require authentication and on servers that do not.

use anyhow::{Result, ensure};
use testkit::servers::MemcachedServer;
use tidelock::{Client, Credentials, ErrorKind};

/// The authentication request is a `set`. A server without authentication would store the password as an item that
/// every client can read.
#[tokio::test]
async fn a_login_that_nobody_asked_for_is_not_kept() -> Result<()> {
    let server = MemcachedServer::start()?;
    let url = format!("memcached://me:hunter2@127.0.0.1:{}", server.port());
    let client = Client::builder()
        .publish_process_info(false)
        .connect(&url)
        .await?;
    client.lock("stock").acquire().await?.release().await?;
    let kept = server.stat("curr_items")?;
    ensure!(kept == 0, "{kept} items are left");
    Ok(())
}

#[tokio::test]
async fn a_login_is_taken_where_it_is_asked_for() -> Result<()> {
    let server = MemcachedServer::start_guarded("me", "hunter2")?;
    for (password, good) in [("hunter2", true), ("hunter3", false)] {
        let url = format!("memcached://me:{password}@127.0.0.1:{}", server.port());
        let client = Client::builder()
            .publish_process_info(false)
            .connect(&url)
            .await;
        match client {
            Ok(client) => {
                ensure!(good, "{password} is not the password");
                client.lock("stock").acquire().await?.release().await?;
            }
            Err(error) => {
                ensure!(!good && error.kind() == ErrorKind::Refused, "{error}");
                ensure!(!error.to_string().contains(password), "{error}");
            }
        }
    }
    Ok(())
}

/// Also if the URL has a password: the one that is given wins.
#[tokio::test]
async fn a_password_without_a_user_is_for_the_user_of_the_url() -> Result<()> {
    let server = MemcachedServer::start_guarded("me", "hunter2")?;
    let url = |login: &str| format!("memcached://{login}@127.0.0.1:{}", server.port());
    let with = |password: &str| {
        Client::builder()
            .publish_process_info(false)
            .credentials(Credentials::password(password))
    };
    for login in ["me", "me:hunter3"] {
        let client = with("hunter2").connect(&url(login)).await?;
        client.lock("stock").acquire().await?.release().await?;
    }
    let wrong = with("hunter3").connect(&url("me:hunter2")).await;
    let error = wrong.map(drop).unwrap_err();
    ensure!(error.kind() == ErrorKind::Refused, "{error}");
    ensure!(!error.to_string().contains("hunter"), "{error}");
    Ok(())
}
