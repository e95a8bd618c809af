//! The slot map: what changes it, and what a change does to connections, lanes and waiters. Nobody listens at these addresses.

use tokio::time;

use super::*;
use crate::store::redis::wire::tests::{loopback, simulated, tcp};

const MS: Duration = Duration::from_millis(1);

/// Two nodes that have all slots.
const BOTH: [(u16, u16, u16); 2] = [(0, 99, 1), (100, 16383, 2)];

fn view(epoch: i64, ranges: &[(u16, u16, u16)]) -> NodeView {
    let range = |&(first, last, port): &(u16, u16, u16)| SlotRange {
        first,
        last,
        primary: loopback(port),
        replicas: vec![],
    };
    NodeView {
        told_by: loopback(9),
        epoch,
        of_primary: true,
        ranges: ranges.iter().map(range).collect(),
        ids: HashSet::new(),
        is_up: true,
    }
}

/// A cluster whose map is not known.
fn cluster() -> Cluster {
    let (background, timers) = simulated();
    let entry = EndpointLogin::default();
    let limit = Duration::from_secs(1);
    Cluster::new(vec![loopback(9)], entry, background, timers, limit, limit)
}

#[tokio::test]
async fn a_node_is_believed_by_the_epoch_it_has_seen() {
    let cluster = cluster();
    let port = |slot| cluster.owner(slot).map(|node| node.address.clone());
    assert_eq!(port(0), None);

    cluster.take(view(1, &BOTH));
    assert_eq!((port(0), port(100)), (Some(loopback(1)), Some(loopback(2))));
    let first = cluster.owner(0).unwrap();

    // One slot moves to a node that the map does not have yet.
    cluster.moved(7, &loopback(3));
    assert_eq!((port(7), port(8)), (Some(loopback(3)), Some(loopback(1))));
    let third = cluster.owner(7).unwrap();

    // A report by a node that does not know of the move closes no connection.
    cluster.take(view(1, &BOTH));
    assert_eq!(port(7), Some(loopback(1)));
    assert_eq!(third.endpoint.times_left(), 0);
    assert!(Arc::ptr_eq(&first, &cluster.owner(0).unwrap()));

    // A failover: the old primary may never reply, so its connections are closed.
    cluster.take(view(2, &[(0, 98, 4), (100, 16383, 2)]));
    assert_eq!((port(0), port(99)), (Some(loopback(4)), None));
    assert_eq!(first.endpoint.times_left(), 1);
    assert_eq!((cluster.bare_slots(), cluster.primaries().len()), (1, 2));
}

#[tokio::test]
async fn a_replica_that_has_taken_over_is_none_any_more() {
    let cluster = cluster();
    let mut told = view(1, &BOTH);
    told.ranges[0].replicas = vec![loopback(5)];
    told.ranges[1].replicas = vec![loopback(5), loopback(4)];
    cluster.take(told);
    assert_eq!(cluster.replicas(), [loopback(4), loopback(5)]);
    cluster.moved(0, &loopback(5));
    assert_eq!(cluster.replicas(), [loopback(4)]);
}

/// The user may not ask for the epoch, so each map counts as news.
#[tokio::test]
async fn a_map_without_an_epoch_closes_the_connections_to_the_nodes_that_it_lacks() {
    let cluster = cluster();
    cluster.take(view(5, &BOTH));
    let (first, second) = (cluster.owner(0).unwrap(), cluster.owner(100).unwrap());
    cluster.take(view(0, &[(100, 16380, 2)]));
    assert_eq!(first.endpoint.times_left(), 1);
    assert_eq!(second.endpoint.times_left(), 0);
    assert_eq!(cluster.bare_slots(), 103);
}

/// Subscriptions follow each change, and messages go out in both forms for a while.
#[tokio::test]
async fn only_what_differs_counts_as_a_change_of_the_map() {
    let cluster = cluster();
    let changes = || *cluster.changes.borrow();
    let port = |slot| cluster.owner(slot).map(|node| node.address.clone());
    cluster.take(view(1, &BOTH));
    assert_eq!(changes(), 1);
    cluster.take(view(2, &BOTH));
    assert_eq!(changes(), 1, "it is the same map");
    cluster.moved(0, &loopback(1));
    assert_eq!(changes(), 1, "the slot is there already");
    assert!(cluster.is_in_doubt(), "a node has another map than we");
    cluster.moved(0, &loopback(2));
    assert_eq!(changes(), 2);
    assert_eq!((port(0), port(1)), (Some(loopback(2)), Some(loopback(1))));
    assert_eq!(cluster.primaries().len(), 2, "the node was known");
    cluster.take(view(2, &BOTH));
    assert_eq!(changes(), 3, "the slot is back");
    cluster.take(view(3, &[(0, 99, 1), (100, 16383, 3)]));
    assert_eq!(changes(), 4, "a node has taken the place of another one");
    cluster.take(view(3, &[(0, 99, 1), (100, 16382, 3)]));
    assert_eq!(changes(), 5, "a slot has no node");
    cluster.take(view(3, &[(0, 98, 1), (99, 99, 2), (100, 16382, 3)]));
    assert_eq!(changes(), 6, "there is one node more");
}

/// A slot that migrates has a lane of its own: a request for it may end at the other node.
#[tokio::test(start_paused = true)]
async fn slots_share_the_lane_of_their_node_unless_they_migrate() {
    let cluster = cluster();
    assert_eq!(cluster.lane(7), 7, "no node has it yet");
    cluster.take(view(1, &[(0, 99, 1), (100, 199, 2)]));
    let lane = cluster.lane(7);
    assert_eq!(cluster.lane(8), lane);
    assert_ne!(cluster.lane(100), lane);
    assert_eq!(cluster.lane(300), 300, "no node has it");
    cluster.migrates(7);
    assert_eq!((cluster.lane(7), cluster.lane(8)), (7, lane));
    time::advance(Duration::from_secs(60)).await;
    assert_eq!(cluster.lane(7), lane);
    let lanes: HashSet<u64> = (1..=64).map(|port| node_lane(&loopback(port))).collect();
    assert_eq!(lanes.len(), 64);
    assert!(lanes.iter().all(|lane| *lane >= NODE_LANE), "{lanes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_map_is_in_doubt_and_unsettled_for_a_while() {
    let cluster = cluster();
    assert!(!cluster.is_in_doubt() && !cluster.is_settled());
    cluster.doubt();
    time::advance(IN_DOUBT.saturating_sub(MS)).await;
    assert!(cluster.is_in_doubt());
    time::advance(MS).await;
    assert!(!cluster.is_in_doubt());
    time::advance(SETTLES.saturating_sub(IN_DOUBT)).await;
    assert!(cluster.is_settled());
    cluster.take(view(1, &BOTH));
    time::advance(SETTLES.saturating_sub(MS)).await;
    assert!(!cluster.is_settled(), "subscribers may be at the old node");
    time::advance(MS).await;
    assert!(cluster.is_settled());
}

#[tokio::test]
async fn a_node_that_the_map_has_is_not_made_again() {
    let cluster = cluster();
    cluster.take(view(1, &BOTH));
    let (known, second) = (cluster.owner(0).unwrap(), cluster.owner(100).unwrap());
    assert!(Arc::ptr_eq(&cluster.node_at(&loopback(1)), &known));
    assert!(Arc::ptr_eq(&cluster.node_at(&loopback(2)), &second));
    assert_eq!(cluster.node_at(&loopback(3)).address, loopback(3));
    assert_eq!(cluster.primaries().len(), 2);
}

/// A new cluster may have the addresses of the old one, whose connections would lead there.
#[tokio::test]
async fn a_cluster_that_replaces_ours_ends_the_connections_to_all_its_nodes() {
    let cluster = cluster();
    let ids = |ids: &[&str]| -> HashSet<String> { ids.iter().map(|&id| id.to_owned()).collect() };
    cluster.take(NodeView {
        ids: ids(&["a", "b"]),
        ..view(9, &BOTH)
    });
    let old = cluster.primaries();
    cluster.replace(NodeView {
        ids: ids(&["x"]),
        ..view(1, &[(0, 16383, 1)])
    });
    let left = old.iter().map(|node| node.endpoint.times_left());
    assert_eq!(left.collect::<Vec<_>>(), [1, 1]);
    let known = &cluster.entry.known_nodes;
    assert!(known.are_known_to(&ids(&["x"])) && !known.are_known_to(&ids(&["a", "b"])));
    assert_eq!(cluster.owner(16383).unwrap().address, loopback(1));
}

#[tokio::test]
async fn a_cluster_is_shown_by_the_addresses_of_its_url() {
    let mut cluster = cluster();
    cluster.seeds.push(loopback(8));
    assert_eq!(
        cluster.to_string(),
        "redis+cluster://127.0.0.1:9,127.0.0.1:8"
    );
    cluster.seeds.push(tcp("h", 7, true));
    assert_eq!(
        cluster.to_string(),
        "rediss+cluster://127.0.0.1:9,127.0.0.1:8,h:7"
    );
}
