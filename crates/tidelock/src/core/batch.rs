//! Which renewals go together.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::backend::{Name, Renewal};
use crate::core::site::Site;

/// The most names in one renewal script, as Redisson.
pub(crate) const BATCH: usize = 100;

/// Renewals that go in one request: of one site, and of locks that fail together.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) site: Arc<Site>,
    /// The entries they are for.
    pub(crate) ids: Vec<u64>,
    pub(crate) renewals: Vec<Renewal>,
}

/// Locks that fail together: of one site, and there of one lane.
type Lane = (*const Site, u64);

fn lane(site: &Arc<Site>, name: &Name) -> Lane {
    (Arc::as_ptr(site), site.back().lane(name))
}

/// Those of one moment: of each lane full ones, and one at most that has room.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    roomy: BTreeMap<Lane, Batch>,
    full: Vec<Batch>,
}

impl Batches {
    pub(crate) fn add(&mut self, site: &Arc<Site>, id: u64, renewal: Renewal) {
        let lane = lane(site, &renewal.ticket.name);
        let batch = self.roomy.entry(lane).or_insert_with(|| Batch {
            site: Arc::clone(site),
            ids: Vec::new(),
            renewals: Vec::new(),
        });
        batch.ids.push(id);
        batch.renewals.push(renewal);
        if batch.ids.len() == BATCH {
            self.full.extend(self.roomy.remove(&lane));
        }
    }

    pub(crate) fn have_room(&self) -> bool {
        !self.roomy.is_empty()
    }

    /// There is a batch it could join.
    pub(crate) fn have_room_for(&self, site: &Arc<Site>, name: &Name) -> bool {
        self.roomy.contains_key(&lane(site, name))
    }

    pub(crate) fn all(mut self) -> Vec<Batch> {
        self.full.extend(self.roomy.into_values());
        self.full
    }
}
