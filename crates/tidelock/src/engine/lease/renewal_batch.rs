//! Groups renewals into batches. A batch is one request: for one store and one lane, with at most 100 renewals.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::store_handle::StoreHandle;
use crate::store::{Name, Renewal};

/// Bounds the number of names in one renewal script. Redisson has the same bound.
pub(crate) const BATCH: usize = 100;

/// The renewals of one request, all for one store and one lane.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) store: Arc<StoreHandle>,
    /// The ids of their entries in the lease table, in the order of `renewals`.
    pub(crate) ids: Vec<u64>,
    pub(crate) renewals: Vec<Renewal>,
}

/// Locks that fail together: the store, and the lane within it. A request that hangs therefore delays no other lane.
type Lane = (*const StoreHandle, u64);

fn lane(store: &Arc<StoreHandle>, name: &Name) -> Lane {
    (Arc::as_ptr(store), store.back().lane(name))
}

/// The batches that are due at one instant: for each lane any number of full ones, and at most one with room.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    roomy: BTreeMap<Lane, Batch>,
    full: Vec<Batch>,
}

impl Batches {
    /// Adds a renewal to the batch of its lane that has room, or opens one.
    pub(crate) fn add(&mut self, store: &Arc<StoreHandle>, id: u64, renewal: Renewal) {
        let lane = lane(store, &renewal.ticket.name);
        let batch = self.roomy.entry(lane).or_insert_with(|| Batch {
            store: Arc::clone(store),
            ids: Vec::new(),
            renewals: Vec::new(),
        });
        batch.ids.push(id);
        batch.renewals.push(renewal);
        if batch.ids.len() == BATCH {
            self.full.extend(self.roomy.remove(&lane));
        }
    }

    /// Whether any batch has room.
    pub(crate) fn have_room(&self) -> bool {
        !self.roomy.is_empty()
    }

    /// Whether the lane of this lock has a batch with room.
    pub(crate) fn have_room_for(&self, store: &Arc<StoreHandle>, name: &Name) -> bool {
        self.roomy.contains_key(&lane(store, name))
    }

    pub(crate) fn all(mut self) -> Vec<Batch> {
        self.full.extend(self.roomy.into_values());
        self.full
    }
}
