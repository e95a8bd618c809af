//! Converts lock names to path segments and back, and defines the names of the nodes in a lock's queue.

use crate::snapshot::Mode;
use crate::store::{LockKind, Ticket, percent};

/// Curator's prefix for a protected create, which lets the client find the node after a lost reply.
const PROTECTED: &str = "_c_";
/// The part of the name that Curator's `InterProcessMutex` gives its nodes.
const LOCK: &str = "lock-";
/// The same for readers of Curator's `InterProcessReadWriteLock`.
const READ: &str = "__READ__";
/// The same for its writers.
const WRITE: &str = "__WRIT__";

/// Encodes a lock name as one path segment. No two names share a segment.
///
/// Characters that ZooKeeper accepts stay as they are, so a lock has the path that Curator users would give it.
pub(crate) fn escape(name: &str) -> String {
    let mut segment = String::with_capacity(name.len());
    // A segment of only dots would be a relative path.
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

/// ZooKeeper refuses control characters and, in UTF-16, everything from the surrogates on.
fn is_plain(c: char) -> bool {
    !matches!(c, '/' | '%' | '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..)
}

/// Decodes a segment. `None`: no lock name has it.
pub(crate) fn name_of(segment: &str) -> Option<String> {
    percent::decode(segment).filter(|name| !name.is_empty() && escape(name) == segment)
}

/// The prefix that all nodes of this ticket share with no other node. The server appends the number.
pub(crate) fn prefix(ticket: &Ticket) -> String {
    let (owner, word) = (&ticket.owner, word(ticket.kind));
    let client = uuid::Uuid::parse_str(owner.client()).unwrap_or_default();
    // Each ticket of a client needs its own UUID, and we must be able to compute it again from the ticket.
    let own = uuid::Uuid::from_u128(client.as_u128() ^ u128::from(owner.number()));
    format!("{PROTECTED}{own}-{word}")
}

fn word(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Mutex
        | LockKind::Fenced
        | LockKind::Fair
        | LockKind::FairFenced
        | LockKind::Spin
        | LockKind::SpinFenced
        | LockKind::Permits(_) => LOCK, // it has neither spin locks nor permits
        LockKind::Read | LockKind::ReadFenced => READ,
        LockKind::Write | LockKind::WriteFenced => WRITE,
    }
}

/// The mode in which a node queues. A node with the name of an unknown recipe is exclusive.
pub(crate) fn mode(node: &str) -> Mode {
    let has = |word| {
        node.rsplit_once(word)
            .is_some_and(|(_, rest)| is_number(rest))
    };
    if has(READ) {
        Mode::Read
    } else if has(WRITE) {
        Mode::Write
    } else {
        Mode::Exclusive
    }
}

fn is_number(text: &str) -> bool {
    text.parse::<i64>().is_ok()
}

/// The digits that the server appended to the name of a node.
pub(crate) fn digits(node: &str) -> Option<&str> {
    let mut words = [LOCK, READ, WRITE].into_iter();
    match words.find_map(|word| node.rsplit_once(word)) {
        Some((_, digits)) => Some(digits),
        // Other recipes use other names, but all of them end in a number of ten digits.
        None => node.get(node.len().checked_sub(10)?..),
    }
}

/// The number the server gave a node. `None`: this is no place in a queue.
fn number(node: &str) -> Option<i32> {
    let number: i64 = digits(node)?.parse().ok()?;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the server counts in 32 bits"
    )]
    let wrapped = number as i32;
    Some(wrapped)
}

/// The nodes that queue, first come first. A writer of Curator that reads as well has two nodes of one number.
///
/// The server counts the nodes of a lock in 32 bits, and after 2147483647 comes -2147483648. So numbers are compared by how far
/// they are from each other: otherwise the first that comes after the turn would stand before the holder, and enter.
pub(crate) fn in_order(nodes: Vec<String>) -> Vec<String> {
    let numbered = nodes
        .into_iter()
        .filter_map(|node| Some((number(&node)?, node)));
    let numbered: Vec<(i32, String)> = numbered.collect();
    let from = numbered.first().map_or(0, |(number, _)| *number);
    let mut queue: Vec<(i32, bool, String)> = numbered
        .into_iter()
        .map(|(number, node)| (number.wrapping_sub(from), mode(&node) == Mode::Read, node))
        .collect();
    queue.sort_unstable();
    queue.into_iter().map(|(_, _, node)| node).collect()
}

/// The last node in front that blocks a ticket of this kind. A reader does not wait for other readers.
pub(crate) fn in_the_way(before: &[String], kind: LockKind) -> Option<&String> {
    if kind.is_read() {
        before.iter().rfind(|node| mode(node) != Mode::Read)
    } else {
        before.last()
    }
}

/// What the queue of a lock means for one of its nodes.
pub(crate) enum QueueDecision<'a> {
    Holds,
    /// This node blocks ours. Ours may go on when it is gone.
    Watch(&'a str),
    /// Our node is not in the queue: its session has expired.
    Gone,
}

/// The lock algorithm: a node holds the lock unless a node in front of it blocks it.
pub(crate) fn decide<'a>(queue: &'a [String], own: &str, kind: LockKind) -> QueueDecision<'a> {
    let Some(at) = queue.iter().position(|node| node == own) else {
        return QueueDecision::Gone;
    };
    match in_the_way(&queue[..at], kind) {
        Some(predecessor) => QueueDecision::Watch(predecessor),
        None => QueueDecision::Holds,
    }
}

/// The nodes that hold the lock: the first one and, if it belongs to a reader, the readers directly behind it.
pub(crate) fn holders(queue: &[String]) -> &[String] {
    let readers = queue.iter().take_while(|node| mode(node) == Mode::Read);
    let count = readers.count().max(1).min(queue.len());
    &queue[..count]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Name;
    use crate::types::OwnerMint;

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
        let ticket = |kind| Ticket {
            kind,
            name: Name::new("stock").unwrap(),
            owner: mint.fresh(),
        };
        let (one, two) = (ticket(LockKind::Mutex), ticket(LockKind::Mutex));
        assert_eq!(prefix(&one), prefix(&one));
        assert_ne!(prefix(&one), prefix(&two));
        assert_eq!(prefix(&one).len(), "_c_".len() + 36 + "-lock-".len());
        assert!(prefix(&ticket(LockKind::Read)).ends_with("-__READ__"));
        assert!(prefix(&ticket(LockKind::Write)).ends_with("-__WRIT__"));
    }

    fn strings(nodes: &[&str]) -> Vec<String> {
        nodes.iter().map(|node| (*node).to_owned()).collect()
    }

    #[test]
    fn readers_share_what_no_writer_is_before() {
        let (r1, r2, w3) = (
            "_c_z-__READ__0000000001",
            "a-__READ__0000000002",
            "w-__WRIT__0000000003",
        );
        let (r4, m5, r6) = (
            "_c_b-__READ__0000000004",
            "_c_a-lock-0000000005",
            "r-__READ__0000000006",
        );
        let queue = in_order(strings(&[m5, r6, r2, r4, w3, r1]));
        assert_eq!(queue, [r1, r2, w3, r4, m5, r6]);
        assert_eq!(holders(&queue), [r1, r2]);
        assert_eq!(holders(&queue[2..]), [w3]);
        assert_eq!(holders(&queue[4..]), [m5]);
        assert!(holders(&[]).is_empty());
        for (at, kind, way) in [
            (0, LockKind::Write, None),
            (1, LockKind::Read, None),
            (1, LockKind::Write, Some(r1)),
            (2, LockKind::Mutex, Some(r2)),
            (3, LockKind::Read, Some(w3)),
            (4, LockKind::Fenced, Some(r4)),
            (5, LockKind::Read, Some(m5)),
        ] {
            let found = in_the_way(&queue[..at], kind).map(String::as_str);
            assert_eq!(found, way, "{kind:?} at {at}");
        }
        // A writer that reads as well, and a name that only sounds like a reader's.
        let both = in_order(strings(&["_c_a-__READ__0000000003", w3]));
        assert_eq!(holders(&both), [w3]);
        assert_eq!(mode("__READ__x-lease-0000000001"), Mode::Exclusive);
    }

    /// T68: the holder came before the turn, and those who wait came after it.
    #[test]
    fn t68_a_waiter_after_the_numbers_have_wrapped_is_behind_the_holder() {
        let queue = [
            "_c_z-lock-2147483646",
            "_c_y-lock-2147483647",
            "_c_b-lock--2147483648",
            "_c_a-lock--2147483647",
        ];
        let others = ["_c_0-lock-0000000001", "other--2147483648"];
        for turn in 0..queue.len() {
            let mut nodes = queue.to_vec();
            nodes.rotate_left(turn);
            assert_eq!(in_order(strings(&nodes)), queue);
        }
        let found = in_order(strings(&[others[1], queue[1]]));
        assert_eq!(found, [queue[1], others[1]]);
        let found = in_order(strings(&[others[0], "_c_y-lock-0000000000"]));
        assert_eq!(found[1], others[0]);
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
