//! Whether a connection leads to a node of our cluster.

use crate::error::{Error, ErrorKind, Result};
use crate::store::redis::address::HostAddress;
use crate::store::redis::topology::endpoint::refusal;
use crate::store::redis::topology::known_nodes::{self, KnownNodes};
use crate::store::redis::topology::live_connection::LiveConnection;
use crate::store::redis::wire::errors::{ServerError, unsent};
use crate::store::redis::wire::handshake::ServerMode;
use crate::store::redis::wire::reply::{Reply, RequestError};
use crate::store::redis::wire::request::Request;

/// Checks that the server is still a node of our cluster. Another server may have taken over the address. A standalone
/// server accepts every key, and a node of another cluster accepts those of its slots: it would grant a lock that our
/// cluster grants to another client. A proxy in front of a cluster may also report standalone mode; CLUSTER SLOTS tells
/// the two apart.
pub(super) async fn of(
    address: &HostAddress,
    conn: &LiveConnection,
    known: &KnownNodes,
) -> Result<()> {
    if !is_in_doubt(conn.mode, known) {
        return Ok(());
    }
    let answer = conn.ask(&Request::new("CLUSTER").arg("SLOTS")).await;
    judge(address, answer, known)
}

/// Whether the server must prove that it is a node. Otherwise it does not call itself a single server, and no ids are known with
/// which it could be compared.
fn is_in_doubt(mode: ServerMode, known: &KnownNodes) -> bool {
    mode == ServerMode::Standalone || !known.is_empty()
}

/// Judges the reply to CLUSTER SLOTS. An error is no proof: the server may load its data, say, and after that it would not be
/// checked again.
fn judge(
    address: &HostAddress,
    answer: Result<Reply, RequestError>,
    known: &KnownNodes,
) -> Result<()> {
    match answer {
        Ok(slots) if known.are_known_to(&known_nodes::ids(&slots)) => Ok(()),
        Ok(_) => Err(unsent(format_args!(
            "{address}: {}",
            known_nodes::ANOTHER_CLUSTER
        ))),
        Err(RequestError::Server(server_error)) => Err(unproved(address, &server_error)),
        Err(RequestError::Broken(why)) => Err(unsent(format_args!("{address}: {why}"))),
    }
}

/// A refusal is an error too: the user has lost the right, or the server is another one that has other users, or no such command.
/// Another server may stay for a moment only, and a replica that takes over may have the right, so the request is tried again.
fn unproved(address: &HostAddress, server_error: &ServerError) -> Error {
    let error = server_error.error();
    if error.kind() != ErrorKind::Refused {
        return unsent(format_args!("{address}: {server_error}"));
    }
    if server_error.ends_session() {
        return refusal::at(address, &error);
    }
    let advice = if server_error.names_right() {
        known_nodes::NEEDED_RIGHT
    } else {
        "it has no CLUSTER command"
    };
    unsent(format_args!(
        "{address}: the client cannot see whether this is a node of its cluster, and does not use it: {advice}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::wire::tests::tcp;
    use crate::store::redis::wire::tests::values::slots_of;

    fn known(ids: &[&str]) -> KnownNodes {
        let known = KnownNodes::default();
        known.replace(ids.iter().map(|&id| id.to_owned()).collect());
        known
    }

    #[test]
    fn only_a_node_is_believed_unasked_and_only_if_none_is_known() {
        for (mode, is_proved) in [
            (ServerMode::ClusterNode, true),
            (ServerMode::Unknown, true),
            (ServerMode::Standalone, false),
        ] {
            assert_eq!(!is_in_doubt(mode, &known(&[])), is_proved, "{mode:?}");
            assert!(is_in_doubt(mode, &known(&["a"])), "{mode:?}");
        }
    }

    #[test]
    fn a_server_that_does_not_prove_that_it_is_a_node_grants_nothing() {
        let address = tcp("h", 1, false);
        let says = |text: &str| Err(RequestError::Server(ServerError::parse(text)));
        let (unavailable, refused) = (Some(ErrorKind::Unavailable), Some(ErrorKind::Refused));
        for (answer, kind, told) in [
            (Ok(slots_of(&[&["a", "x"]])), None, ""),
            (
                Ok(slots_of(&[&["x"]])),
                unavailable,
                known_nodes::ANOTHER_CLUSTER,
            ),
            (
                says("NOPERM no permissions to run the 'cluster|slots' command"),
                unavailable,
                "does not use it: allow +cluster|slots",
            ),
            (
                says("ERR unknown command 'CLUSTER'"),
                unavailable,
                "does not use it: it has no CLUSTER command",
            ),
            // It has lost its users, or has never had ours.
            (
                says("NOAUTH Authentication required."),
                refused,
                "h:1: authentication: check user and password",
            ),
            (
                says("ERR This instance has cluster support disabled"),
                unavailable,
                "h:1: ERR This instance has cluster support disabled",
            ),
            (
                says("LOADING Redis is loading the dataset in memory"),
                unavailable,
                "h:1: LOADING",
            ),
            (
                Err(RequestError::Broken("closed".to_owned())),
                unavailable,
                "h:1: closed",
            ),
        ] {
            for known in [known(&["a"]), known(&[])] {
                // If no id is known, any node may be ours.
                let expected = kind.filter(|_| !known.is_empty() || answer.is_err());
                let judged = judge(&address, answer.clone(), &known).err();
                assert_eq!(judged.as_ref().map(Error::kind), expected, "{answer:?}");
                let detail = judged.as_ref().and_then(Error::detail).unwrap_or_default();
                assert!(judged.is_none() || detail.contains(told), "{detail}");
            }
        }
    }
}
