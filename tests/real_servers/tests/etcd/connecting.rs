//! T76: when a client connects, the cluster has no leader, or the server is slow or not there yet.

use std::process::Command;
use std::time::{Duration, Instant};

use real_servers::connecting::is_waited_for;
use testkit::process::Spawned;
use testkit::proxy::{Mode, Proxy};
use testkit::servers::{EtcdCluster, EtcdServer, free_port};
use tidelock::{Client, ClientBuilder, ErrorKind};

use crate::world::{SOON, ms, soon};

fn builder() -> ClientBuilder {
    Client::builder().lease(ms(9000)).response_timeout(ms(3000))
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
    let asked = tokio::time::timeout(Duration::from_secs(10), patient.connect(&wrong));
    let refused = asked.await.expect("told at once").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
}

/// Connects, at once and with the first operation, although the first member of the URL serves nobody.
async fn gets_past_the_first_member_of(url: &str) {
    // Each try to connect starts with the first member again.
    let eager = builder().connect_within(SOON).connect(url).await.unwrap();
    let lazy = builder().connect_lazy(url).unwrap();
    for client in [eager, lazy] {
        let acquired = soon("the lock", client.lock("stock").acquire()).await;
        acquired.unwrap().release().await.unwrap();
    }
}

/// The kernel accepts the connections of a frozen server. Two proxies in front of one server stand for two members.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_first_member_that_is_silent_keeps_nobody_out() {
    let server = EtcdServer::start().unwrap();
    let silent = Proxy::start(server.addr()).unwrap();
    silent.set_both(Mode::Drop);
    let other = Proxy::start(server.addr()).unwrap();
    let url = format!("etcd://{},{}", silent.addr(), other.addr());
    gets_past_the_first_member_of(&url).await;
    assert!(silent.accepted() > 0 && other.accepted() > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_first_member_that_is_a_learner_keeps_nobody_out() {
    let server = EtcdServer::start().unwrap();
    let learner = server.start_learner().unwrap();
    // Until it has joined the cluster it gives other reasons.
    let end = Instant::now() + SOON;
    loop {
        let refused = builder().connect(&learner.url()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        if refused.to_string().contains("learner") {
            break;
        }
        assert!(Instant::now() < end, "{refused}");
        tokio::time::sleep(ms(50)).await;
    }
    let url = format!("etcd://{},{}", learner.addr(), server.addr());
    gets_past_the_first_member_of(&url).await;
}

/// etcd's own proxy takes requests, and ends the stream of each keep-alive before it has answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grpc_proxy_is_named_as_the_reason_why_no_lease_is_kept_alive() {
    let server = EtcdServer::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let addr = format!("127.0.0.1:{}", free_port().unwrap());
    let mut command = Command::new("etcd");
    command.args(["grpc-proxy", "start", "--listen-addr", &addr]);
    command.arg("--endpoints").arg(server.addr().to_string());
    command.arg("--data-dir").arg(dir.path());
    let _proxy = Spawned::start(command).unwrap();
    let patient = builder().connect_within(SOON);
    let client = patient.connect(&format!("etcd://{addr}")).await.unwrap();
    let lock = client.lock("stock");
    let guard = soon("the lock", lock.acquire()).await.unwrap();
    guard.release().await.unwrap();
    // It takes over the lease that the hold before it has left, so it has to keep that alive. On a busy machine the lease may
    // be too old for that, or the answer may come before the end of the stream, or none in time.
    let named = async {
        loop {
            match lock.try_acquire().await {
                Ok(Some(guard)) => drop(guard.release().await),
                Err(error) if error.to_string().contains("grpc-proxy") => return,
                Ok(None) | Err(_) => tokio::time::sleep(ms(50)).await,
            }
        }
    };
    soon("an error that names the proxy", named).await;
}
