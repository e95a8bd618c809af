//! Whether a connection leads to a node of our cluster.

use crate::error::{ErrorKind, Result};
use crate::store::redis::address::HostAddress;
use crate::store::redis::topology::known_nodes::{self, KnownNodes};
use crate::store::redis::topology::live_connection::LiveConnection;
use crate::store::redis::wire::errors::unsent;
use crate::store::redis::wire::handshake::ServerMode;
use crate::store::redis::wire::reply::RequestError;
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
    if conn.mode != ServerMode::Standalone && known.is_empty() {
        return Ok(());
    }
    match conn.ask(&Request::new("CLUSTER").arg("SLOTS")).await {
        Ok(slots) if !known.are_known_to(&known_nodes::ids(&slots)) => Err(unsent(format_args!(
            "{address}: {}",
            known_nodes::ANOTHER_CLUSTER
        ))),
        Err(RequestError::Server(server_error)) if server_error.denies_cluster() => {
            Err(unsent(format_args!("{address}: {server_error}")))
        }
        // It loads its data, say, and after that it would not be checked again.
        Err(RequestError::Server(server_error))
            if !known.is_empty() && server_error.error().kind() != ErrorKind::Refused =>
        {
            Err(unsent(format_args!("{address}: {server_error}")))
        }
        Err(RequestError::Broken(why)) => Err(unsent(format_args!("{address}: {why}"))),
        Ok(_) | Err(RequestError::Server(_)) => Ok(()),
    }
}
