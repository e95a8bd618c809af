//! The rows of a lock with its queue.

use crate::top::picture::LockRow;
use crate::top::text;

/// The most rows below a lock. A longer queue would push the other locks away, and its end could not be reached: the cursor
/// moves from lock to lock.
const MOST: usize = 10;

/// The lock, and below it who waits. Not escaped.
pub(super) fn rows(lock: &LockRow) -> Vec<[String; 8]> {
    let mut rows = text::rows_of_lock(lock);
    let below = rows.len() - 1;
    if below > MOST {
        // The last row says how many are left out.
        rows.truncate(MOST);
        let mut more: [String; 8] = Default::default();
        more[2] = format!("└ and {} more: Enter", below + 1 - MOST);
        rows.push(more);
    }
    rows
}

/// How many they are.
pub(super) fn height(lock: &LockRow) -> usize {
    let below = lock.waiting.len() + usize::from(lock.is_lower_bound);
    1 + below.min(MOST)
}
