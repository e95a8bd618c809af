//! The transactions that change a semaphore.
//!
//! A ticket enters the queue with a node, its claim. A grant writes data to that node, and checks two things that were read
//! before: the version of the number of permits, and that the claim has no data. That is enough. As long as the number is the
//! same, those ahead of a claim are counted as if they had their permits already, so nobody can take what its decision has
//! counted on, however late its grant arrives: those behind it left room for it in their own decisions. All other changes only
//! give permits back.
//!
//! A version says nothing of a number that somebody deleted and made again. So each number has a node under it with a random
//! name, its epoch, and every transaction checks that this node is there.

use crate::store::zookeeper::keys;
use crate::store::zookeeper::node_change::NodeChange;
use crate::store::zookeeper::permit_view::SemaphoreNumber;

/// The version of a node that nobody has written since it was created.
const UNWRITTEN: i32 = 0;

/// The nodes of a semaphore.
#[derive(Debug, Clone)]
pub(crate) struct PermitPaths {
    /// The node with the number of permits.
    pub(crate) number: String,
    /// The folder of the claims.
    pub(crate) claims: String,
}

impl PermitPaths {
    /// Which operation of a [grant](Self::grant) or a [change](Self::renumber) checks the epoch.
    pub(crate) const EPOCH: usize = 0;

    /// Which operation of a [grant](Self::grant) writes the claim.
    pub(crate) const OWN: usize = 2;

    pub(crate) fn claim(&self, node: &str) -> String {
        format!("{}/{node}", self.claims)
    }

    /// The path of the locks of this name.
    pub(crate) fn queue(&self) -> &str {
        self.number
            .strip_suffix(keys::NUMBER)
            .map_or(&*self.number, |queue| queue.trim_end_matches('/'))
    }

    fn epoch(&self, epoch: &str) -> String {
        format!("{}/{epoch}", self.number)
    }

    /// Gives the claim its permits. `note`: the data of a holder.
    pub(crate) fn grant(
        &self,
        number: &SemaphoreNumber,
        claim: &str,
        note: Vec<u8>,
    ) -> [NodeChange; 3] {
        let own = NodeChange::Set {
            path: self.claim(claim),
            data: note,
            version: UNWRITTEN,
        };
        let unchanged = NodeChange::Check {
            path: self.number.clone(),
            version: Some(number.version),
        };
        [self.is_of_epoch(number), unchanged, own]
    }

    fn is_of_epoch(&self, number: &SemaphoreNumber) -> NodeChange {
        NodeChange::Check {
            path: self.epoch(&number.epoch),
            version: None,
        }
    }

    /// Changes the number, if it is still the one that was read.
    pub(crate) fn renumber(&self, number: &SemaphoreNumber, total: i64) -> [NodeChange; 2] {
        let change = NodeChange::Set {
            path: self.number.clone(),
            data: SemaphoreNumber::written(total, &number.epoch).into_bytes(),
            version: number.version,
        };
        [self.is_of_epoch(number), change]
    }

    /// Makes the number, in the place of the node that excludes all locks of this name until then.
    pub(crate) fn first_number(&self, maker: &str, total: i64, epoch: &str) -> [NodeChange; 3] {
        let maker = NodeChange::Delete {
            path: format!("{}/{maker}", self.queue()),
            version: None,
        };
        let data = SemaphoreNumber::written(total, epoch).into_bytes();
        let [number, epoch] = [(self.number.clone(), data), (self.epoch(epoch), Vec::new())]
            .map(|(path, data)| NodeChange::Create { path, data });
        [maker, number, epoch]
    }
}

#[cfg(test)]
mod tests;
