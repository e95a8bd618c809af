//! Error messages for a failed connect.

use super::super::errors::unsent;
use super::super::greeting::Closed;
use super::super::place::Place;
use crate::backend::tls;
use crate::error::{Error, ErrorKind};

pub(super) fn of(place: &Place, db: i64, closed: Closed) -> Error {
    match closed {
        Closed::Stranger(why) => Error::new(ErrorKind::Refused).because(format!(
            "{place}: authentication failed: check user and password ({why})"
        )),
        Closed::Ended(why) => {
            let hint = if place.is_tls() {
                "if the server wants a client certificate, set `tls_identity`"
            } else {
                "if the port speaks TLS, write rediss:// instead of redis://"
            };
            Error::new(tls::kind(&why)).because(format!(
                "{place}: the server ended the connection during the greeting; {hint} ({why})"
            ))
        }
        Closed::ClusterNode => cluster_node(place),
        Closed::Complaint(complaint) => at(place, &complaint.error()),
        Closed::Other(why) => unsent(format_args!(
            "{place}: the server refused the greeting, perhaps the database {db}: {why}"
        )),
    }
}

/// A node of a cluster has only the locks of its own slots. It would refuse all others one by one, with a redirection
/// each.
fn cluster_node(place: &Place) -> Error {
    let advice = match place {
        Place::Unix(_) => "write redis+cluster:// with the addresses of its nodes".to_owned(),
        Place::Tcp { .. } => {
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
pub(super) fn at(place: &Place, error: &Error) -> Error {
    let kind = if error.outcome_unknown() {
        ErrorKind::Unavailable
    } else {
        error.kind()
    };
    Error::new(kind).because(format!("{place}: {}", error.detail().unwrap_or_default()))
}
