//! From lock names to paths and back, and the names of the nodes that queue under them.

use std::cmp::Ordering;

use crate::backend::{OwnerId, percent};

/// What Curator puts before the node of a protected create, so that it is found again when the reply is lost.
const PROTECTED: &str = "_c_";
/// What Curator's `InterProcessMutex` calls its nodes.
const LOCK: &str = "lock-";

/// One segment of a path that stands for this name, and for no other.
///
/// What ZooKeeper takes stays as it is, so a lock has the path that users of Curator would give it.
pub(super) fn escape(name: &str) -> String {
    let mut segment = String::with_capacity(name.len());
    // A segment of dots would be a relative path.
    let dots = matches!(name, "." | "..");
    for c in name.chars() {
        if is_plain(c) && !(dots && segment.is_empty()) {
            segment.push(c);
            continue;
        }
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            segment.push('%');
            for half in [byte >> 4, byte & 15] {
                segment.push(char::from(b"0123456789ABCDEF"[usize::from(half)]));
            }
        }
    }
    segment
}

/// ZooKeeper refuses controls and, counting in UTF-16, everything from the surrogates on.
fn is_plain(c: char) -> bool {
    !matches!(c, '/' | '%' | '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..)
}

/// The name that has this segment. `None`: no name has it.
pub(super) fn name_of(segment: &str) -> Option<String> {
    percent::decode(segment).filter(|name| !name.is_empty() && escape(name) == segment)
}

/// How every node of this ticket begins, and no other node: the server adds the number.
pub(super) fn prefix(owner: &OwnerId) -> String {
    let client = uuid::Uuid::parse_str(owner.client()).unwrap_or_default();
    // As many tickets as a client makes, each with a UUID of its own that can be found again from the ticket.
    let own = uuid::Uuid::from_u128(client.as_u128() ^ u128::from(owner.number()));
    format!("{PROTECTED}{own}-{LOCK}")
}

/// The number the server gave a node. `None`: this is no place in a queue.
fn number(node: &str) -> Option<i64> {
    let digits = match node.rsplit_once(LOCK) {
        Some((_, digits)) => digits,
        // Other recipes have other words; what all have in common is the number of ten digits.
        None => node.get(node.len().checked_sub(10)?..)?,
    };
    digits.parse().ok()
}

/// The nodes that queue, first come first.
pub(super) fn in_order(nodes: Vec<String>) -> Vec<String> {
    let mut queue: Vec<(i64, String)> = nodes
        .into_iter()
        .filter_map(|node| Some((number(&node)?, node)))
        .collect();
    queue.sort_unstable_by(|a, b| match a.0.cmp(&b.0) {
        Ordering::Equal => a.1.cmp(&b.1),
        other => other,
    });
    queue.into_iter().map(|(_, node)| node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::OwnerMint;

    #[test]
    fn names_are_one_segment_each_and_come_back() {
        let mut seen = std::collections::HashSet::new();
        for name in [
            "a",
            ".",
            "..",
            "...",
            "a/b",
            "a%2Fb",
            "a b\tc\n",
            "äöü 漢字",
            "🔒",
            "\u{e000}",
            "{x}:*?[]\\'\"",
            "%",
            "/",
            "a.",
            "\u{7f}\u{9f}",
        ] {
            let segment = escape(name);
            assert_eq!(name_of(&segment).as_deref(), Some(name));
            assert!(!segment.contains('/') && segment != "." && segment != "..");
            assert!(
                segment.chars().all(|c| is_plain(c) || c == '%'),
                "{segment}"
            );
            assert!(seen.insert(segment), "{name}");
        }
        assert_eq!(escape("stock:42 ü"), "stock:42 ü");
        for foreign in ["%clients", "%delays", "%41", "a%2fb", "%+1", ""] {
            assert_eq!(name_of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn each_ticket_has_a_prefix_of_its_own() {
        let mint = OwnerMint::new();
        let (one, two) = (mint.fresh(), mint.fresh());
        assert_eq!(prefix(&one), prefix(&one));
        assert_ne!(prefix(&one), prefix(&two));
        assert_eq!(prefix(&one).len(), "_c_".len() + 36 + "-lock-".len());
    }

    #[test]
    fn a_queue_is_ordered_by_number() {
        let nodes = [
            "_c_b-lock-0000000010",
            "_c_a-lock-0000000009",
            "note",
            "lock-0000000011",
            "_c_z-__WRIT__0000000008",
        ];
        let queue = in_order(nodes.map(str::to_owned).to_vec());
        assert_eq!(
            queue,
            [
                "_c_z-__WRIT__0000000008",
                "_c_a-lock-0000000009",
                "_c_b-lock-0000000010",
                "lock-0000000011"
            ]
        );
    }
}
