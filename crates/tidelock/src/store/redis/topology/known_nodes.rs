//! The ids of a cluster's nodes. They tell a node of our cluster from a node of another cluster that has got its address.

use std::collections::HashSet;

use crate::engine::runtime::sync::RwLock;
use crate::store::redis::wire::reply::Reply;

/// Why a connection to such a node is refused.
pub(crate) const ANOTHER_CLUSTER: &str = "the node at this address is not of our cluster: it does not know the other nodes; \
     waiting for a node of our cluster";

/// The remedy if the user may not ask a node for the ids.
pub(crate) const NEEDED_RIGHT: &str = "allow +cluster|slots";

/// The ids of the nodes that have slots, and of their replicas. Empty until the slot map is known, and if no node tells an id.
#[derive(Debug, Default)]
pub(crate) struct KnownNodes(RwLock<HashSet<String>>);

impl KnownNodes {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.read().is_empty()
    }

    /// Replaces the ids by those of a newer map of our cluster. A map without ids tells nothing about who is known.
    pub(crate) fn update(&self, ids: HashSet<String>) {
        if !ids.is_empty() {
            self.replace(ids);
        }
    }

    /// Replaces the ids by those of another cluster, whose nodes may tell none.
    pub(crate) fn replace(&self, ids: HashSet<String>) {
        *self.0.write() = ids;
    }

    /// Whether a node that reports these ids is of our cluster: it knows some of the known nodes. Not all of them, since nodes
    /// come and go, and one that has lost its data gets a new id. But one is not enough where there are more: a node that
    /// was taken out of our cluster, and put into another one, still knows itself.
    pub(crate) fn are_known_to(&self, ids: &HashSet<String>) -> bool {
        let known = self.0.read();
        let needed = if known.len().min(ids.len()) < 3 { 1 } else { 2 };
        known.is_empty() || known.intersection(ids).count() >= needed
    }
}

/// The ids in a reply to `CLUSTER SLOTS`. A proxy may leave them empty.
pub(crate) fn ids(slots: &Reply) -> HashSet<String> {
    let ranges = slots.list().unwrap_or_default().iter();
    let nodes = ranges.filter_map(|range| range.list().and_then(|range| range.get(2..)));
    let mut ids = HashSet::new();
    for node in nodes.flatten() {
        let id = node.list().and_then(|node| node.get(2)?.text());
        if let Some(id) = id.filter(|id| !id.is_empty() && !ids.contains(*id)) {
            ids.insert(id.to_owned());
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::wire::tests::values::{slots_of, text};

    fn told(ranges: &[&[&str]]) -> HashSet<String> {
        ids(&slots_of(ranges))
    }

    #[test]
    fn a_node_is_of_our_cluster_if_it_knows_some_of_its_nodes() {
        let known = KnownNodes::default();
        let is_ours = |ranges: &[&[&str]]| known.are_known_to(&told(ranges));
        assert!(known.is_empty() && is_ours(&[&["z"]]) && is_ours(&[]));
        known.replace(told(&[&["a", "a2"], &["b"]]));
        assert!(!known.is_empty());
        assert!(is_ours(&[&["a"]]) && is_ours(&[&["a2", "x"]]));
        assert!(is_ours(&[&["x"], &["y", "a2"], &["b"]]));
        assert!(!is_ours(&[&["x", "y"], &["z"]]));
        assert!(
            !is_ours(&[&["x"], &["y"], &["b"]]),
            "it is in another one now"
        );
        assert!(!is_ours(&[]), "it has not joined yet");
        assert!(!is_ours(&[&["", ""]]), "our nodes tell their ids");
        // A replica that does not tell the id of its primary.
        assert!(is_ours(&[&["", "a2"]]));
        // What tells nothing changes nothing.
        known.update(told(&[&[""]]));
        assert!(!known.is_empty() && !is_ours(&[&["z"]]));
        // In a small cluster one node may be all that is left.
        known.update(told(&[&["p", "r"]]));
        assert!(is_ours(&[&["p", "r2"]]) && !is_ours(&[&["p2", "r2"]]));
        // Another cluster is used now, and its nodes tell no ids.
        known.replace(told(&[&[""]]));
        assert!(known.is_empty() && is_ours(&[&[""]]));
    }

    #[test]
    fn a_reply_of_another_form_has_no_ids() {
        let node = Reply::List(vec![text("10.0.0.1"), Reply::Int(7000)]);
        for node in [node, Reply::Nil] {
            let range = Reply::List(vec![Reply::Int(0), Reply::Int(1), node]);
            assert!(ids(&Reply::List(vec![range])).is_empty());
        }
        assert!(ids(&Reply::Nil).is_empty());
    }
}
