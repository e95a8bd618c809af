//! Topologies of several servers start, fail over and move slots, and the test kit observes it.

use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::process;
use testkit::servers::{Cluster, Flavour, Independents, RedisServer, Replicated, Sentinels, Tls};

const FAILOVER: Duration = Duration::from_secs(10);

fn timed<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let done = work()?;
    println!("{what}: {:?}", start.elapsed());
    Ok(done)
}

#[test]
fn sentinels_follow_a_planned_failover_and_a_kill() -> Result<()> {
    let all = timed("sentinels start", Sentinels::start)?;
    let hosts = all.sentinels().iter().map(|s| s.addr().to_string());
    let hosts = hosts.collect::<Vec<_>>().join(",");
    assert_eq!(all.url(), format!("redis+sentinel://{hosts}/mymaster"));
    let first = all.primary()?;
    assert_eq!(
        (first.port(), all.replicas()?.len()),
        (all.nodes()[0].port(), 2)
    );
    first.admin_each(&[&["SET", "a", "1"], &["WAIT", "2", "1000"]])?;

    let second = timed("sentinels planned", || all.failover())?;
    assert_ne!(second.port(), first.port());
    assert_eq!(second.query::<u64, _>(&["GET", "a"])?, 1);
    timed("sentinels settled", || all.await_ok())?;

    second.kill()?;
    let third = timed("sentinels kill", || {
        all.await_primary_other_than(second.addr(), FAILOVER)
    })?;
    assert_eq!(third.query::<u64, _>(&["GET", "a"])?, 1);
    second.restart()?;
    timed("sentinels restarted", || all.await_ok())?;
    assert_eq!(all.primary()?.port(), third.port());
    assert!(!second.is_primary()?);

    third.freeze()?;
    all.sentinels()[0].freeze()?;
    timed("sentinels frozen", || {
        all.await_primary_other_than(third.addr(), FAILOVER)
    })?;
    third.thaw()?;
    all.sentinels()[0].thaw()?;
    timed("sentinels thawed", || all.await_ok())?;
    assert!(!third.is_primary()?);
    all.sentinels()[1].kill()?;
    all.restart_sentinel(1)?;
    timed("sentinel restarted", || all.await_ok())?;
    Ok(())
}

#[test]
fn a_cluster_fails_over() -> Result<()> {
    let cluster = timed("cluster 3+3 start", Cluster::start)?;
    assert_eq!(cluster.url().matches("127.0.0.1:").count(), 6);
    let slot = cluster.slot_of("lock:{a}:b")?;
    assert_eq!(slot, cluster.slot_of("a")?);
    let first = cluster.node_of("a")?;
    first.admin(&["SET", "a", "1"])?;
    assert_eq!(first.replicas_reached(1)?, 1);

    let second = timed("cluster planned", || cluster.failover(slot))?;
    assert_ne!(second.port(), first.port());
    assert_eq!(second.query::<u64, _>(&["GET", "a"])?, 1);
    timed("cluster settled", || cluster.await_ok())?;
    assert_eq!(cluster.replica_of(second)?.port(), first.port());

    second.kill()?;
    let third = timed("cluster kill", || {
        cluster.await_primary_other_than(slot, second, FAILOVER)
    })?;
    assert_eq!(third.port(), first.port());
    assert_eq!(third.query::<u64, _>(&["GET", "a"])?, 1);
    second.restart()?;
    timed("cluster restarted", || cluster.await_ok())?;
    assert_eq!(cluster.replica_of(third)?.port(), second.port());
    assert_eq!(cluster.primaries()?.len(), 3);

    third.freeze()?;
    timed("cluster frozen", || {
        cluster.await_primary_other_than(slot, third, FAILOVER)
    })?;
    third.thaw()?;
    timed("cluster thawed", || cluster.await_ok())?;
    assert!(!third.is_primary()?);
    Ok(())
}

#[test]
fn a_slot_migrates_half_way_and_wholly() -> Result<()> {
    let cluster = timed("cluster 3+0 start", || {
        Cluster::builder().replicas(0).start()
    })?;
    let slot = cluster.slot_of("{a}")?;
    let from = cluster.primary_of_slot(slot)?;
    let mut others = cluster.primaries()?.into_iter();
    let to = others
        .find(|node| node.port() != from.port())
        .expect("three primaries");
    for key in ["{a}1", "{a}2"] {
        from.admin(&["SET", key, "1"])?;
    }
    let migration = cluster.migration(slot, to)?;
    migration.begin()?;
    migration.move_key("{a}1")?;
    let refused = |node: &RedisServer, command: &[&str], word: &str| {
        let error = format!("{:#}", node.admin(command).unwrap_err()).to_lowercase();
        assert!(error.contains(word), "{error}");
    };
    refused(from, &["GET", "{a}1"], "ask");
    let torn = if from.flavour() == Flavour::Redis62 {
        "ask"
    } else {
        "tryagain"
    };
    refused(from, &["MGET", "{a}1", "{a}2"], torn);
    refused(to, &["GET", "{a}1"], "moved");
    assert_eq!(from.query::<u64, _>(&["GET", "{a}2"])?, 1);
    assert_eq!(migration.keys()?, ["{a}2"]);

    assert_eq!(migration.move_keys()?, 1);
    timed("slot finish", || migration.finish())?;
    assert_eq!(cluster.primary_of_slot(slot)?.port(), to.port());
    assert_eq!(to.query::<u64, _>(&["EXISTS", "{a}1", "{a}2"])?, 2);
    refused(from, &["GET", "{a}1"], "moved");

    timed("slot back", || cluster.migrate_slot(slot, from))?;
    assert_eq!(from.query::<u64, _>(&["EXISTS", "{a}1", "{a}2"])?, 2);
    Ok(())
}

#[test]
fn replicas_are_promoted_with_what_reached_them() -> Result<()> {
    let all = timed("replicated 1+2 start", || Replicated::start(2))?;
    let first = all.primary();
    first.admin(&["SET", "a", "1"])?;
    assert_eq!(first.replicas_reached(2)?, 2);

    let second = timed("replicated failover", || all.failover(1))?;
    assert_eq!(second.query::<u64, _>(&["INCR", "a"])?, 2);
    assert_eq!(second.replicas_reached(2)?, 2);

    all.stall(0);
    assert_eq!(second.replicas_reached(2)?, 1);
    assert_eq!(second.query::<u64, _>(&["INCR", "a"])?, 3);
    second.kill()?;
    let third = all.promote(0)?;
    assert_eq!(third.query::<u64, _>(&["GET", "a"])?, 2);
    all.resume(0);
    second.restart()?;
    all.demote(1)?;
    timed("replicated settled", || all.await_ok())?;
    for node in all.nodes() {
        assert_eq!(node.query::<u64, _>(&["GET", "a"])?, 2);
    }
    Ok(())
}

#[test]
fn independents_know_nothing_of_each_other() -> Result<()> {
    let all = timed("independents 5 start", || Independents::start(5))?;
    all.nodes()[0].admin(&["SET", "a", "1"])?;
    assert_eq!(all.urls().len(), 5);
    assert!(all.nodes()[1].keys()?.is_empty());
    Ok(())
}

/// All servers require TLS and a login, and they accept each other.
#[test]
fn all_of_them_with_tls_and_logins() -> Result<()> {
    let acl = "user default off\nuser app on >secret ~* &* +@all";
    let tls = Tls {
        client_certs: true,
        ..Tls::default()
    };
    let server = || RedisServer::builder().flavour(Flavour::Redis7).tls(tls);

    let all = timed("sentinels tls", || {
        Sentinels::builder()
            .server(server().password("data"))
            .sentinel_user("watch", "dog")
            .start()
    })?;
    let url = all.url();
    assert!(url.starts_with("rediss+sentinel://:data@"), "{url}");
    assert!(
        url.ends_with("/mymaster?sentinel_user=watch&sentinel_password=dog"),
        "{url}"
    );
    assert!(all.certs().is_some_and(|certs| certs.ca.exists()));
    all.failover()?;

    let all = timed("cluster tls", || {
        Cluster::builder().server(server().acl(acl)).start()
    })?;
    assert!(
        all.url_as("app", "secret")
            .starts_with("rediss+cluster://app:secret@127")
    );
    let slot = all.slot_of("a")?;
    let from = all.failover(slot)?;
    from.admin(&["SET", "a", "1"])?;
    let mut others = all.primaries()?.into_iter();
    let to = others
        .find(|node| node.port() != from.port())
        .expect("three primaries");
    all.migrate_slot(slot, to)?;
    assert_eq!(to.query::<u64, _>(&["GET", "a"])?, 1);

    let all = timed("replicated tls", || {
        Replicated::start_with(1, server().acl(acl))
    })?;
    all.failover(1)?;
    Ok(())
}

#[test]
fn a_topology_that_cannot_start_says_why() {
    let broken = || RedisServer::builder().args(["--no-such-option", "1"]);
    let errors = [
        Sentinels::builder().server(broken()).start().map(drop),
        Cluster::builder().server(broken()).start().map(drop),
        Replicated::start_with(1, broken()).map(drop),
        Independents::start_with(2, broken()).map(drop),
    ];
    for error in errors.map(Result::unwrap_err) {
        assert!(format!("{error:#}").contains("no-such-option"), "{error:#}");
    }
}

#[test]
fn a_topology_goes_with_its_value() -> Result<()> {
    let all = Sentinels::start()?;
    let servers = all.nodes().iter().chain(all.sentinels());
    let pids = servers
        .map(|server| server.pid())
        .collect::<Result<Vec<_>>>()?;
    all.nodes()[1].freeze()?;
    drop(all);
    assert!(pids.len() == 6 && !pids.into_iter().any(process::is_alive));
    Ok(())
}
