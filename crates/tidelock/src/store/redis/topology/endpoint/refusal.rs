//! Error messages for a failed connect.

use crate::error::{Error, ErrorKind};
use crate::store::redis::address::HostAddress;
use crate::store::redis::wire::errors::unsent;
use crate::store::redis::wire::handshake::HandshakeError;
use crate::store::tls;

pub(crate) fn of(place: &HostAddress, db: i64, closed: HandshakeError) -> Error {
    match closed {
        HandshakeError::Stranger(why) => Error::new(ErrorKind::Refused).because(format!(
            "{place}: authentication failed: check user and password ({why})"
        )),
        HandshakeError::Ended(why) => {
            let hint = if place.is_tls() {
                "if the server wants a client certificate, set `tls_identity`"
            } else {
                "if the port speaks TLS, write rediss:// instead of redis://"
            };
            Error::new(tls::kind(&why)).because(format!(
                "{place}: the server ended the connection during the greeting; {hint} ({why})"
            ))
        }
        HandshakeError::ClusterNode => cluster_node(place),
        HandshakeError::Complaint(complaint) => at(place, &complaint.error()),
        HandshakeError::Other(why) => unsent(format_args!(
            "{place}: the server refused the greeting, perhaps the database {db}: {why}"
        )),
    }
}

/// A node of a cluster has only the locks of its own slots. It would refuse all others one by one, with a redirection
/// each.
fn cluster_node(place: &HostAddress) -> Error {
    let advice = match place {
        HostAddress::Unix(_) => "write redis+cluster:// with the addresses of its nodes".to_owned(),
        HostAddress::Tcp { .. } => {
            let whole = place.to_string();
            format!("write {}", whole.replacen("://", "+cluster://", 1))
        }
    };
    Error::new(ErrorKind::InvalidOptions).because(format!(
        "{place}: this server is a node of a cluster and has only the locks of its own slots; \
         {advice} (in code Servers::cluster), without a database number"
    ))
}

/// The error of a server during the handshake, with its address. No lock request has been sent yet, so the outcome is
/// never unknown.
pub(crate) fn at(place: &HostAddress, error: &Error) -> Error {
    let kind = if error.outcome_unknown() {
        ErrorKind::Unavailable
    } else {
        error.kind()
    };
    Error::new(kind).because(format!("{place}: {}", error.detail().unwrap_or_default()))
}
