//! The replies of sentinels: lists of alternating names and values, and errors.

use std::collections::HashMap;

use crate::error::{Error, ErrorKind};
use crate::store::redis::address::HostAddress;
use crate::store::redis::wire::reply::Reply;

/// The answer of one sentinel. The larger one wins.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SentinelReply {
    /// The number of failovers; a sentinel that is cut off has missed the last one.
    pub(super) epoch: i64,
    /// The two queries name different servers: a failover is about to finish.
    pub(super) promoted: bool,
    pub(super) host: String,
    pub(super) port: u16,
}

/// The epoch, and the address of the primary in the reply to SENTINEL MASTER. During a failover it is still the old
/// one.
pub(crate) fn details(master: &Reply) -> (i64, Option<(String, u16)>) {
    let fields = fields(master);
    let epoch = fields
        .get("config-epoch")
        .and_then(|epoch| epoch.parse().ok());
    let host = fields.get("ip").map(|&host| host.to_owned());
    let port = fields.get("port").and_then(|port| port.parse().ok());
    (epoch.unwrap_or_default(), host.zip(port))
}

/// A list of alternating names and values, as a map.
pub(super) fn fields(reply: &Reply) -> HashMap<&str, &str> {
    let args = reply.list().unwrap_or_default();
    let pairs = args.chunks_exact(2);
    pairs
        .filter_map(|pair| Some((pair[0].text()?, pair[1].text()?)))
        .collect()
}

/// The error of a sentinel, with its address and advice.
pub(super) fn explain(address: &HostAddress, error: &Error) -> Error {
    let detail = error.detail().unwrap_or_default();
    let advice = if detail.contains("unknown command") {
        "it is no sentinel; the port may be the server's own: "
    } else if error.kind() == ErrorKind::Refused {
        "sentinels have users of their own, sentinel_user and sentinel_password: "
    } else {
        ""
    };
    let address = address.to_string();
    let detail = detail.strip_prefix(&address).unwrap_or(detail);
    let detail = detail.trim_start_matches([':', ' ']);
    Error::new(error.kind()).because(format!("{address}: {advice}{detail}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::wire::tests::tcp;
    use crate::store::redis::wire::tests::values::texts;

    fn word(epoch: i64, promoted: bool, port: u16) -> SentinelReply {
        let host = "h".to_owned();
        SentinelReply {
            epoch,
            promoted,
            host,
            port,
        }
    }

    #[test]
    fn the_sentinel_that_has_seen_more_failovers_is_believed() {
        let stale = word(3, false, 9);
        let fresh = word(4, false, 1);
        let about_to = word(3, true, 1);
        assert!(fresh > stale && about_to > stale && fresh > about_to);
    }

    #[test]
    fn details_are_read_from_names_and_values() {
        let at = |port| Some(("h".to_owned(), port));
        for (words, expected) in [
            (
                &["config-epoch", "7", "ip", "h", "port", "1"][..],
                (7, at(1)),
            ),
            (&["port", "1", "ip", "h"][..], (0, at(1))),
            (&["ip", "h"][..], (0, None)),
            (
                &["config-epoch", "x", "ip", "h", "port", "99999"][..],
                (0, None),
            ),
            (&["ip", "h", "config-epoch", "7", "port"][..], (7, None)),
        ] {
            assert_eq!(details(&texts(words)), expected, "{words:?}");
        }
        assert_eq!(details(&Reply::Nil), (0, None));
    }

    #[test]
    fn an_error_names_its_sentinel_once_and_what_to_do() {
        let address = tcp("h", 1, false);
        for (kind, detail, told) in [
            (
                ErrorKind::Unavailable,
                "redis://h:1: connection refused",
                "redis://h:1: connection refused",
            ),
            (ErrorKind::Unavailable, "closed", "redis://h:1: closed"),
            (
                ErrorKind::Refused,
                "unknown command 'SENTINEL'",
                "redis://h:1: it is no sentinel; the port may be the server's own: unknown",
            ),
            (
                ErrorKind::Refused,
                "NOPERM",
                "redis://h:1: sentinels have users of their own, sentinel_user and sentinel_password: NOPERM",
            ),
        ] {
            let error = explain(&address, &Error::new(kind).because(detail));
            assert_eq!(error.kind(), kind);
            let explained = error.detail().unwrap();
            assert!(explained.starts_with(told), "{explained}");
        }
    }
}
