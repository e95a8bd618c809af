//! Batches of scripts with a `WAIT` behind them: what is asked, and what each caller is told.

use super::*;
use crate::error::ErrorKind;
use crate::store::redis::replicas::demand::Purpose;
use crate::store::redis::topology::tests::connection_to;
use crate::store::redis::wire::live_connection::peer::in_time;
use crate::store::redis::wire::script::sha1;
use crate::store::redis::wire::tests::replies::{text, texts};
use crate::store::redis::wire::tests::{HANG_UP, LIMIT, SILENCE, ScriptedServer, skip};

static SCRIPT: Script = Script::new("return 1", || sha1("return 1"));

/// The reply to one script, and the report about the replicas.
type Told = (Result<i64, ErrorKind>, String);

/// A server with so many replicas, all in sync, which acknowledge as `waits` says.
async fn server(replicas: u32, waits: &[&str]) -> ScriptedServer {
    let server = ScriptedServer::start().await;
    server.answers("INFO replication", &[&info(replicas)]);
    server.answers("EVALSHA", &[":1\r\n"]);
    server.answers("WAIT", waits);
    server.answers("WAIT 0", &[":0\r\n"]);
    server
}

fn info(replicas: u32) -> String {
    let count = format!("role:master\r\nconnected_slaves:{replicas}\r\n");
    let each = (0..replicas)
        .map(|number| format!("slave{number}:ip=h,port={number},state=online,offset=1,lag=0\r\n"));
    let lines: Vec<String> = std::iter::once(count).chain(each).collect();
    text(&lines.concat())
}

/// Runs one batch, with a script for each policy.
async fn serve(
    wait_connection: WaitConnection,
    policies: &[ReplicaAck],
) -> (WaitConnection, Vec<Told>) {
    let deadline = wait_connection.connection.deadline();
    let (mut group, mut callers) = (Vec::new(), Vec::new());
    for policy in policies {
        let (answer, answered) = oneshot::channel();
        let (tally, tallied) = oneshot::channel();
        group.push(AckRequest {
            asking: false,
            script: &SCRIPT,
            keys: vec!["key".to_owned()],
            args: vec!["arg".to_owned()],
            demand: AckDemand {
                purpose: Purpose::Acquire,
                policy: *policy,
                missed: 0,
                within: Duration::from_secs(1),
                lease: Duration::from_secs(60),
            },
            deadline,
            answer,
            tally,
        });
        callers.push((answered, tallied));
    }
    let opened = in_time(wait_connection.serve(group)).await;
    let mut told = Vec::new();
    for (answered, tallied) in callers {
        let reply = answered.await.unwrap();
        let reply = reply.map(|reply| reply.int().unwrap_or_default());
        let report = match tallied.await {
            Ok(AckResult::Count { replicas, reached }) => {
                format!("{reached} of {}", replicas.count)
            }
            Ok(AckResult::Forbidden(_)) => "forbidden".to_owned(),
            Ok(AckResult::Nothing) => "nothing".to_owned(),
            Err(_) => "none".to_owned(),
        };
        told.push((reply.map_err(|error| error.kind()), report));
    }
    (opened, told)
}

/// The first batch of a new connection.
async fn serve_first(
    server: &ScriptedServer,
    policies: &[ReplicaAck],
) -> (WaitConnection, Vec<Told>) {
    let connection = connection_to(server.address());
    serve(WaitConnection::new(connection), policies).await
}

fn granted(report: &str) -> Told {
    (Ok(1), report.to_owned())
}

/// The largest number that one of them needs is waited for, once, and each is told the count.
#[tokio::test]
async fn a_batch_shares_one_wait() {
    let server = server(3, &[":2\r\n"]).await;
    let policies = [ReplicaAck::Any, ReplicaAck::Majority, ReplicaAck::Any];
    let (opened, told) = serve_first(&server, &policies).await;
    assert_eq!(told, [(); 3].map(|()| granted("2 of 3")));
    assert_eq!(server.heard("WAIT"), ["WAIT 0 0", "WAIT 2 1000"]);
    assert_eq!(server.heard("EVALSHA").len(), 3);
    // It was enough, so the connection stays, and what it has learned of the server counts.
    let (_, told) = serve(opened, &[ReplicaAck::Any]).await;
    assert_eq!(told, [granted("2 of 3")]);
    assert_eq!(server.heard("WAIT")[2..], ["WAIT 1 1000"]);
    assert_eq!(
        server.connections("WAIT"),
        [server.connections("WAIT")[0]; 3]
    );
}

/// Another server may be the primary now.
#[tokio::test]
async fn a_server_with_too_few_acknowledgements_is_left() {
    let server = server(2, &[":1\r\n"]).await;
    let (opened, told) = serve_first(&server, &[ReplicaAck::All]).await;
    assert_eq!(told, [granted("1 of 2")]);
    assert_eq!(
        server.heard("WAIT 2").len(),
        1,
        "a second one helps nothing"
    );
    let (_, told) = serve(opened, &[ReplicaAck::All]).await;
    assert_eq!(told, [granted("1 of 2")]);
    let used = server.connections("EVALSHA");
    assert_ne!(used[0], used[1]);
}

/// The status is a second old at most for `Any`, and read with each batch for the others.
#[tokio::test]
async fn replicas_that_have_come_meanwhile_are_waited_for_too() {
    let server = server(1, &[":1\r\n"]).await;
    server.answers("WAIT 2", &[":2\r\n"]);
    // The first two are those of the connect and of the check of the connection.
    let (one, two) = (info(1), info(2));
    server.answers("INFO replication", &[&one, &one, &two]);
    let (opened, told) = serve_first(&server, &[ReplicaAck::All]).await;
    assert_eq!(told, [granted("2 of 2")]);
    let waits = ["WAIT 0 0", "WAIT 1 1000", "WAIT 2 1000"];
    assert_eq!(server.heard("WAIT"), waits);
    assert_eq!(server.heard("INFO replication").len(), 3);
    let (opened, _) = serve(opened, &[ReplicaAck::Any]).await;
    assert_eq!(server.heard("INFO replication").len(), 3);
    skip(REPLICA_COUNT_TTL).await;
    serve(opened, &[ReplicaAck::Any]).await;
    assert_eq!(server.heard("INFO replication").len(), 4);
}

/// The second one would take another round trip, and say the same.
#[tokio::test]
async fn a_first_wait_that_counts_enough_is_followed_by_no_second_one() {
    let server = server(1, &[":2\r\n"]).await;
    let (one, two) = (info(1), info(2));
    server.answers("INFO replication", &[&one, &one, &two]);
    let (_, told) = serve_first(&server, &[ReplicaAck::All]).await;
    assert_eq!(told, [granted("2 of 2")]);
    assert_eq!(server.heard("WAIT"), ["WAIT 0 0", "WAIT 1 1000"]);
}

#[tokio::test]
async fn a_script_that_the_server_does_not_know_is_sent_as_text_with_another_wait() {
    let server = server(1, &[":1\r\n"]).await;
    let unknown = "-NOSCRIPT No matching script.\r\n";
    server.answers("EVALSHA", &[":1\r\n", unknown]);
    server.answers("EVAL ", &[":2\r\n"]);
    let (_, told) = serve_first(&server, &[ReplicaAck::All, ReplicaAck::All]).await;
    assert_eq!(told, [granted("1 of 1"), (Ok(2), "1 of 1".to_owned())]);
    assert_eq!(server.heard("EVAL "), ["EVAL return 1 1 key arg"]);
    assert_eq!(server.heard("WAIT 1").len(), 2);
    // A server that knows neither is not asked for good.
    server.answers("EVAL ", &[unknown]);
    let (_, told) = serve_first(&server, &[ReplicaAck::Any]).await;
    assert_eq!(told[0].0, Err(ErrorKind::OutcomeUnknown));
}

/// Without the right to WAIT, or to INFO.
#[tokio::test]
async fn where_replicas_may_not_be_asked_only_a_strict_policy_is_refused() {
    let forbidden = "-NOPERM no permissions\r\n";
    for request in ["WAIT 0", "INFO replication"] {
        let server = server(1, &[":1\r\n"]).await;
        server.answers(request, &[forbidden]);
        let policies = [ReplicaAck::Any, ReplicaAck::All];
        let (_, told) = serve_first(&server, &policies).await;
        let refused: Told = (Err(ErrorKind::Refused), "none".to_owned());
        assert_eq!(told, [granted("forbidden"), refused], "{request}");
        assert!(server.heard("WAIT 1").is_empty(), "{request}");
        assert_eq!(server.heard("EVALSHA").len(), 1, "{request}");
    }
    // Where there are none, none need be asked.
    let server = server(0, &[":1\r\n"]).await;
    server.answers("WAIT 0", &[forbidden]);
    let mut opened = WaitConnection::new(connection_to(server.address()));
    for _ in 0..2 {
        let (next, told) = serve(opened, &[ReplicaAck::All]).await;
        assert_eq!(told, [granted("0 of 0")]);
        opened = next;
    }
    assert_eq!(server.heard("WAIT"), ["WAIT 0 0"], "only the first look");
}

/// There may be more replicas than at the last look.
#[tokio::test]
async fn without_a_new_status_a_strict_policy_is_not_met() {
    let server = server(1, &[":1\r\n"]).await;
    let one = info(1);
    server.answers("INFO replication", &[&one, &one, "+OK\r\n"]);
    let policies = [ReplicaAck::Any, ReplicaAck::All];
    let (_, told) = serve_first(&server, &policies).await;
    assert_eq!(told, [granted("1 of 1"), granted("nothing")]);
}

#[tokio::test]
async fn a_server_that_does_not_count_its_replicas_is_sent_no_script() {
    for (request, reply) in [("INFO replication", "+OK\r\n"), ("WAIT 0", HANG_UP)] {
        let server = server(1, &[":1\r\n"]).await;
        server.answers(request, &[reply]);
        let (opened, told) = serve_first(&server, &[ReplicaAck::Any]).await;
        let refused: Told = (Err(ErrorKind::Unavailable), "none".to_owned());
        assert_eq!(told, std::slice::from_ref(&refused), "{request}");
        let (_, told) = serve(opened, &[ReplicaAck::Any]).await;
        assert_eq!(told, [refused], "{request}");
        assert!(server.heard("EVALSHA").is_empty(), "{request}");
        let used = server.connections("WAIT 0");
        assert_ne!(used[0], used[1], "{request}");
    }
}

#[tokio::test]
async fn a_connection_is_used_until_a_reply_shows_that_it_is_of_no_use() {
    let replica = "-READONLY You can't write against a read only replica.";
    let (alone, caught) = (format!("{replica}\r\n"), texts(&[replica]));
    for (reply, stays) in [
        (":1\r\n", true),
        ("-ERR something new\r\n", true),
        ("-NOAUTH Authentication required.\r\n", false),
        (&*alone, false),
        (&*caught, false),
        (HANG_UP, false),
    ] {
        let server = server(1, &[":1\r\n"]).await;
        server.answers("EVALSHA", &[reply, ":1\r\n"]);
        let (opened, told) = serve_first(&server, &[ReplicaAck::Any]).await;
        let has_reply = [":1\r\n", &*caught].contains(&reply);
        assert_eq!(told[0].0.is_ok(), has_reply, "{reply}");
        let report = if reply == HANG_UP {
            "nothing"
        } else {
            "1 of 1"
        };
        assert_eq!(told[0].1, report, "{reply}");
        let (_, told) = serve(opened, &[ReplicaAck::Any]).await;
        assert_eq!(told, [granted("1 of 1")], "{reply}");
        let used = server.connections("EVALSHA");
        assert_eq!(used[0] == used[1], stays, "{reply}");
    }
}

/// It may be half-open, and TCP would need minutes to notice.
#[tokio::test]
async fn a_connection_on_which_no_reply_came_in_time_is_left() {
    let server = server(1, &[":1\r\n"]).await;
    server.answers("EVALSHA", &[SILENCE, ":1\r\n"]);
    let silence = async {
        server.hears("EVALSHA", 1).await;
        skip(LIMIT).await;
    };
    let policies = [ReplicaAck::Any];
    let ((opened, told), ()) = tokio::join!(serve_first(&server, &policies), silence);
    let unknown: Told = (Err(ErrorKind::OutcomeUnknown), "nothing".to_owned());
    assert_eq!(told, [unknown]);
    let (_, told) = serve(opened, &policies).await;
    assert_eq!(told, [granted("1 of 1")]);
}

#[test]
fn a_wait_is_never_one_without_an_end() {
    for (limit, told) in [
        (Some(Duration::from_millis(1500)), "1500"),
        (Some(Duration::from_micros(1)), "1"),
        (None, "1"),
    ] {
        let request = format!("{:?}", wait(2, limit));
        let expected = Request::new("WAIT").arg(2).arg(told);
        assert_eq!(request, format!("{expected:?}"));
    }
}
