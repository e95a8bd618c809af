//! Tests of what the doctor finds, beside a scripted server.

mod plain;
mod rights;

use std::time::{SystemTime, UNIX_EPOCH};

use super::*;
use crate::error::ErrorKind;
use crate::store::Store;
use crate::store::redis::wire::tests::ScriptedServer;

const REFUSED: &str = "-NOPERM no";

/// The answer to `INFO` of a server that weakens no lock.
const GOOD_INFO: &str = "'redis_version:7.2.4\r\nredis_mode:standalone\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nrole:master\r\nconnected_slaves:0\r\n";

/// A server at which the doctor finds nothing bad.
async fn healthy() -> ScriptedServer {
    let server = ScriptedServer::start().await;
    server.on("INFO", GOOD_INFO);
    server.on("INFO replication", "'role:master\r\nconnected_slaves:0\r\n");
    server.on("CONFIG GET appendfsync", "[ appendfsync always ]");
    tells_time(&server, 0);
    server
}

/// Sets the clock of the server, about so many seconds behind ours.
fn tells_time(server: &ScriptedServer, behind: u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    // The rest of this second belongs to the test.
    let told = now.as_secs() + 1 - behind;
    server.on("TIME", &format!("[ '{told} '0 ]"));
}

/// The finding about this subject.
async fn finding(store: &Store, subject: &str) -> Finding {
    let findings = store.front.diagnose().await.unwrap();
    let found = findings.iter().find(|one| one.subject == subject);
    found.cloned().unwrap_or_else(|| panic!("{findings:?}"))
}

fn judged(text: &str, judge: impl Fn(&Info<'_>) -> Finding) -> Severity {
    judge(&Info::parse(text)).severity
}

#[test]
fn a_setting_that_loses_locks_is_a_danger() {
    let single = |info: &Info<'_>| mode(info, false);
    let node = |info: &Info<'_>| mode(info, true);
    for (text, severity) in [
        ("redis_mode:cluster\r\n", Danger),
        ("redis_mode:sentinel\r\n", Danger),
        ("redis_mode:standalone\r\n", Good),
        ("", Good),
    ] {
        assert_eq!(judged(text, single), severity, "{text}");
    }
    assert_eq!(judged("redis_mode:cluster\r\n", node), Good);
    for (text, severity) in [
        ("maxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\n", Danger),
        ("maxmemory:100\r\nmaxmemory_policy:noeviction\r\n", Good),
        ("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n", Advice),
        ("", Good),
    ] {
        assert_eq!(judged(text, eviction), severity, "{text}");
    }
    for (text, severity) in [
        ("role:slave\r\n", Danger),
        ("role:master\r\nconnected_slaves:1\r\n", Advice),
        ("role:master\r\nconnected_slaves:0\r\n", Good),
        ("", Good),
    ] {
        assert_eq!(judged(text, role), severity, "{text}");
    }
}

#[test]
fn a_version_that_is_not_tested_is_a_danger() {
    for (text, severity, found) in [
        ("redis_version:6.0.16\r\n", Danger, "Redis 6.0.16"),
        ("redis_version:6.2.0\r\n", Good, "Redis 6.2.0"),
        ("redis_version:10.0.1\r\n", Good, "Redis 10.0.1"),
        ("redis_version:x\r\n", Danger, "Redis x"),
        (
            "redis_version:7.2.4\r\nvalkey_version:8.0.1\r\n",
            Good,
            "Valkey 8.0.1",
        ),
    ] {
        let seen = version(&Info::parse(text));
        assert_eq!((seen.severity, &*seen.found), (severity, found));
    }
}

#[tokio::test]
async fn a_healthy_server_has_only_good_findings() {
    let server = healthy().await;
    let store = server.store().await;
    let findings = store.front.diagnose().await.unwrap();
    let bad: Vec<&Finding> = findings.iter().filter(|one| one.severity != Good).collect();
    assert!(bad.is_empty(), "{bad:?}");
    let distance = finding(&store, "distance").await.found;
    let millis: f64 = distance.strip_suffix(" ms").unwrap().parse().unwrap();
    assert!(millis > 0.0 && millis < 50.0, "{distance}");
}

#[tokio::test]
async fn what_a_crash_of_the_server_forgets_is_said() {
    for (is_logged, setting, value, severity, found) in [
        (
            true,
            "appendfsync",
            "always",
            Good,
            "append-only file, always",
        ),
        (
            true,
            "appendfsync",
            "everysec",
            Advice,
            "append-only file, everysec",
        ),
        (
            true,
            "appendfsync",
            "",
            Advice,
            "append-only file, appendfsync unknown",
        ),
        (false, "save", "'", Advice, "nothing is written to disk"),
        (
            false,
            "save",
            "'3600",
            Advice,
            "snapshots now and then (3600)",
        ),
        (
            false,
            "save",
            "",
            Advice,
            "no append-only file; CONFIG is not allowed",
        ),
    ] {
        let server = healthy().await;
        let info = format!("'aof_enabled:{}\r\n", u8::from(is_logged));
        server.on("INFO", &info);
        let told = format!("[ {setting} {value} ]");
        let reply = if value.is_empty() {
            REFUSED
        } else {
            told.as_str()
        };
        server.on(&format!("CONFIG GET {setting}"), reply);
        let seen = finding(&server.store().await, "persistence").await;
        assert_eq!((seen.severity, &*seen.found), (severity, found));
    }
}

#[tokio::test]
async fn what_the_user_may_not_look_at_is_advice_and_no_error() {
    for (request, subject, found) in [
        ("INFO", "server", "cannot see: INFO is not allowed"),
        ("TIME", "clock", "cannot see: TIME is not allowed"),
        ("PING", "distance", "cannot see: PING is not allowed"),
    ] {
        let server = healthy().await;
        server.on(request, REFUSED);
        let seen = finding(&server.store().await, subject).await;
        assert_eq!((seen.severity, &*seen.found), (Advice, found));
    }
    // Any other error is one.
    let server = healthy().await;
    server.on("TIME", "-LOADING no");
    let error = server.store().await.front.diagnose().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

/// A step of the clock ends or prolongs every lease.
#[tokio::test]
async fn a_clock_that_is_far_off_is_advice() {
    let server = healthy().await;
    tells_time(&server, 100);
    let seen = finding(&server.store().await, "clock").await;
    assert_eq!(seen.severity, Advice);
    let seconds = seen.found.strip_suffix(" s from ours").unwrap();
    let seconds: u64 = seconds.parse().unwrap();
    assert!((99..110).contains(&seconds), "{}", seen.found);
}

#[tokio::test]
async fn a_cluster_is_looked_at_node_by_node() {
    let server = healthy().await;
    server.on("INFO", &GOOD_INFO.replace("standalone", "cluster"));
    let store = server.cluster().await;
    let findings = store.front.diagnose().await.unwrap();
    let bad: Vec<&Finding> = findings.iter().filter(|one| one.severity != Good).collect();
    assert!(bad.is_empty(), "{bad:?}");
    let found: Vec<&str> = findings.iter().map(|one| one.found.as_str()).collect();
    for expected in ["1 nodes have slots", "a node of a cluster"] {
        assert!(found.contains(&expected), "{found:?}");
    }
    server.on("CLUSTER INFO", REFUSED);
    let seen = finding(&store, "rights: cluster").await;
    assert_eq!((seen.severity, &*seen.found), (Advice, "refused"));
}

/// It may take over.
#[tokio::test]
async fn a_replica_without_a_right_is_named_and_one_that_is_away_hides_nothing() {
    let (server, replica) = (healthy().await, ScriptedServer::start().await);
    server.on("INFO", &GOOD_INFO.replace("standalone", "cluster"));
    let (port, other) = (server.port, replica.port);
    let nodes = format!("[ [ 0 16383 [ 127.0.0.1 {port} 'a ] [ 127.0.0.1 {other} 'b ] ] ]");
    server.on("CLUSTER SLOTS", &nodes);
    let store = server.cluster().await;
    assert_eq!(finding(&store, "rights: nodes").await.severity, Good);
    let there = format!("rights: nodes of {}", replica.address());
    replica.on("CLUSTER SLOTS", REFUSED);
    let seen = finding(&store, &there).await;
    assert_eq!((seen.severity, &*seen.found), (Danger, "refused"));
    drop(replica);
    let seen = finding(&store, &there).await;
    assert_eq!(seen.severity, Advice);
    assert!(seen.found.starts_with("not checked: "), "{}", seen.found);
    for subject in ["rights: nodes", "mode", "rights: scripts"] {
        assert_eq!(finding(&store, subject).await.severity, Good, "{subject}");
    }
}

/// The names that the doctor tries may belong to slots without a node, and the user needs the other findings most then.
#[tokio::test]
async fn an_error_of_a_check_of_rights_is_a_finding_only_while_slots_have_no_node() {
    let server = healthy().await;
    server.on("INFO", &GOOD_INFO.replace("standalone", "cluster"));
    server.on("WAIT", "-ERR strange");
    let port = server.port;
    for (last, is_whole) in [(16383, true), (16382, false)] {
        let nodes = format!("[ [ 0 {last} [ 127.0.0.1 {port} 'id ] ] ]");
        server.on("CLUSTER SLOTS", &nodes);
        let store = server.cluster().await;
        match (store.front.diagnose().await, is_whole) {
            (Err(error), true) => assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}"),
            (Ok(findings), false) => {
                let rights = findings.iter().find(|one| one.subject == "rights").unwrap();
                assert_eq!(rights.severity, Advice);
                let found = &rights.found;
                assert!(found.starts_with("not checked: "), "{found}");
            }
            (told, _) => panic!("{last}: {told:?}"),
        }
    }
}

/// The names that the doctor tries may belong to a node that does not answer, too.
#[tokio::test]
async fn an_error_of_a_check_of_rights_is_a_finding_while_a_node_is_away() {
    let (server, away) = (healthy().await, ScriptedServer::start().await);
    server.on("INFO", &GOOD_INFO.replace("standalone", "cluster"));
    let here = format!("[ 0 0 [ 127.0.0.1 {} 'a ] ]", server.port);
    // The slots of the names that the doctor tries.
    let there = format!("[ 1 16383 [ 127.0.0.1 {} 'b ] ]", away.port);
    for node in [&server, &away] {
        node.on("CLUSTER SLOTS", &format!("[ {here} {there} ]"));
    }
    let store = server.cluster().await;
    let node = format!("node of {}", away.address());
    drop(away);
    let findings = store.front.diagnose().await.unwrap();
    for (subject, severity) in [("mode", Good), (&*node, Danger), ("rights", Advice)] {
        let seen = findings.iter().find(|one| one.subject == subject).unwrap();
        assert_eq!(seen.severity, severity, "{subject}");
        let is_untold = seen.found.starts_with("not checked: ");
        assert_eq!(is_untold, severity != Good, "{subject}");
    }
}
