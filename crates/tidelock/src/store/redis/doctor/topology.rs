//! Doctor checks for all servers: the single one, or each cluster node that has locks.

use futures_util::future::join_all;

use crate::error::{Error, Result};
use crate::snapshot::{Finding, Severity};
use crate::store::Timers;
use crate::store::doctor::DoctorCheck;
use crate::store::redis::doctor;
use crate::store::redis::doctor::{allowed, far};
use crate::store::redis::pubsub::subscriber::PublishModes;
use crate::store::redis::topology::cluster::Cluster;
use crate::store::redis::topology::connection::Connection;
use crate::store::redis::topology::known_nodes;
use crate::store::redis::topology::router::{ConnectionFace, Router};
use crate::store::redis::wire::request::Request;

const VIEWS: DoctorCheck = DoctorCheck {
    subject: "rights: cluster",
    good: "one that is cut off is told from the others",
    severity: Severity::Advice,
    bad: "a node that is cut off is believed when it is asked: for a moment its locks may be looked for at the wrong place, and connections be given up in vain",
    advice: "allow +cluster|info",
};

const NODES: DoctorCheck = DoctorCheck {
    subject: "rights: nodes",
    good: "a node is told from a server of others that has got its address",
    severity: Severity::Danger,
    bad: "the client cannot see whether this is a node of its cluster, so it opens no connection to it any more: once those that are open have ended, its locks cannot be had, nor those of its primary once it has taken over",
    advice: known_nodes::NEEDED_RIGHT,
};

/// The right at a replica that could not be asked.
const REPLICA: DoctorCheck = DoctorCheck {
    severity: Severity::Advice,
    bad: "not known for a replica that does not answer; as long as it does not, it cannot take over either",
    advice: NODE.advice,
    ..NODES
};

const SLOTS: DoctorCheck = DoctorCheck {
    subject: "slots",
    good: "each lock has a node; the locks of a node that fails cannot be had until a replica has taken over",
    severity: Severity::Danger,
    bad: "locks whose names fall in them cannot be had",
    advice: "see what `CLUSTER NODES` says, and give the slots to a node",
};

const NODE: DoctorCheck = DoctorCheck {
    subject: "node",
    good: "it answers",
    severity: Severity::Danger,
    bad: "if it stays so, its locks cannot be had until it answers or a replica has taken over",
    advice: "see what `CLUSTER NODES` says, and look at the server",
};

const RIGHTS: DoctorCheck = DoctorCheck {
    subject: "rights",
    good: "all are there",
    severity: Severity::Advice,
    bad: "not known as long as a part of the cluster is away",
    advice: "run the doctor again when all slots have a node that answers",
};

/// Runs the checks on every server that has locks, and the checks of the user's rights.
pub(crate) async fn examine(
    router: &Router,
    rights: impl Future<Output = Result<Vec<Finding>>> + Send,
    ways: PublishModes,
    timers: &Timers,
) -> Result<Vec<Finding>> {
    let (cluster, face) = match router {
        Router::One(connection) => {
            let mut findings = doctor::examine(connection, false).await?;
            findings.extend(rights.await?);
            findings.extend(far::findings(connection, timers).await?);
            return Ok(findings);
        }
        Router::Cluster(cluster, face) => (cluster, *face),
    };
    let nodes = cluster.primaries();
    let each = nodes.iter().map(|node| async move {
        let connection = face.connection(node);
        let mut found = Vec::new();
        let end = node_findings(&connection, timers, &mut found).await;
        (node.address.to_string(), found, end.err())
    });
    let (each, rights_there) = tokio::join!(join_all(each), proofs(cluster, face));
    let (each, is_whole) = seen(each)?;
    let bare = cluster.bare_slots();
    let mut findings = vec![slots(nodes.len(), bare), messages(ways)];
    findings.extend(merged(rights_there));
    findings.extend(merged(each));
    for checked in [rights.await, views(router).await.map(|view| vec![view])] {
        match checked {
            Ok(checked) => findings.extend(checked),
            // The names that are tried may belong to a node that is away, or to no node. The user needs the rest most then.
            Err(error) if bare > 0 || !is_whole => findings.push(RIGHTS.bad(untold(&error))),
            Err(error) => return Err(error),
        }
    }
    Ok(findings)
}

/// Adds what is found at a node. An error ends it; what was found before stays.
async fn node_findings(
    connection: &Connection,
    timers: &Timers,
    found: &mut Vec<Finding>,
) -> Result<()> {
    found.extend(doctor::examine(connection, true).await?);
    found.extend(far::findings(connection, timers).await?);
    Ok(())
}

/// The address of a node, and what is found there.
type NodeFindings = (String, Vec<Finding>);

/// The findings of each node, and whether each check could be made at each node. An error if no node could be asked.
fn seen(each: Vec<(String, Vec<Finding>, Option<Error>)>) -> Result<(Vec<NodeFindings>, bool)> {
    let is_seen = each.iter().any(|(_, found, _)| !found.is_empty());
    let (mut findings, mut last) = (Vec::new(), None);
    for (address, mut found, error) in each {
        if let Some(error) = error {
            found.push(NODE.bad(untold(&error)));
            last = Some(error);
        }
        findings.push((address, found));
    }
    match last {
        Some(error) if !is_seen => Err(error),
        last => Ok((findings, last.is_none())),
    }
}

/// A check that an error has ended.
fn untold(error: &Error) -> String {
    format!("not checked: {error}")
}

/// The finding of [`proof`] at each node, and at each replica, which may take over. The other checks tell of a primary
/// that does not answer.
async fn proofs(cluster: &Cluster, face: ConnectionFace) -> Vec<NodeFindings> {
    let primaries = cluster.primaries().into_iter();
    let primaries = primaries.map(|node| (node.address.clone(), false));
    let replicas = cluster.replicas().into_iter();
    let replicas = replicas.map(|address| (address, true));
    let each = primaries
        .chain(replicas)
        .map(|(address, is_replica)| async move {
            // Without the right a connection to a node of the map would not open, and nothing could be asked.
            let node = cluster.unproved_node(&address);
            let found = match proof(&face.connection(&node)).await {
                Ok(found) => vec![found],
                Err(error) if is_replica => vec![REPLICA.bad(untold(&error))],
                Err(_) => Vec::new(),
            };
            (address.to_string(), found)
        });
    join_all(each).await
}

/// Whether the user may ask this node which nodes it knows. Each new connection to a node begins with that.
async fn proof(connection: &Connection) -> Result<Finding> {
    let slots = Request::new("CLUSTER").arg("SLOTS");
    let asked = connection.ask(&slots, connection.deadline()).await;
    let is_allowed = allowed(asked)?.is_some();
    Ok(NODES.allowed(is_allowed, "each one says which nodes it knows"))
}

/// Whether the user may query the nodes for the age of their slot map.
async fn views(router: &Router) -> Result<Finding> {
    let info = Request::new("CLUSTER").arg("INFO");
    let asked = router.ask("", &info, router.deadline()).await;
    let is_allowed = allowed(asked)?.is_some();
    Ok(VIEWS.allowed(is_allowed, "nodes say how many changes they have seen"))
}

/// `bare`: how many slots have no node.
fn slots(nodes: usize, bare: usize) -> Finding {
    let found = format!("{nodes} nodes have slots");
    match bare {
        0 => SLOTS.good(found),
        bare => SLOTS.bad(format!("{found}, {bare} slots have none")),
    }
}

fn messages(ways: PublishModes) -> Finding {
    let (found, meaning) = match ways {
        PublishModes::Plain => (
            "plain",
            "a Redisson that uses sharded messages (7.0 servers, shardedSubscriptionMode AUTO or ON) and this client do not wake each other",
        ),
        PublishModes::Sharded => (
            "sharded",
            "a Redisson before 3.29, or with shardedSubscriptionMode OFF, and this client do not wake each other",
        ),
        PublishModes::Auto => (
            "sharded, and plain where somebody listens who hears only that",
            "every client is woken",
        ),
        PublishModes::Both => (
            "plain and sharded",
            "every client is woken, for two messages a release",
        ),
    };
    Finding::new(Severity::Good, "messages", found, meaning)
}

/// Merges equal findings of several nodes. A finding that only some nodes have names them.
fn merged(each: Vec<NodeFindings>) -> Vec<Finding> {
    let all = each.len();
    let mut groups: Vec<(Finding, Vec<String>)> = Vec::new();
    for (address, findings) in each {
        for finding in findings {
            let same = |other: &Finding| {
                (
                    &other.subject,
                    &other.severity,
                    &other.meaning,
                    &other.advice,
                ) == (
                    &finding.subject,
                    &finding.severity,
                    &finding.meaning,
                    &finding.advice,
                )
            };
            match groups.iter_mut().find(|(other, _)| same(other)) {
                Some((other, addresses)) => {
                    if !other.found.split(" | ").any(|found| found == finding.found) {
                        other.found = format!("{} | {}", other.found, finding.found);
                    }
                    addresses.push(address.clone());
                }
                None => groups.push((finding, vec![address.clone()])),
            }
        }
    }
    let named = groups.into_iter().map(|(mut finding, addresses)| {
        let is_one_address = addresses.len() < all && finding.severity != Severity::Good;
        if is_one_address {
            finding.subject = format!("{} of {}", finding.subject, addresses.join(", "));
        }
        finding
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::store::redis::topology::endpoint::EndpointLogin;
    use crate::store::redis::topology::tests::connection_to;
    use crate::store::redis::wire::live_connection::peer::in_time;
    use crate::store::redis::wire::tests::replies::all_slots;
    use crate::store::redis::wire::tests::{LIMIT, ScriptedServer, nowhere, simulated};

    #[test]
    fn equal_findings_are_reported_once_and_others_with_their_server() {
        let fine = |found: &str| Finding::new(Severity::Good, "clock", found, "fine");
        let bad = Finding::new(Severity::Danger, "eviction", "lru", "bad");
        let each = vec![
            ("a".to_owned(), vec![fine("0 s"), bad]),
            ("b".to_owned(), vec![fine("1 s")]),
            ("c".to_owned(), vec![fine("0 s")]),
        ];
        let found = merged(each);
        let seen: Vec<(&str, &str)> = found
            .iter()
            .map(|one| (one.subject.as_str(), one.found.as_str()))
            .collect();
        assert_eq!(seen, [("clock", "0 s | 1 s"), ("eviction of a", "lru")]);
    }

    #[test]
    fn a_node_that_does_not_answer_hides_no_finding_of_the_others() {
        let fine = || vec![Finding::new(Severity::Good, "clock", "0 s", "fine")];
        let away = || Some(Error::new(ErrorKind::Unavailable));
        let (a, b) = (|| "a".to_owned(), || "b".to_owned());
        for found in [Vec::new(), fine()] {
            let (each, is_whole) = seen(vec![(a(), fine(), None), (b(), found, away())]).unwrap();
            assert!(!is_whole);
            let found = merged(each);
            let told: Vec<&str> = found.iter().map(|one| &*one.subject).collect();
            assert_eq!(told, ["clock", "node of b"]);
        }
        let (_, is_whole) = seen(vec![(a(), fine(), None)]).unwrap();
        assert!(is_whole);
        let nobody = seen(vec![(a(), Vec::new(), away())]);
        assert_eq!(nobody.unwrap_err().kind(), ErrorKind::Unavailable);
    }

    /// Only a problem of some servers is worth their names.
    #[test]
    fn findings_of_all_servers_and_good_ones_name_no_server() {
        let good = Finding::new(Severity::Good, "replicas", "none", "fine");
        let bad = Finding::new(Severity::Danger, "eviction", "lru", "bad");
        let found = merged(vec![
            ("a".to_owned(), vec![bad.clone(), good]),
            ("b".to_owned(), vec![bad]),
        ]);
        let seen: Vec<&str> = found.iter().map(|one| one.subject.as_str()).collect();
        assert_eq!(seen, ["eviction", "replicas"]);
    }

    #[test]
    fn slots_without_a_node_are_a_danger() {
        let (all, some) = (slots(3, 0), slots(3, 17));
        assert_eq!(
            (all.severity, &*all.found),
            (Severity::Good, "3 nodes have slots")
        );
        assert_eq!(some.severity, Severity::Danger);
        assert_eq!(some.found, "3 nodes have slots, 17 slots have none");
    }

    /// The checks of the node itself tell of it, and once is enough.
    #[tokio::test]
    async fn a_primary_that_is_away_is_not_told_as_a_replica_that_is() {
        let (away, (background, timers)) = (nowhere().await, simulated());
        let (seeds, entry) = (vec![away.clone()], EndpointLogin::default());
        let cluster = Cluster::new(seeds, entry, background, timers, LIMIT, LIMIT);
        cluster.give_all_slots(&away);
        let found = in_time(proofs(&cluster, ConnectionFace::Front)).await;
        let nothing: NodeFindings = (away.to_string(), Vec::new());
        assert_eq!(found, [nothing]);
    }

    #[tokio::test]
    async fn a_node_that_may_not_be_asked_for_its_nodes_is_told_with_the_missing_right() {
        let server = ScriptedServer::start().await;
        let connection = connection_to(server.address());
        let all = all_slots(server.port, "id");
        let forbidden = "-NOPERM no permissions to run the 'cluster|slots' command\r\n";
        for (reply, severity, advice) in [
            (&*all, Severity::Good, None),
            (forbidden, Severity::Danger, Some("allow +cluster|slots")),
        ] {
            server.answers("CLUSTER SLOTS", &[reply]);
            let found = proof(&connection).await.unwrap();
            assert_eq!(found.severity, severity, "{reply}");
            assert_eq!(found.advice.as_deref(), advice);
        }
    }
}
