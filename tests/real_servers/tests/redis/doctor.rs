//! What the doctor reports about a server.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use testkit::servers::RedisServer;
use tidelock::{Client, Finding, Severity};

use crate::{client, eventually, lease};

async fn said(client: &Client, subject: &str) -> Result<Finding> {
    let findings = client.diagnose().await?;
    let found = findings.iter().find(|finding| finding.subject == subject);
    found
        .cloned()
        .with_context(|| format!("nothing about {subject} in {findings:#?}"))
}

/// Fails unless a diagnosis removes what it writes. Its locks would end by themselves a second after their grants. We take the
/// fastest of three, because a busy machine may delay the others.
async fn leaves_nothing(server: &RedisServer, client: &Client) -> Result<()> {
    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        let begun = Instant::now();
        client.diagnose().await?;
        eventually("nothing is left behind", lease() * 4, || {
            Ok(server.keys()?.is_empty())
        })
        .await?;
        fastest = fastest.min(begun.elapsed());
    }
    assert!(fastest < Duration::from_millis(900), "{fastest:?}");
    Ok(())
}

#[tokio::test]
async fn a_server_that_throws_keys_away_is_a_danger() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    assert_eq!(said(&client, "eviction").await?.severity, Severity::Good);
    server.admin(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])?;
    assert_eq!(said(&client, "eviction").await?.severity, Severity::Advice);
    server.admin(&["CONFIG", "SET", "maxmemory", "100mb"])?;
    assert_eq!(said(&client, "eviction").await?.severity, Severity::Danger);
    for finding in client
        .diagnose()
        .await?
        .iter()
        .filter(|finding| finding.subject != "eviction")
    {
        assert_ne!(finding.severity, Severity::Danger, "{finding:?}");
    }
    leaves_nothing(&server, &client).await
}

#[tokio::test]
async fn t27_missing_rights_are_named_and_what_cannot_be_seen_is_no_error() -> Result<()> {
    let locks = "+evalsha +eval +exists +hget +hset +hexists +hdel +pttl +pexpire +set +get +incr +del +type +hgetall";
    let server = RedisServer::builder()
        .acl(&format!(
            "user default off\nuser shop on >secret ~shop:* ~tidelock:* resetchannels -@all {locks}"
        ))
        .start()?;
    let shop = client(&format!("redis://shop:secret@{}", server.addr())).await?;
    shop.lock("shop:1").acquire().await?.release().await?;
    assert!(said(&shop, "server").await?.found.contains("cannot see"));
    assert_eq!(
        said(&shop, "rights: scripts").await?.severity,
        Severity::Good
    );
    assert_eq!(
        said(&shop, "rights: channels").await?.severity,
        Severity::Danger
    );
    assert_eq!(
        said(&shop, "rights: fencing").await?.severity,
        Severity::Advice
    );
    server.admin(&["ACL", "SETUSER", "shop", "-hset"])?;
    assert_eq!(
        said(&shop, "rights: scripts").await?.severity,
        Severity::Danger
    );
    Ok(())
}

/// A lock needs none of them.
#[tokio::test]
async fn rights_that_only_semaphores_need_are_named() -> Result<()> {
    let server = RedisServer::builder()
        .acl("user default off\nuser shop on >secret ~* &* +@all -decrby -zcount")
        .start()?;
    let shop = client(&format!("redis://shop:secret@{}", server.addr())).await?;
    let found = said(&shop, "rights: semaphores").await?;
    assert_eq!(found.found, "refused: DECRBY, ZCOUNT");
    assert_eq!(found.severity, Severity::Advice);
    server.admin(&["ACL", "SETUSER", "shop", "+decrby", "+zcount"])?;
    let found = said(&shop, "rights: semaphores").await?;
    assert_eq!(found.severity, Severity::Good, "{found:?}");
    leaves_nothing(&server, &shop).await
}
