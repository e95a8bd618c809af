//! Parses the reply to `CLUSTER SLOTS`: which node has which slots.

use crate::store::redis::address::HostAddress;
use crate::store::redis::slots::{SLOTS, node_address};
use crate::store::redis::wire::reply::Reply;

/// A range of consecutive slots and its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlotRange {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) primary: HostAddress,
    pub(crate) replicas: Vec<HostAddress>,
}

/// Parses the reply to `CLUSTER SLOTS` of the node at `asked`. Ranges that cannot be parsed are left out: their slots
/// have no node.
pub(crate) fn read(reply: &Reply, asked: &HostAddress) -> Vec<SlotRange> {
    let ranges = reply.list().unwrap_or_default().iter();
    ranges.filter_map(|range| read_one(range, asked)).collect()
}

fn read_one(range: &Reply, asked: &HostAddress) -> Option<SlotRange> {
    let [first, last, nodes @ ..] = range.list()? else {
        return None;
    };
    let slot = |number: &Reply| u16::try_from(number.int()?).ok().filter(|n| *n < SLOTS);
    let (first, last) = (slot(first)?, slot(last)?);
    if first > last {
        return None; // it has no slots, and as a range of the map it would be a panic
    }
    let mut nodes = nodes.iter().map(|node| address(node, asked));
    Some(SlotRange {
        first,
        last,
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
    (port != 0).then(|| node_address(host, port, asked))
}

fn further<'a>(fields: &'a [Reply], name: &str) -> Option<&'a str> {
    let pairs = fields.get(3)?.list()?.chunks_exact(2);
    let mut found = pairs.filter(|pair| pair[0].text() == Some(name));
    found.next()?[1].text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::wire::tests::tcp;
    use crate::store::redis::wire::tests::values::text;

    fn tls(host: &str, port: u16) -> HostAddress {
        tcp(host, port, true)
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
            // No cluster has this slot, and this node has no port for us.
            Reply::List(vec![
                Reply::Int(16383),
                Reply::Int(16384),
                node(text("10.0.0.1"), 7000, vec![]),
            ]),
            Reply::List(vec![
                Reply::Int(400),
                Reply::Int(500),
                node(text("10.0.0.1"), 0, vec![]),
            ]),
            Reply::List(vec![
                Reply::Int(300),
                Reply::Int(200),
                node(text("10.0.0.1"), 7000, vec![]),
            ]),
        ]);
        let ranges = read(&reply, &tls("seed", 1));
        assert_eq!(ranges.len(), 2);
        assert_eq!((ranges[0].first, ranges[0].last), (0, 99));
        assert_eq!(ranges[0].primary, tls("10.0.0.1", 7000));
        assert_eq!(ranges[0].replicas, [tls("::1", 7001)]);
        assert_eq!(ranges[1].primary, tls("seed", 7002));
        assert_eq!(
            ranges[1].replicas,
            [tls("seed", 7003), tls("10.0.0.9", 7004)]
        );
    }
}
