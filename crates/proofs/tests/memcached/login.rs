//! User and password of the URL, on servers that ask for them and on those that do not.

use anyhow::{Result, ensure};
use testkit::servers::MemcachedServer;
use tidelock::{Client, ErrorKind};

/// A login is a `set`: to a server that knows no logins it is one item more, for everybody to read.
#[tokio::test]
async fn a_login_that_nobody_asked_for_is_not_kept() -> Result<()> {
    let server = MemcachedServer::start()?;
    let url = format!("memcached://me:hunter2@127.0.0.1:{}", server.port());
    let client = Client::builder().details(false).connect(&url).await?;
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
        let client = Client::builder().details(false).connect(&url).await;
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
