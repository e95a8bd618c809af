//! Converts lock names to path segments and back, and defines the names of the nodes in a lock's queue.

use crate::snapshot::Mode;
use crate::store::zookeeper::sequence::SequenceNumber;
use crate::store::{LockKind, Ticket, percent};

/// Curator's prefix for a protected create, which lets the client find the node after a lost reply.
const PROTECTED: &str = "_c_";
/// The part of the name that Curator's `InterProcessMutex` gives its nodes.
const LOCK: &str = "lock-";
/// The same for readers of Curator's `InterProcessReadWriteLock`.
const READ: &str = "__READ__";
/// The same for its writers.
const WRITE: &str = "__WRIT__";

/// The node with the number of permits, under the path of the name. It stays, so a name with a number is a semaphore for good.
///
/// In the queue of a lock it comes before all others, as a writer that never leaves. So Curator's locks and an older
/// tidelock, which know no semaphores, wait for it.
pub(crate) const NUMBER: &str = "%permits__WRIT__-1";
/// The node above the claims of all semaphores. No lock can have this name.
pub(crate) const CLAIMS_PARENT: &str = "%permits";
/// The part of the name of a claim between the permits that it wants and the number that the server gives it.
pub(crate) const PERMITS: &str = "-permits-";
/// The part of the name of a node that makes the number of a semaphore. To others it is the node of a lock: Curator's
/// `InterProcessMutex` and an older tidelock see its number behind `lock-`. To Curator's `InterProcessReadWriteLock` it is a
/// writer ahead of all others, because `%` sorts before every number.
const MAKER: &str = "number-__WRIT__%lock-";
/// The nodes of Curator's `InterProcessSemaphoreV2`.
const CURATORS_SEMAPHORE: [&str; 2] = ["leases", "locks"];

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
    let word = match ticket.kind {
        LockKind::Permits(count) => return prefix_with(ticket, &format!("{count}{PERMITS}")),
        LockKind::Mutex
        | LockKind::Fenced
        | LockKind::Fair
        | LockKind::FairFenced
        | LockKind::Spin
        | LockKind::SpinFenced
        | LockKind::UpgradeableRead
        | LockKind::UpgradeableReadFenced => LOCK, // it has neither spin locks nor upgradeable readers
        LockKind::Read | LockKind::ReadFenced => READ,
        LockKind::Write | LockKind::WriteFenced => WRITE,
    };
    prefix_with(ticket, word)
}

/// The same for the node that makes the number of a semaphore.
pub(crate) fn maker_prefix(ticket: &Ticket) -> String {
    prefix_with(ticket, MAKER)
}

fn prefix_with(ticket: &Ticket, word: &str) -> String {
    let owner = &ticket.owner;
    let client = uuid::Uuid::parse_str(owner.client()).unwrap_or_default();
    // Each ticket of a client needs its own UUID, and we must be able to compute it again from the ticket.
    let own = uuid::Uuid::from_u128(client.as_u128() ^ u128::from(owner.number()));
    format!("{PROTECTED}{own}-{word}")
}

/// Whether this node only makes the number of a semaphore.
pub(crate) fn is_maker(node: &str) -> bool {
    node.rsplit_once(MAKER)
        .is_some_and(|(_, rest)| is_number(rest))
}

/// Whether a node under the path of a name makes the name a lock, or a semaphore of Curator's.
pub(crate) fn makes_a_lock(node: &str) -> bool {
    let is_ours = node == NUMBER || is_maker(node);
    !is_ours && (number(node).is_some() || is_of_curators_semaphore(node))
}

/// Whether this is a node of Curator's `InterProcessSemaphoreV2`.
pub(crate) fn is_of_curators_semaphore(node: &str) -> bool {
    CURATORS_SEMAPHORE.contains(&node)
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
fn number(node: &str) -> Option<SequenceNumber> {
    SequenceNumber::of(digits(node)?)
}

/// The nodes that queue, first come first. A writer of Curator that reads as well has two nodes of one number.
pub(crate) fn in_order(nodes: Vec<String>) -> Vec<String> {
    let numbered = nodes.into_iter().filter_map(|node| {
        let reads = mode(&node) == Mode::Read;
        Some((number(&node)?, reads, node))
    });
    let mut queue: Vec<(SequenceNumber, bool, String)> = numbered.collect();
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
    use crate::store::{Name, OwnerId};
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

    #[test]
    fn no_two_acquisitions_share_a_prefix() {
        let most = "ffffffff-ffff-ffff-ffff-ffffffffffff";
        let least = "00000000-0000-0000-0000-000000000000";
        let mut seen = std::collections::HashSet::new();
        for client in [most, least] {
            for number in [1, 2] {
                let ticket = Ticket {
                    kind: LockKind::Mutex,
                    name: Name::new("stock").unwrap(),
                    owner: OwnerId::of_text(&format!("{client}:{number}")),
                };
                let own = [prefix(&ticket), maker_prefix(&ticket)];
                assert!(own.into_iter().all(|prefix| seen.insert(prefix)));
            }
        }
    }

    #[test]
    fn a_node_holds_the_lock_unless_one_before_it_blocks_it() {
        let [r1, w2, r3] = [
            "a-__READ__0000000001",
            "b-__WRIT__0000000002",
            "c-__READ__0000000003",
        ];
        let queue = strings(&[r1, w2, r3]);
        let holds = |own, kind| matches!(decide(&queue, own, kind), QueueDecision::Holds);
        assert!(holds(r1, LockKind::Read) && holds(r1, LockKind::Write));
        assert!(!holds(w2, LockKind::Write) && !holds(r3, LockKind::Read));
        let waits = decide(&queue, r3, LockKind::Read);
        assert!(matches!(waits, QueueDecision::Watch(before) if before == w2));
        let gone = decide(&queue, "d-__READ__0000000004", LockKind::Read);
        assert!(matches!(gone, QueueDecision::Gone));
    }

    /// Curator sorts by the text behind its word, and by the whole name where that is missing.
    #[test]
    fn the_number_of_permits_is_ahead_of_every_lock() {
        let locks = [
            "_c_a-lock-0000000000",
            "_c_a-__READ__0000000000",
            "_c_a-__WRIT__0000000000",
            "_c_a-lock-2147483647",
        ];
        for lock in locks {
            let queue = in_order(strings(&[lock, NUMBER]));
            assert_eq!(queue, [NUMBER, lock]);
            assert_eq!(holders(&queue), [NUMBER]);
            for word in [LOCK, READ, WRITE] {
                let behind = |node: &'static str| node.rsplit_once(word).map_or(node, |it| it.1);
                assert!(behind(NUMBER) < behind(lock), "{lock} by {word}");
            }
            assert!(makes_a_lock(lock));
        }
        assert!(NUMBER.contains(WRITE), "Curator's readers wait for it");
        assert_eq!(name_of(CLAIMS_PARENT), None);
    }

    /// Curator's recipes sort by the text behind their own word.
    #[test]
    fn curators_locks_wait_for_the_node_that_makes_a_number() {
        let maker = format!("_c_a-{MAKER}0000000003");
        let behind = |node: &'static str, word| node.rsplit_once(word).unwrap().1;
        let by = |word| maker.rsplit_once(word).unwrap().1;
        assert_eq!(by(LOCK), "0000000003", "in its place among the mutexes");
        for other in [
            behind("_c_b-__WRIT__0000000004", WRITE),
            behind("_c_b-__READ__0000000004", READ),
            behind("_c_b-__WRIT__-2147483648", WRITE),
        ] {
            assert!(by(WRITE) < other, "{other}");
        }
        assert!(maker.contains(WRITE), "Curator's readers wait for it");
    }

    #[test]
    fn the_node_that_makes_a_number_is_no_lock() {
        let ticket = Ticket {
            kind: LockKind::Mutex,
            name: Name::new("render").unwrap(),
            owner: OwnerMint::new().fresh(),
        };
        let maker = format!("{}0000000003", maker_prefix(&ticket));
        assert!(is_maker(&maker) && !is_maker(&prefix(&ticket)));
        assert_eq!(mode(&maker), Mode::Exclusive);
        assert!(number(&maker).is_some());
        let locks = [&*maker, NUMBER, "leases", "locks", "other"].map(makes_a_lock);
        assert_eq!(locks, [false, false, true, true, false]);
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

    /// T68: a node is behind all that the server numbered before its numbers were used up.
    #[test]
    fn t68_a_node_that_comes_after_the_last_number_is_behind_all_others() {
        let queue = ["_c_z-lock-0000000005", "_c_y-__WRIT__2147483646"];
        for late in [
            "_c_a-lock-2147483647",
            "_c_a-__READ__-2147483648",
            "a--2147483647",
        ] {
            let found = in_order(strings(&[late, queue[1], queue[0]]));
            assert_eq!(found, [queue[0], queue[1], late]);
        }
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
