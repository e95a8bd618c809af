//! Which way a script takes, and what it reports about the replicas.

use super::*;
use crate::error::{Error, ErrorKind};
use crate::store::redis::topology::replication::Replicas;
use crate::store::redis::topology::tests::connection_to;
use crate::store::redis::wire::live_connection::peer::in_time;
use crate::store::redis::wire::request::Request;
use crate::store::redis::wire::script::{Script, sha1};
use crate::store::redis::wire::tests::replies::text;
use crate::store::redis::wire::tests::{ScriptedServer, simulated};

static SCRIPT: Script = Script::new("return 1", || sha1("return 1"));

const SECOND: Duration = Duration::from_secs(1);

fn demand(policy: ReplicaAck) -> AckDemand {
    AckDemand {
        purpose: Purpose::Acquire,
        policy,
        missed: 0,
        within: SECOND,
        lease: SECOND * 60,
    }
}

/// So many replicas, of which none is in sync.
fn copying(count: u32) -> ReplicaView {
    ReplicaView::Replicas(Replicas {
        count,
        online: Arc::default(),
        copying: Arc::default(),
        server: None,
    })
}

fn words(route: &Result<AckRoute>) -> &'static str {
    match route {
        Ok(AckRoute::Alone(AckResult::Forbidden(_))) => "alone, forbidden",
        Ok(AckRoute::Alone(_)) => "alone",
        Ok(AckRoute::CheckReplicas(_)) => "checks",
        Ok(AckRoute::Queue) => "queue",
        Err(_) => "refused",
    }
}

/// A server that was just promoted has no replicas for a moment.
#[test]
fn a_server_without_replicas_is_believed_for_a_while_and_only_by_the_default_policy() {
    let looked = BootInstant(1 << 40);
    let almost = NO_REPLICAS_TTL.saturating_sub(Duration::from_nanos(1));
    let forbidden = ReplicaView::Forbidden(Arc::new(Error::new(ErrorKind::Refused)));
    for (view, age, by_any, by_others) in [
        (None, Duration::ZERO, "queue", "queue"),
        (Some(copying(1)), Duration::ZERO, "queue", "queue"),
        (Some(copying(0)), Duration::ZERO, "alone", "checks"),
        (Some(copying(0)), almost, "alone", "checks"),
        (Some(copying(0)), NO_REPLICAS_TTL, "checks", "checks"),
        (Some(forbidden), almost, "alone, forbidden", "refused"),
    ] {
        for (policy, expected) in [
            (ReplicaAck::Any, by_any),
            (ReplicaAck::Majority, by_others),
            (ReplicaAck::All, by_others),
        ] {
            let (status, now) = (ReplicationStatus::default(), looked + age);
            if let Some(view) = view.clone() {
                status.set(view, looked);
            }
            let route = demand(policy).route(&status, now);
            assert_eq!(words(&route), expected, "{view:?} {policy}");
            if expected == "checks" {
                // One request checks, and not all that come meanwhile.
                let next = demand(ReplicaAck::Any).route(&status, now);
                assert_eq!(words(&next), "alone");
            }
        }
    }
}

#[test]
fn a_quarter_of_the_limit_is_left_for_a_release() {
    let (now, limit) = (BootInstant(1 << 40), SECOND * 8);
    for (deadline, starts) in [
        (now + SECOND * 10, now + SECOND * 8),
        (now + SECOND * 2, now),
        (now + SECOND, now),
        (BootInstant(1), now),
    ] {
        assert_eq!(release_starts(now, deadline, limit), starts);
    }
    // The server checks its own timeout, of a second, only ten times a second.
    let patience = |deadline| demand(ReplicaAck::Any).patience(now, deadline, limit);
    let comes = now + Duration::from_millis(1400);
    assert_eq!(patience(now + SECOND * 10), comes);
    assert_eq!(patience(now + SECOND * 3), now + SECOND);
}

/// Runs a script as one of a client whose connection has found no replicas at this moment.
async fn run_at(connection: &Connection, policy: ReplicaAck, looked: BootInstant) -> String {
    let deadline = connection.deadline();
    let conn = connection.get(deadline).await.unwrap();
    conn.server.replication.set(copying(0), looked);
    let job = ScriptJob {
        script: &SCRIPT,
        keys: &["key"],
        args: &[],
        deadline,
    };
    let (background, _) = simulated();
    let asked = eval(connection, &conn, false, &job, demand(policy), &background);
    let (reply, pending) = in_time(asked).await.unwrap();
    assert_eq!(reply, Reply::Int(1));
    match pending.source.result().await {
        AckResult::Count { replicas, reached } => format!("{reached} of {}", replicas.count),
        AckResult::Forbidden(_) => "forbidden".to_owned(),
        AckResult::Nothing => "nothing".to_owned(),
    }
}

/// A grant that a replica which has come meanwhile does not have is released, and asked for again.
#[tokio::test]
async fn a_replica_that_has_come_since_the_last_look_has_acknowledged_nothing() {
    let (any, all) = (ReplicaAck::Any, ReplicaAck::All);
    let [without, with_one] =
        [0, 1].map(|count| text(&format!("role:master\r\nconnected_slaves:{count}\r\n")));
    for (policy, info, report, stays) in [
        (all, &*with_one, "0 of 1", true),
        (all, &*without, "0 of 0", true),
        (all, "-NOPERM no permissions\r\n", "nothing", false),
        (all, "+OK\r\n", "nothing", false),
        (any, &*with_one, "0 of 0", true),
        (any, "+OK\r\n", "0 of 0", true),
    ] {
        let server = ScriptedServer::start().await;
        server.answers("EVALSHA", &[":1\r\n"]);
        // The first one is that of the connect.
        server.answers("INFO replication", &["+OK\r\n", info]);
        let connection = connection_to(server.address());
        let long_ago = BootInstant(1);
        assert_eq!(
            run_at(&connection, policy, long_ago).await,
            report,
            "{info}"
        );
        assert_eq!(server.heard("INFO replication").len(), 2);
        let now = connection.timers().now();
        run_at(&connection, any, now).await;
        let used = server.connections("EVALSHA");
        assert_eq!(used[0] == used[1], stays, "{policy}: {info}");
    }
}

/// Scripts of one policy share a connection for `WAIT`, which no other request uses.
#[tokio::test]
async fn a_script_that_needs_a_replica_waits_on_a_connection_of_its_own() {
    let server = ScriptedServer::start().await;
    let replica = "slave0:ip=h,port=1,state=online,offset=1,lag=0\r\n";
    let info = format!("role:master\r\nconnected_slaves:1\r\n{replica}");
    server.answers("INFO replication", &[&text(&info)]);
    server.answers("EVALSHA", &[":1\r\n"]);
    server.answers("WAIT", &[":0\r\n", ":1\r\n"]);
    let connection = connection_to(server.address());
    let deadline = connection.deadline();
    let conn = connection.get(deadline).await.unwrap();
    let (background, _) = simulated();
    let job = ScriptJob {
        script: &SCRIPT,
        keys: &["key"],
        args: &[],
        deadline,
    };
    for _ in 0..3 {
        let demand = demand(ReplicaAck::Any);
        let asked = eval(&connection, &conn, false, &job, demand, &background);
        let (reply, pending) = in_time(asked).await.unwrap();
        assert_eq!(reply, Reply::Int(1));
        let result = in_time(pending.source.result()).await;
        assert!(
            matches!(result, AckResult::Count { reached: 1, .. }),
            "{result:?}"
        );
    }
    let (scripts, waits) = (server.connections("EVALSHA"), server.connections("WAIT 1"));
    assert_eq!(scripts, waits);
    assert_eq!(scripts, [scripts[0]; 3]);
    connection
        .ask(&Request::new("OTHER"), deadline)
        .await
        .unwrap();
    assert_ne!(server.connections("OTHER")[0], scripts[0]);
}
