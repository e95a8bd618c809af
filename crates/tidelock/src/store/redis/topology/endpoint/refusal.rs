//! Error messages for a failed connect.

use crate::error::{Error, ErrorKind};
use crate::store::redis::address::HostAddress;
use crate::store::redis::wire::errors::unsent;
use crate::store::redis::wire::handshake::HandshakeError;
use crate::store::tls;

pub(crate) fn of(address: &HostAddress, db: i64, closed: HandshakeError) -> Error {
    match closed {
        HandshakeError::Stranger(why) => Error::new(ErrorKind::Refused).because(format!(
            "{address}: authentication failed: check user and password ({why})"
        )),
        HandshakeError::Ended(why) => {
            let hint = if address.is_tls() {
                "if the server requires a client certificate, set `tls_identity`"
            } else {
                "if the port speaks TLS, write rediss:// instead of redis://"
            };
            Error::new(tls::kind(&why)).because(format!(
                "{address}: the server ended the connection during the handshake; {hint} ({why})"
            ))
        }
        HandshakeError::ClusterNode => cluster_node(address),
        HandshakeError::NoDatabase(count) => no_database(address, db, count),
        HandshakeError::Server(server_error) => at(address, &server_error.error()),
        HandshakeError::Other(why) => unsent(format_args!(
            "{address}: the server refused the handshake, possibly because of database {db}: {why}"
        )),
    }
}

/// A node of a cluster has only the locks of its own slots. It would refuse all others one by one, with a redirection
/// each.
fn cluster_node(address: &HostAddress) -> Error {
    let advice = match address {
        HostAddress::Unix(_) => "write redis+cluster:// with the addresses of its nodes".to_owned(),
        HostAddress::Tcp { .. } => {
            let whole = address.to_string();
            format!("write {}", whole.replacen("://", "+cluster://", 1))
        }
    };
    Error::new(ErrorKind::InvalidOptions).because(format!(
        "{address}: this server is a node of a cluster and has only the locks of its own slots; \
         {advice} (in code redis::Topology::cluster), without a database number"
    ))
}

fn no_database(address: &HostAddress, db: i64, count: Option<i64>) -> Error {
    let range = match count {
        Some(count) => format!("it has 0 to {}", count.saturating_sub(1)),
        None => "most servers have 0 to 15".to_owned(),
    };
    let option = match address {
        HostAddress::Unix(_) => "with the option db of the URL".to_owned(),
        HostAddress::Tcp { .. } => format!("as in {address}/0"),
    };
    Error::new(ErrorKind::InvalidOptions).because(format!(
        "{address}: the server has no database {db}, {range} (`databases` in its configuration); name another one, {option}"
    ))
}

/// The error of a server during the handshake, with its address. No lock request has been sent yet, so the outcome is
/// never unknown.
pub(crate) fn at(address: &HostAddress, error: &Error) -> Error {
    let kind = if error.outcome_unknown() {
        ErrorKind::Unavailable
    } else {
        error.kind()
    };
    Error::new(kind).because(format!("{address}: {}", error.detail().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::wire::errors::ServerError;
    use crate::store::redis::wire::tests::tcp;

    fn server(tls: bool) -> HostAddress {
        tcp("h", 1, tls)
    }

    fn is_told(address: &HostAddress, error: HandshakeError, kind: ErrorKind, told: &str) {
        let refusal = of(address, 7, error);
        assert_eq!(refusal.kind(), kind, "{refusal}");
        let detail = refusal.detail().unwrap();
        assert!(detail.contains(told), "{detail}");
    }

    #[test]
    fn a_failed_handshake_says_what_to_change() {
        let ended = |why: &str| HandshakeError::Ended(why.to_owned());
        let alert = "received fatal alert: CertificateRequired";
        for (tls, error, kind, told) in [
            (
                false,
                HandshakeError::Stranger("no".to_owned()),
                ErrorKind::Refused,
                "redis://h:1: authentication failed: check user and password (no)",
            ),
            (
                false,
                ended("closed"),
                ErrorKind::Unavailable,
                "if the port speaks TLS, write rediss://",
            ),
            (
                true,
                ended("closed"),
                ErrorKind::Unavailable,
                "set `tls_identity`",
            ),
            (true, ended(alert), ErrorKind::Refused, "set `tls_identity`"),
            (
                false,
                HandshakeError::Other("no".to_owned()),
                ErrorKind::Unavailable,
                "because of database 7: no",
            ),
        ] {
            is_told(&server(tls), error, kind, told);
        }
    }

    #[test]
    fn a_server_of_another_kind_is_told_with_the_address_to_write() {
        let socket = HostAddress::Unix("/run/r".into());
        for (address, error, told) in [
            (
                &server(true),
                HandshakeError::ClusterNode,
                "write rediss+cluster://h:1 ",
            ),
            (
                &socket,
                HandshakeError::ClusterNode,
                "write redis+cluster:// with the addresses",
            ),
            (
                &server(false),
                HandshakeError::NoDatabase(Some(4)),
                "no database 7, it has 0 to 3 (`databases` in its configuration); name another one, as in redis://h:1/0",
            ),
            (
                &socket,
                HandshakeError::NoDatabase(None),
                "most servers have 0 to 15 (`databases` in its configuration); name another one, with the option db",
            ),
        ] {
            is_told(address, error, ErrorKind::InvalidOptions, told);
        }
    }

    /// No lock was asked for, so nothing is in doubt.
    #[test]
    fn an_error_of_the_handshake_leaves_no_doubt() {
        let said = |text: &str| HandshakeError::Server(ServerError::parse(text));
        for (text, kind, told) in [
            (
                "ERR something new",
                ErrorKind::Unavailable,
                "redis://h:1: unknown error (server: ERR something new)",
            ),
            (
                "DENIED protected mode",
                ErrorKind::Refused,
                "redis://h:1: the server is in protected mode",
            ),
        ] {
            is_told(&server(false), said(text), kind, told);
        }
    }
}
