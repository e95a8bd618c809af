//! The ids of a cluster's nodes. They tell a node of our cluster from a node of another cluster that has got its address.

use std::collections::HashSet;

use crate::engine::runtime::sync::RwLock;
use crate::store::redis::wire::reply::Reply;

/// Why a connection to a node of another cluster is refused.
pub(crate) const ANOTHER_CLUSTER: &str = "this address now belongs to another cluster: its node knows none of the nodes of ours; \
     waiting for a node of our cluster";

/// The ids of the nodes that have slots, and of their replicas. Empty until the slot map is known, and if the nodes do not
/// tell their ids.
#[derive(Debug, Default)]
pub(crate) struct KnownNodes(RwLock<HashSet<String>>);

impl KnownNodes {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.read().is_empty()
    }

    pub(crate) fn replace(&self, ids: Option<HashSet<String>>) {
        *self.0.write() = ids.unwrap_or_default();
    }

    /// Whether a node that reports these ids is of our cluster: it knows one of the known nodes. Any one is enough, since a
    /// node that has lost its data gets a new id. One that knows nobody has not joined our cluster, and may join another.
    pub(crate) fn are_known_to(&self, ids: Option<&HashSet<String>>) -> bool {
        let known = self.0.read();
        known.is_empty() || ids.is_none_or(|ids| !known.is_disjoint(ids))
    }
}

/// The ids in a reply to `CLUSTER SLOTS`. `None`: it has a node without an id, as that of a proxy, so nothing can be compared.
pub(crate) fn ids(slots: &Reply) -> Option<HashSet<String>> {
    let ranges = slots.list().unwrap_or_default().iter();
    let nodes = ranges.filter_map(|range| range.list().and_then(|range| range.get(2..)));
    let mut ids = HashSet::new();
    for node in nodes.flatten() {
        let id = node.list()?.get(2)?.text().filter(|id| !id.is_empty())?;
        if !ids.contains(id) {
            ids.insert(id.to_owned());
        }
    }
    Some(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Reply {
        Reply::Text(text.as_bytes().to_vec())
    }

    fn told(ranges: &[&[&str]]) -> Option<HashSet<String>> {
        let node = |id: &&str| Reply::List(vec![text("10.0.0.1"), Reply::Int(7000), text(id)]);
        let range = |ids: &&[&str]| {
            let mut range = vec![Reply::Int(0), Reply::Int(99)];
            range.extend(ids.iter().map(node));
            Reply::List(range)
        };
        ids(&Reply::List(ranges.iter().map(range).collect()))
    }

    #[test]
    fn a_node_is_of_our_cluster_if_it_knows_one_of_its_nodes() {
        let known = KnownNodes::default();
        let is_ours = |ranges: &[&[&str]]| known.are_known_to(told(ranges).as_ref());
        assert!(known.is_empty() && is_ours(&[&["z"]]) && is_ours(&[]));
        known.replace(told(&[&["a", "a2"], &["b"]]));
        assert!(!known.is_empty());
        assert!(is_ours(&[&["a"]]) && is_ours(&[&["x"], &["y", "a2"]]));
        assert!(!is_ours(&[&["x", "y"], &["z"]]));
        assert!(!is_ours(&[]), "it has not joined yet");
        // A replica that does not tell the id of its primary.
        assert!(is_ours(&[&["", "r"]]));
        known.replace(told(&[&["", "r"]]));
        assert!(known.is_empty() && is_ours(&[&["a"]]));
    }

    #[test]
    fn a_node_without_an_id_cannot_be_compared() {
        let node = Reply::List(vec![text("10.0.0.1"), Reply::Int(7000)]);
        for node in [node, Reply::Nil] {
            let range = Reply::List(vec![Reply::Int(0), Reply::Int(1), node]);
            assert_eq!(ids(&Reply::List(vec![range])), None);
        }
        assert_eq!(ids(&Reply::Nil), Some(HashSet::new()));
    }
}
