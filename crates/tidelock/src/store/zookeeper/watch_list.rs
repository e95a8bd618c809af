//! The paths that a session watches, and a bound on them.
//!
//! After a reconnect the driver sends all watched paths to the server again, in requests of at most 128 KiB. All these
//! requests have one number, so the driver takes the second reply for one that nobody has asked for. It closes the
//! connection and tries again, without end, and each time the server hears of a live session. So a session watches no more
//! than fits into one request.

use std::collections::HashMap;
use std::sync::Arc;

use crate::engine::runtime::sync::Mutex;

/// Bounds the bytes of the watched paths. The driver forgets a watch a little later than we do, so this is less than fits
/// into its request.
const MOST_BYTES: usize = 96 << 10;

/// The paths that one session watches.
#[derive(Debug, Default)]
pub(crate) struct WatchList(Arc<Mutex<WatchListState>>);

#[derive(Debug, Default)]
struct WatchListState {
    /// Each with the number of its watches. The driver sends a path once, however many there are.
    paths: HashMap<Arc<str>, usize>,
    bytes: usize,
}

/// Paths on the list, as long as this lives.
#[derive(Debug)]
pub(crate) struct WatchEntry {
    list: Arc<Mutex<WatchListState>>,
    paths: Vec<Arc<str>>,
}

impl WatchList {
    /// Enters paths, before the requests that watch them are sent. `None`: there is no room for them.
    pub(crate) fn enter<'p>(&self, paths: impl IntoIterator<Item = &'p str>) -> Option<WatchEntry> {
        let paths: Vec<&str> = paths.into_iter().collect();
        let mut state = self.0.lock();
        let new = paths
            .iter()
            .filter(|path| !state.paths.contains_key(**path));
        let new: usize = new.map(|path| path.len()).sum();
        if state.bytes + new > MOST_BYTES {
            return None;
        }
        let paths = paths.into_iter().map(|path| state.add(path)).collect();
        drop(state);
        let list = Arc::clone(&self.0);
        Some(WatchEntry { list, paths })
    }
}

impl WatchListState {
    fn add(&mut self, path: &str) -> Arc<str> {
        let known = self.paths.get_key_value(path);
        let path = known.map_or_else(|| Arc::from(path), |(path, _)| Arc::clone(path));
        let watches = self.paths.entry(Arc::clone(&path)).or_default();
        *watches += 1;
        if *watches == 1 {
            self.bytes += path.len();
        }
        path
    }

    fn remove(&mut self, path: &Arc<str>) {
        if let Some(watches) = self.paths.get_mut(path) {
            *watches -= 1;
            if *watches == 0 {
                self.paths.remove(path);
                self.bytes -= path.len();
            }
        }
    }
}

impl Drop for WatchEntry {
    fn drop(&mut self) {
        let mut state = self.list.lock();
        for path in &self.paths {
            state.remove(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path of 1024 bytes.
    fn path(number: usize) -> String {
        format!("/{number:01023}")
    }

    #[test]
    fn a_session_watches_no_more_than_fits_into_one_request() {
        let list = WatchList::default();
        let mut entries: Vec<_> = (0..96)
            .map(|number| list.enter([&*path(number)]).expect("there is room"))
            .collect();
        assert!(list.enter(["/x"]).is_none());
        assert!(list.enter([&*path(0), "/x"]).is_none());
        // Many may watch one path.
        let again = list.enter([&*path(0), &*path(95)]).expect("no new path");
        drop(entries.swap_remove(0));
        assert!(list.enter(["/x"]).is_none(), "another one watches it");
        drop(again);
        let next = list.enter(["/x"]).expect("there is room");
        assert!(list.enter([&*path(0)]).is_none());
        drop((next, entries));
        let state = list.0.lock();
        assert_eq!((state.bytes, state.paths.len()), (0, 0));
    }
}
