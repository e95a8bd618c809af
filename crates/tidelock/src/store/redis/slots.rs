//! The slot map of a cluster: computes the slot of a key, and parses `CLUSTER SLOTS` and redirections.

use crate::store::redis::address::HostAddress;
use crate::store::redis::keys;
use crate::store::redis::wire::reply::Reply;

/// The number of slots of a cluster.
pub(crate) const SLOTS: u16 = 16384;

/// The slot of a key: the hash of its hash tag, or else of the whole key.
pub(crate) fn of(key: &str) -> u16 {
    crc16(keys::hashed(key).as_bytes()) % SLOTS
}

/// CRC-16/XMODEM, which clusters use. Bit by bit: keys are short, and each request hashes one.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}

/// A range of consecutive slots and its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) primary: HostAddress,
    pub(crate) replicas: Vec<HostAddress>,
}

/// Parses the reply to `CLUSTER SLOTS` of the node at `asked`. Ranges that cannot be parsed are left out: their slots
/// have no node.
pub(crate) fn read(reply: &Reply, asked: &HostAddress) -> Vec<Range> {
    let ranges = reply.list().unwrap_or_default().iter();
    ranges.filter_map(|range| read_one(range, asked)).collect()
}

fn read_one(range: &Reply, asked: &HostAddress) -> Option<Range> {
    let [first, last, nodes @ ..] = range.list()? else {
        return None;
    };
    let slot = |number: &Reply| u16::try_from(number.int()?).ok().filter(|n| *n < SLOTS);
    let mut nodes = nodes.iter().map(|node| address(node, asked));
    Some(Range {
        first: slot(first)?,
        last: slot(last)?,
        primary: nodes.next()??,
        replicas: nodes.flatten().collect(),
    })
}

/// Parses host, port, id and optional details. A node without a host name has the host of the node we queried.
fn address(node: &Reply, asked: &HostAddress) -> Option<HostAddress> {
    let fields = node.list()?;
    let port = u16::try_from(fields.get(1)?.int()?).ok()?;
    let host = match fields.first()?.text() {
        Some("?") => further(fields, "ip").unwrap_or_default(),
        host => host.unwrap_or_default(),
    };
    (port != 0).then(|| at(host, port, asked))
}

fn further<'a>(fields: &'a [Reply], name: &str) -> Option<&'a str> {
    let pairs = fields.get(3)?.list()?.chunks_exact(2);
    let mut found = pairs.filter(|pair| pair[0].text() == Some(name));
    found.next()?[1].text()
}

/// The address of a node. An empty host means the host of the node we queried.
fn at(host: &str, port: u16, asked: &HostAddress) -> HostAddress {
    let (own, tls) = match asked {
        HostAddress::Tcp { host, tls, .. } => (host.as_str(), *tls),
        HostAddress::Unix(_) => ("localhost", false),
    };
    let host = if host.is_empty() { own } else { host };
    HostAddress::Tcp {
        host: host.to_owned(),
        port,
        tls,
    }
}

/// Parses a redirection: `slot host:port`, with an IPv6 address without brackets.
pub(crate) fn redirection(text: &str, asked: &HostAddress) -> Option<(u16, HostAddress)> {
    let (slot, address) = text.trim().split_once(' ')?;
    let (host, port) = address.rsplit_once(':')?;
    let host = if host == "?" { "" } else { host };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let slot = slot.parse().ok().filter(|slot| *slot < SLOTS)?;
    Some((slot, at(host, port.parse().ok()?, asked)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> HostAddress {
        let host = host.to_owned();
        HostAddress::Tcp {
            host,
            port,
            tls: true,
        }
    }

    fn text(text: &str) -> Reply {
        Reply::Text(text.as_bytes().to_vec())
    }

    #[test]
    fn slots_are_those_of_the_server() {
        // The values that `CLUSTER KEYSLOT` returns.
        for (key, slot) in [
            ("123456789", 12739),
            ("foo", 12182),
            ("{foo}:bar", 12182),
            ("", 0),
            ("{}foo", 9500),
            ("foo{bar", 15278),
            ("schlüssel", 7677),
        ] {
            assert_eq!(of(key), slot, "{key}");
        }
    }

    #[test]
    fn answers_of_every_age_are_read() {
        let node = |host: Reply, port: i64, more: Vec<Reply>| {
            let mut fields = vec![host, Reply::Int(port), text("id")];
            fields.extend(more);
            Reply::List(fields)
        };
        let unnamed = vec![Reply::List(vec![text("ip"), text("10.0.0.9")])];
        let reply = Reply::List(vec![
            Reply::List(vec![
                Reply::Int(0),
                Reply::Int(99),
                node(text("10.0.0.1"), 7000, vec![]),
                node(text("::1"), 7001, vec![Reply::List(vec![])]),
            ]),
            Reply::List(vec![
                Reply::Int(100),
                Reply::Int(100),
                node(text(""), 7002, vec![]),
                node(Reply::Nil, 7003, vec![]),
                node(text("?"), 7004, unnamed),
            ]),
            Reply::List(vec![Reply::Int(5), Reply::Int(99999), Reply::Nil]),
        ]);
        let ranges = read(&reply, &tcp("seed", 1));
        assert_eq!(ranges.len(), 2);
        assert_eq!((ranges[0].first, ranges[0].last), (0, 99));
        assert_eq!(ranges[0].primary, tcp("10.0.0.1", 7000));
        assert_eq!(ranges[0].replicas, [tcp("::1", 7001)]);
        assert_eq!(ranges[1].primary, tcp("seed", 7002));
        assert_eq!(
            ranges[1].replicas,
            [tcp("seed", 7003), tcp("10.0.0.9", 7004)]
        );
    }

    #[test]
    fn redirections_are_followed_from_where_they_came() {
        let asked = tcp("seed", 1);
        for (said, slot, address) in [
            ("3999 10.0.0.2:6381", 3999, tcp("10.0.0.2", 6381)),
            ("0 :7", 0, tcp("seed", 7)),
            ("1 ?:7", 1, tcp("seed", 7)),
            ("2 fe80::1:7", 2, tcp("fe80::1", 7)),
            ("2 node-3.shop:7", 2, tcp("node-3.shop", 7)),
        ] {
            assert_eq!(redirection(said, &asked), Some((slot, address)), "{said}");
        }
        for nonsense in ["", "x a:1", "1 a", "1 a:x", "99999 a:1"] {
            assert_eq!(redirection(nonsense, &asked), None, "{nonsense}");
        }
    }
}
