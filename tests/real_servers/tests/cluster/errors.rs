//! The errors when there is no cluster, no reachable node, or no hash tag that keeps a name in one slot.

use std::time::Duration;

use anyhow::{Result, ensure};
use real_servers::connecting::is_waited_for;
use testkit::servers::{Cluster, RedisServer};
use tidelock::{ErrorKind, Severity};

use crate::shared;
use real_servers::{builder, ms};

/// A lease whose response timeout a busy machine does not exceed.
const PATIENT: Duration = Duration::from_secs(30);

async fn refusal(url: &str) -> (ErrorKind, String) {
    let error = builder(PATIENT).connect(url).await.err();
    error.map_or((ErrorKind::Closed, String::new()), |error| {
        (error.kind(), format!("{error} {error:?}"))
    })
}

#[tokio::test]
async fn a_server_that_is_no_cluster_is_told_apart() -> Result<()> {
    let server = RedisServer::start()?;
    let (kind, text) = refusal(&format!("redis+cluster://{}", server.addr())).await;
    ensure!(kind == ErrorKind::InvalidOptions, "{text}");
    ensure!(text.contains("write redis:// instead"), "{text}");
    Ok(())
}

#[tokio::test]
async fn nodes_that_cannot_be_reached_are_named() -> Result<()> {
    let (kind, text) = refusal("redis+cluster://:hunter2@127.0.0.1:1,127.0.0.1:2").await;
    ensure!(kind == ErrorKind::Unavailable, "{text}");
    let named = text.contains("127.0.0.1:1") && text.contains("127.0.0.1:2");
    ensure!(named && !text.contains("hunter2"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_wrong_password_is_told_without_showing_it() -> Result<()> {
    let server = RedisServer::builder().password("data");
    let cluster = Cluster::builder().replicas(0).server(server).start()?;
    let client = builder(PATIENT).connect(&cluster.url()).await?;
    client.lock("stock").acquire().await?.release().await?;
    let (kind, text) = refusal(&cluster.url().replace(":data@", ":hunter2@")).await;
    ensure!(kind == ErrorKind::Refused, "{text}");
    ensure!(
        text.contains("authentication") && !text.contains("hunter2"),
        "{text}"
    );
    Ok(())
}

/// One reachable node is enough to discover the others.
#[tokio::test]
async fn one_node_that_answers_is_enough() -> Result<()> {
    let cluster = shared();
    let url = format!("redis+cluster://127.0.0.1:1,{}", cluster.nodes()[1].addr());
    let client = builder(PATIENT).connect(&url).await?;
    for number in 0..20 {
        let lock = client.lock(&format!("some slot {number}"));
        lock.acquire().await?.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn names_whose_keys_would_part_are_refused_before_any_traffic() -> Result<()> {
    let client = builder(PATIENT).connect(&shared().url()).await?;
    for name in ["a{b", "a{}b", "a}b", "{}x"] {
        let lock = client.lock(name);
        let errors = [
            lock.acquire().await.map(drop).unwrap_err(),
            lock.inspect().await.map(drop).unwrap_err(),
            lock.force_release().await.map(drop).unwrap_err(),
        ];
        for error in errors {
            ensure!(error.kind() == ErrorKind::InvalidName, "{name}: {error}");
            ensure!(error.to_string().contains("hash tag"), "{error}");
        }
    }
    Ok(())
}

/// The doctor checks every node that has locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_looks_at_all_of_it() -> Result<()> {
    let cluster = shared(); // the cluster ends with the last test that uses it
    let client = builder(PATIENT).connect(&cluster.url()).await?;
    let findings = client.diagnose().await?;
    for subject in [
        "slots",
        "messages",
        "mode",
        "rights: scripts",
        "rights: operators",
    ] {
        let found = findings.iter().find(|one| one.subject == subject);
        let good = found.is_some_and(|one| one.severity == Severity::Good);
        ensure!(good, "{subject}: {findings:#?}");
    }
    let bad = findings
        .iter()
        .filter(|one| one.severity == Severity::Danger);
    ensure!(bad.count() == 0, "{findings:#?}");
    Ok(())
}

/// T76: the cluster does not answer yet when a client connects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_cluster_that_does_not_answer_is_waited_for() -> Result<()> {
    let cluster = Cluster::builder().replicas(0).start()?;
    let nodes = cluster.nodes();
    nodes.iter().try_for_each(|node| node.freeze())?;
    let open = || nodes.iter().try_for_each(|node| node.thaw());
    is_waited_for(builder(ms(4000)), &cluster.url(), open).await?;
    Ok(())
}

/// The keys and the channel of a counting semaphore lie in one slot, with and without a hash tag.
#[tokio::test]
async fn a_counting_semaphore_works_with_and_without_a_hash_tag() -> Result<()> {
    let cluster = shared(); // the cluster ends with the last test that uses it
    let client = builder(ms(30_000)).connect(&cluster.url()).await?;
    for name in ["{shop}:slots", "slots"] {
        let (one, other) = (
            client.counting_semaphore(name),
            client.counting_semaphore(name),
        );
        ensure!(one.set_permits_if_new(1).await?);
        for _ in 0..3 {
            one.acquire(1).await?;
            let other = other.clone();
            let waiter = tokio::spawn(async move { other.acquire(1).await });
            one.release(1).await?;
            tokio::time::timeout(ms(7_000), waiter).await???; // before it would ask again
            one.release(1).await?;
        }
        ensure!(one.available().await? == 1);
    }
    Ok(())
}

/// The channel of a latch has braces around its whole name, so a hash tag puts it into another slot.
#[tokio::test]
async fn a_latch_with_a_hash_tag_is_refused() -> Result<()> {
    let cluster = shared(); // the cluster ends with the last test that uses it
    let client = builder(PATIENT).connect(&cluster.url()).await?;
    let latch = client.latch("{shop}:imported");
    for answer in [
        latch.count_down().await.map(drop),
        latch.set_count_if_new(1).await.map(drop),
        latch.wait().await,
    ] {
        let error = answer.expect_err("refused");
        ensure!(error.kind() == ErrorKind::InvalidName, "{error}");
    }
    let (one, other) = (client.latch("imported"), client.latch("imported"));
    ensure!(one.set_count_if_new(1).await?);
    let waiter = tokio::spawn(async move { other.wait().await });
    one.count_down().await?;
    waiter.await??;
    Ok(())
}
