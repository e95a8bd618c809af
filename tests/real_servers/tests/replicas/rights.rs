//! Servers that refuse the replication commands: managed services forbid them with ACLs or rename them.

use anyhow::{Result, bail, ensure};
use testkit::servers::{RedisServer, Replicated};
use tidelock::ReplicaAck::{All, Any, Majority, Off};
use tidelock::{Client, Credentials, ErrorKind};

use crate::world::{SOON, eventually, patient, within};
use real_servers::logs::Logs;
use real_servers::{ms, secs};

/// Waits until the lease of the lock ends later than before.
async fn renewed(primary: &RedisServer, name: &str) -> Result<()> {
    let rises = async {
        let mut before: i64 = primary.query(&["PTTL", name])?;
        loop {
            tokio::time::sleep(ms(10)).await;
            let left: i64 = primary.query(&["PTTL", name])?;
            ensure!(left > 0, "it is not renewed");
            if left > before {
                return anyhow::Ok(());
            }
            before = left;
        }
    };
    within(SOON, "a renewal", rises).await?
}

/// Locks work, and the client reports once that it cannot give acknowledgements. A request that insists on one is
/// refused before anything is sent.
async fn works_without(primary: &RedisServer, name: &str) -> Result<()> {
    let logs = Logs::gather();
    let builder = Client::builder().credentials(Credentials::new("app", "secret"));
    let client = builder
        .lease(secs(3))
        .connect_within(SOON)
        .publish_process_info(false);
    let client = client.connect(&primary.url()).await?;
    for policy in [Any, Off, Any] {
        let guard = client.lock(name).acquire_with(patient(policy)).await?;
        ensure!(guard.acknowledged().is_none());
        renewed(primary, name).await?;
        ensure!(guard.is_held(), "it is renewed");
        guard.release().await?;
    }
    let said = logs.with("cannot ask the replicas");
    ensure!(said.len() == 1, "{said:?}");
    for policy in [Majority, All] {
        let refused = client.lock(name).acquire_with(patient(policy));
        let Err(error) = within(SOON, "an answer", refused).await? else {
            bail!("{policy} was granted, and nobody can know");
        };
        ensure!(error.kind() == ErrorKind::Refused, "{error}");
        ensure!(error.to_string().contains("replicas"), "{error}");
    }
    ensure!(primary.query::<u64, _>(&["EXISTS", name])? == 0);
    Ok(())
}

#[tokio::test]
async fn without_the_right_to_wait_locks_work() -> Result<()> {
    let acl = "user default on nopass ~* &* +@all\nuser app on >secret ~* &* +@all -wait";
    let all = Replicated::start_with(2, RedisServer::builder().acl(acl))?;
    works_without(all.primary(), "till").await
}

#[tokio::test]
async fn without_the_right_to_look_locks_work() -> Result<()> {
    let acl = "user default on nopass ~* &* +@all\nuser app on >secret ~* &* +@all -info";
    let all = Replicated::start_with(2, RedisServer::builder().acl(acl))?;
    works_without(all.primary(), "till").await
}

#[tokio::test]
async fn a_server_that_does_not_know_the_command_works() -> Result<()> {
    let acl = "user default on nopass ~* &* +@all\nuser app on >secret ~* &* +@all";
    let primary = RedisServer::builder().acl(acl);
    let primary = primary.args(["--rename-command", "WAIT", ""]).start()?;
    let port = primary.port().to_string();
    let _replica = RedisServer::builder()
        .args(["--replicaof", "127.0.0.1", &port])
        .args(["--repl-diskless-sync-delay", "0"])
        .start()?;
    eventually("the replica is there", || {
        let info: String = primary.query(&["INFO", "replication"])?;
        Ok(info.contains("state=online"))
    })?;
    works_without(&primary, "till").await
}
