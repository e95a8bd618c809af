//! Holders and waiters as they are read from the keys of a queue that somebody has changed by hand.

use super::*;
use crate::store::etcd::queue_view::KeyQueue;

/// The key of the waiter was deleted by hand, and its marker was not.
#[test]
fn a_marker_that_is_left_of_a_waiter_hides_no_holder() {
    let folder = Keys::new("").folder(&stock());
    for holder in ["stock/1e", "stock/read/1e"] {
        let kvs = [(holder, 3), ("stock/1f.delay", 4), ("stock/2f", 5)];
        let kvs = kvs.map(|(key, revision)| KeyValue {
            key: key.as_bytes().to_vec(),
            create_revision: revision,
            ..KeyValue::default()
        });
        let queue = KeyQueue::of(&folder, &kvs);
        let holders = queue.holders().iter().map(|kv| &*kv.key);
        let holders: Vec<&[u8]> = holders.collect();
        assert_eq!(holders, [holder.as_bytes()]);
        assert_eq!(queue.waiters(), 1, "{holder}");
    }
}
