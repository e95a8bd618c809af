//! The refresh of the slot map: which replies are believed, and when another cluster is.

mod limits;

use std::collections::HashSet;

use super::*;
use crate::store::redis::topology::cluster::slot_ranges::SlotRange;
use crate::store::redis::topology::endpoint::EndpointLogin;
use crate::store::redis::wire::errors::ServerError;
use crate::store::redis::wire::live_connection::peer::{in_time, request_of};
use crate::store::redis::wire::tests::replies::{all_slots, text};
use crate::store::redis::wire::tests::{
    LIMIT, SILENCE, ScriptedServer, loopback, nowhere, simulated,
};

fn view(epoch: i64, of_primary: bool) -> NodeView {
    NodeView {
        told_by: loopback(9),
        epoch,
        of_primary,
        ranges: Vec::new(),
        ids: HashSet::new(),
        is_up: true,
    }
}

fn ids(all: &[&str]) -> HashSet<String> {
    all.iter().map(|&id| id.to_owned()).collect()
}

fn views(known: i64, first: bool) -> ClusterViews {
    ClusterViews {
        known,
        first,
        best: None,
    }
}

/// A cluster with these addresses in its URL. It counts as gone as soon as enough refreshes have failed.
fn cluster_of(seeds: Vec<HostAddress>) -> Cluster {
    let (background, timers) = simulated();
    let entry = EndpointLogin {
        in_cluster: true,
        ..EndpointLogin::default()
    };
    Cluster::new(seeds, entry, background, timers, LIMIT, Duration::ZERO)
}

/// The only node of a cluster, with this id.
async fn node(id: &str) -> ScriptedServer {
    let node = ScriptedServer::start().await;
    node.answers("CLUSTER SLOTS", &[&all_slots(node.port, id)]);
    node
}

#[test]
fn a_replica_does_not_outvote_the_primaries() {
    let mut answers = views(6, false);
    assert!(answers.hear(view(9, false)).is_none());
    let believed = answers.hear(view(6, true)).map(|view| view.epoch);
    assert_eq!(believed, Some(6));

    // Only a replica replies: we take its map, and the next primary's map replaces it.
    let mut answers = views(6, false);
    assert!(answers.hear(view(9, false)).is_none());
    assert_eq!(answers.best().map(|view| view.epoch), Some(6));

    // All primaries report an older epoch: the cluster was created again.
    let mut answers = views(6, false);
    for (epoch, of_primary) in [(9, false), (2, true), (1, true), (10, false)] {
        assert!(answers.hear(view(epoch, of_primary)).is_none());
    }
    let best = answers.best().map(|view| (view.epoch, view.of_primary));
    assert_eq!(best, Some((2, true)));
}

#[test]
fn the_first_view_is_believed_from_any_node() {
    let first = views(0, true).hear(view(9, false));
    assert_eq!(first.map(|view| view.epoch), Some(0));
}

#[test]
fn a_view_is_read_from_the_replies_of_a_node() {
    let text = |text: &str| Reply::Text(text.as_bytes().to_vec());
    let node = Reply::List(vec![text("127.0.0.1"), Reply::Int(7), text("a")]);
    let range = Reply::List(vec![Reply::Int(0), Reply::Int(99), node]);
    let told = Reply::List(vec![range]);
    for (info, epoch, is_up) in [
        ("cluster_state:ok\r\ncluster_current_epoch:6\r\n", 6, true),
        (
            "cluster_state:fail\r\ncluster_current_epoch:6\r\n",
            6,
            false,
        ),
        // CLUSTER INFO is forbidden.
        ("", 0, true),
        ("cluster_current_epoch:many\r\n", 0, true),
    ] {
        let view = NodeView::read(&told, info, &loopback(7)).unwrap();
        assert_eq!((view.epoch, view.is_up), (epoch, is_up), "{info}");
        assert!(view.of_primary && view.told_by == loopback(7));
        assert_eq!((view.ranges.len(), view.ids), (1, ids(&["a"])));
    }
    let replica = NodeView::read(&told, "", &loopback(8)).unwrap();
    assert!(!replica.of_primary);
    let empty = NodeView::read(&Reply::List(Vec::new()), "", &loopback(7));
    assert_eq!(empty.map(drop).unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn an_error_names_its_node_once_and_what_to_do() {
    let no_node = "ERR This instance has cluster support disabled";
    let forbidden = "NOPERM no permissions to run the 'cluster|slots' command";
    for (error, kind, told) in [
        (
            unsent("redis://127.0.0.1:7: connection refused"),
            ErrorKind::Unavailable,
            "redis://127.0.0.1:7: connection refused",
        ),
        (
            unsent("no answer"),
            ErrorKind::Unavailable,
            "redis://127.0.0.1:7: no answer",
        ),
        (
            ServerError::parse(no_node).error(),
            ErrorKind::InvalidOptions,
            "redis://127.0.0.1:7: it is no node of a cluster; write redis:// instead",
        ),
        (
            ServerError::parse(forbidden).error(),
            ErrorKind::Refused,
            "redis://127.0.0.1:7: allow +cluster|slots: give the user the rights",
        ),
        // It names the right already.
        (
            Error::new(ErrorKind::Refused).because("NOPERM; allow +cluster|slots: no"),
            ErrorKind::Refused,
            "redis://127.0.0.1:7: NOPERM; allow +cluster|slots: no",
        ),
    ] {
        let explained = explain(&loopback(7), &error);
        assert_eq!(explained.kind(), kind, "{explained}");
        let detail = explained.detail().unwrap();
        assert!(detail.starts_with(told), "{detail}");
    }
}

#[tokio::test]
async fn an_error_that_no_retry_helps_is_told_before_the_others() {
    let cluster = cluster_of(vec![loopback(7)]);
    let kinds = |troubles| cluster.unreachable(troubles).kind();
    let refused = || Error::new(ErrorKind::Refused).because("no");
    assert_eq!(kinds(vec![unsent("a"), refused()]), ErrorKind::Refused);
    assert_eq!(kinds(vec![unsent("a")]), ErrorKind::Unavailable);
    for (troubles, told) in [
        (vec![], ": no answer"),
        (vec![unsent("a"), unsent("b")], ": a; b"),
    ] {
        let error = cluster.unreachable(troubles);
        let detail = error.detail().unwrap();
        assert!(detail.starts_with("redis+cluster://127.0.0.1:7: no node"));
        assert!(detail.ends_with(told), "{detail}");
    }
}

#[test]
fn another_cluster_is_used_only_if_all_addresses_lead_to_it() {
    const OLD: &[&str] = &["a", "b", "c"];
    const NEW: &[&str] = &["x", "y", "z"];
    const THIRD: &[&str] = &["o", "p", "q"];
    let ours = KnownNodes::default();
    ours.replace(ids(OLD));
    for (told, is_used) in [
        (vec![], false),
        (vec![(NEW, true)], true),
        (vec![(NEW, true), (&NEW[..2], true)], true),
        (vec![(NEW, true), (THIRD, true)], false),
        // It has not joined a cluster yet.
        (vec![(NEW, true), (&NEW[..0], true)], false),
        // One is of ours, and is back.
        (vec![(NEW, true), (OLD, true)], false),
        (vec![(OLD, true), (NEW, true)], false),
        // One was left over from ours.
        (vec![(OLD, false), (NEW, true)], true),
        (vec![(NEW, false)], false),
    ] {
        let views = told.iter().map(|(told, is_up)| NodeView {
            ids: ids(told),
            is_up: *is_up,
            ..view(1, true)
        });
        let used = of_another_cluster(views, &ours);
        assert_eq!(used.is_some(), is_used, "{told:?}");
        assert!(used.is_none_or(|view| view.ids == ids(NEW)), "{told:?}");
    }
}

#[tokio::test]
async fn each_refresh_asks_another_primary_first_and_then_all_others_once() {
    let cluster = cluster_of([2, 9].map(loopback).to_vec());
    let asked = || -> Vec<u16> {
        let nodes = cluster.candidates();
        let ports = nodes.iter().map(|node| match node.address {
            HostAddress::Tcp { port, .. } => port,
            HostAddress::Unix(_) => 0,
        });
        ports.collect()
    };
    assert_eq!(asked(), [2, 9], "no map is known");
    let range = |slot: u16, port, replica| SlotRange {
        first: slot,
        last: slot,
        primary: loopback(port),
        replicas: vec![loopback(replica)],
    };
    cluster.take(NodeView {
        ranges: vec![range(0, 1, 6), range(1, 2, 5), range(2, 3, 6)],
        ..view(1, true)
    });
    assert_eq!(asked(), [2, 3, 1, 5, 6, 9]);
    assert_eq!(asked(), [3, 1, 2, 5, 6, 9]);
    assert_eq!(asked(), [1, 2, 3, 5, 6, 9]);
}

#[tokio::test]
async fn a_node_that_has_joined_another_cluster_is_left() {
    let cluster = cluster_of(vec![loopback(7)]);
    let told = |told: &[&str]| NodeView {
        ids: ids(told),
        ..view(1, true)
    };
    let node = cluster.node(&loopback(7));
    cluster.take(told(&["a", "b", "c"]));
    let checked = cluster.check_it_is_ours(&node, told(&["a", "b", "d"]));
    assert!(checked.is_ok() && node.endpoint.times_left() == 0);
    let checked = cluster.check_it_is_ours(&node, told(&["c", "x", "y"]));
    let error = checked.map(drop).unwrap_err();
    let told = error.detail().unwrap_or_default();
    assert!(told.contains(known_nodes::ANOTHER_CLUSTER), "{error}");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(node.endpoint.times_left(), 1);
}

/// How many failed refreshes it takes until the cluster counts as gone.
fn failures_until_gone(cluster: &Cluster) -> Option<usize> {
    (1..=20).find(|_| cluster.is_gone(&[]))
}

#[tokio::test(start_paused = true)]
async fn a_view_of_a_cluster_that_is_up_ends_an_outage() {
    let told = |is_up| NodeView {
        ids: ids(&["a"]),
        is_up,
        ..view(1, true)
    };
    let mut cluster = cluster_of(vec![loopback(7)]);
    assert_eq!(failures_until_gone(&cluster), None, "there was none before");
    cluster.take(told(true));
    assert_eq!(failures_until_gone(&cluster), Some(11));
    cluster.take(told(false));
    assert_eq!(failures_until_gone(&cluster), Some(1), "it is still down");
    cluster.take(told(true));
    assert_eq!(failures_until_gone(&cluster), Some(11));
    cluster.replace(told(true));
    assert_eq!(failures_until_gone(&cluster), Some(11));
    // Locks with the lease of the client may still be held.
    cluster.take(told(true));
    cluster.gone_after = Duration::from_secs(30);
    assert_eq!(failures_until_gone(&cluster), None);
    tokio::time::advance(cluster.gone_after).await;
    assert_eq!(failures_until_gone(&cluster), Some(1));
}

/// The first one of the URL accepts connections and is silent.
#[tokio::test]
async fn a_silent_node_hides_no_other() {
    let (silent, other) = (ScriptedServer::start().await, node("a").await);
    silent.answers("CLUSTER SLOTS", &[SILENCE]);
    let cluster = cluster_of(vec![silent.address(), other.address()]);
    in_time(cluster.refresh_map()).await.unwrap();
    assert_eq!(cluster.owner(0).unwrap().address, other.address());
}

/// The node that is asked first has become a replica.
#[tokio::test]
async fn the_map_of_a_primary_is_preferred_to_that_of_a_replica() {
    let (replica, primary) = (ScriptedServer::start().await, node("a").await);
    let mut cluster = cluster_of(vec![primary.address()]);
    cluster.give_all_slots(&replica.address());
    replica.answers("CLUSTER SLOTS", &[&all_slots(1, "a")]);
    in_time(cluster.refresh_map()).await.unwrap();
    assert_eq!(cluster.owner(0).unwrap().address, primary.address());
    // If no primary answers, the map of the replica is better than none.
    drop(primary);
    cluster.seeds = vec![replica.address()];
    in_time(cluster.refresh_map()).await.unwrap();
    assert_eq!(cluster.owner(0).unwrap().address, loopback(1));
}

#[tokio::test]
async fn a_cluster_of_which_no_node_answers_cannot_be_read() {
    let nobody = nowhere().await;
    let cluster = cluster_of(vec![nobody.clone()]);
    let error = in_time(cluster.refresh_map()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&nobody.to_string()), "{error}");
}

/// The addresses of the URL lead to another cluster: the node there has another id, or ours is still there and reports that the
/// cluster is down. Until the outage has lasted, our cluster may come back.
#[tokio::test]
async fn another_cluster_is_used_once_ours_has_been_gone_for_long() {
    for is_left_over in [false, true] {
        let (old, new) = (node("a").await, node("x").await);
        let mut cluster = cluster_of(vec![old.address()]);
        in_time(cluster.refresh_map()).await.unwrap();
        cluster.seeds = vec![new.address()];
        if is_left_over {
            old.answers("CLUSTER INFO", &[&text("cluster_state:fail\r\n")]);
        } else {
            old.answers("CLUSTER SLOTS", &[&all_slots(old.port, "z")]);
        }
        for nth in 1..=10 {
            let read = in_time(cluster.refresh_map()).await;
            assert_eq!(read.is_ok(), is_left_over, "{nth}: {read:?}");
            let owner = cluster.owner(0).unwrap();
            assert_eq!(owner.address, old.address(), "{nth}");
        }
        in_time(cluster.refresh_map()).await.unwrap();
        assert_eq!(cluster.owner(0).unwrap().address, new.address());
        assert!(cluster.entry.known_nodes.are_known_to(&ids(&["x"])));
        assert!(!cluster.entry.known_nodes.are_known_to(&ids(&["a"])));
    }
}

/// It may be a node of ours that has lost a right, and still has our locks.
#[tokio::test]
async fn another_cluster_is_not_used_while_an_address_of_the_url_refuses_to_tell() {
    let (old, new) = (node("a").await, node("x").await);
    let refusing = ScriptedServer::start().await;
    refusing.answers("CLUSTER SLOTS", &["-NOPERM no\r\n"]);
    let mut cluster = cluster_of(vec![old.address()]);
    in_time(cluster.refresh_map()).await.unwrap();
    cluster.seeds = vec![new.address(), refusing.address()];
    old.answers("CLUSTER SLOTS", &[&all_slots(old.port, "z")]);
    for nth in 1..=12 {
        let read = in_time(cluster.refresh_map()).await;
        assert!(read.is_err(), "{nth}");
        assert_eq!(cluster.owner(0).unwrap().address, old.address(), "{nth}");
    }
    // It is not there any more.
    drop(refusing);
    in_time(cluster.refresh_map()).await.unwrap();
    assert_eq!(cluster.owner(0).unwrap().address, new.address());
}

#[tokio::test]
async fn the_map_is_followed_until_the_client_is_closed_or_dropped() {
    for closes in [true, false] {
        let server = node("a").await;
        let cluster = Arc::new(cluster_of(vec![server.address()]));
        cluster.refresh_map().await.unwrap();
        let following = follow(Arc::downgrade(&cluster), cluster.timers.clone());
        let following = tokio::spawn(following);
        cluster.doubt();
        server.hears("CLUSTER SLOTS", 2).await;
        if closes {
            let node = cluster.owner(0).unwrap();
            cluster.close();
            in_time(following).await.unwrap();
            // It has closed the connections too.
            let deadline = node.back.deadline();
            node.back.ask(&request_of("LATER"), deadline).await.unwrap();
            let before = server.connections("CLUSTER INFO");
            assert!(!before.contains(&server.connections("LATER")[0]));
        } else {
            drop(cluster);
            in_time(following).await.unwrap();
        }
    }
}
