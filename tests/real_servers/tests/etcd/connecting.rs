//! T76: when a client connects, the cluster has no leader, or the server is slow or not there yet.

use std::time::Duration;

use real_servers::connecting::is_waited_for;
use testkit::servers::{EtcdCluster, EtcdServer};
use tidelock::{Client, ClientBuilder, ErrorKind};

use crate::world::ms;

fn builder() -> ClientBuilder {
    Client::builder().lease(ms(4000)).response_timeout(ms(1000))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_cluster_without_a_leader_is_waited_for() {
    let cluster = EtcdCluster::start(3).unwrap();
    let (left, gone) = cluster.members().split_first().unwrap();
    for member in gone {
        member.kill().unwrap();
    }
    // The remaining server answers, but has no majority.
    let open = || gone.iter().try_for_each(EtcdServer::restart);
    is_waited_for(builder(), &left.url(), open).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_server_that_is_slow_or_started_later_is_waited_for() {
    let server = EtcdServer::start().unwrap();
    server.freeze().unwrap();
    is_waited_for(builder(), &server.url(), || server.thaw())
        .await
        .unwrap();
    server.kill().unwrap();
    is_waited_for(builder(), &server.url(), || server.restart())
        .await
        .unwrap();
}

/// A permanent error is returned at once, however long the limit is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_login_that_is_not_taken_is_not_waited_for() {
    let server = EtcdServer::start().unwrap();
    server.guard().unwrap();
    let wrong = server.url().replace("etcd://", "etcd://root:wrong@");
    let patient = builder().connect_within(Duration::from_secs(60));
    let asked = tokio::time::timeout(Duration::from_secs(5), patient.connect(&wrong));
    let refused = asked.await.expect("told at once").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
}
