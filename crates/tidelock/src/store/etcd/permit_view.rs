//! The holders and waiters of a semaphore, from all its keys, and whose turn it is.
//!
//! The order is that of `permit_order.rs`: a waiter gets its permits when they are available together with those that are
//! wanted ahead of it.

use crate::error::{Error, ErrorKind, Result};
use crate::store::OwnerId;
use crate::store::etcd::api::{KeyValue, TxnResponse};
use crate::store::etcd::calls::found;
use crate::store::etcd::errors::unexpected;
use crate::store::etcd::permit_keys::PermitKeys;
use crate::store::etcd::queue::now;
use crate::store::etcd::restored::is_left_over;
use crate::store::etcd::watched::WatchRange;
use crate::store::permit_order::{PermitTurn, decide};

/// A holder of permits, or a waiter for some.
#[derive(Debug)]
pub(crate) struct PermitEntry {
    pub(crate) key: Vec<u8>,
    pub(crate) owner: String,
    pub(crate) permits: u16,
    /// The creation revision of its key. A waiter that is granted permits gets a new key.
    pub(crate) revision: i64,
    pub(crate) lease: i64,
}

impl PermitEntry {
    /// The id of its first permit. Operators see it as the owner.
    pub(crate) fn shown_owner(&self) -> String {
        OwnerId::of_text(&self.owner).permit_id(0)
    }
}

/// All keys of a semaphore, as they were at one revision.
#[derive(Debug)]
pub(crate) struct PermitView {
    /// How many permits there are. `None`: the semaphore has no number yet.
    pub(crate) total: Option<i64>,
    /// The revision of the last change of that number. 0: it has none.
    pub(crate) numbered: i64,
    /// The name has no number, but a queue of a lock.
    pub(crate) is_lock: bool,
    pub(crate) holders: Vec<PermitEntry>,
    /// In the order of their arrival.
    pub(crate) waiters: Vec<PermitEntry>,
    /// The store's revision.
    pub(crate) revision: i64,
}

impl PermitView {
    /// Reads the answer to a transaction that ends with [`PermitKeys::looks`].
    pub(crate) fn of(keys: &PermitKeys, answer: &TxnResponse) -> Result<Self> {
        let ranges = answer.responses.len().checked_sub(PermitKeys::LOOKS);
        let ranges = ranges.and_then(|at| answer.responses.get(at..));
        let lacks = || unexpected("the reply lacks the keys of the semaphore");
        let range = |n: usize| {
            let range = ranges.and_then(|ranges| found(ranges.get(n)));
            range.ok_or_else(lacks)
        };
        let number = range(0)?.kvs.first();
        let all = &range(2)?.kvs;
        let entries = |held: bool| {
            let entries = all.iter().filter_map(|kv| entry(keys, kv));
            let entries = entries.filter(move |(_, is_held)| *is_held == held);
            entries.map(|(entry, _)| entry)
        };
        let mut waiters: Vec<_> = entries(false).collect();
        waiters.sort_by_key(|waiter| waiter.revision);
        Ok(Self {
            total: number.map(total).transpose()?,
            numbered: number.map_or(0, |number| number.mod_revision),
            is_lock: number.is_none() && !range(1)?.kvs.is_empty(),
            holders: entries(true).collect(),
            waiters,
            revision: now(answer),
        })
    }

    /// How many permits are held.
    pub(crate) fn held(&self) -> i64 {
        let held = self.holders.iter().map(|holder| i64::from(holder.permits));
        held.sum()
    }

    /// The place of this ticket among the waiters.
    pub(crate) fn place(&self, keys: &PermitKeys) -> Option<&PermitEntry> {
        { self.waiters.iter() }.find(|waiter| waiter.key == keys.waiting())
    }

    /// Whether a holder or a waiter has one of the keys of this ticket.
    pub(crate) fn has_key_of(&self, keys: &PermitKeys) -> bool {
        let holds = |holder: &PermitEntry| holder.key == keys.held.as_bytes();
        self.place(keys).is_some() || self.holders.iter().any(holds)
    }

    /// Whether a key of an earlier ticket of this client has the name of one of this ticket's keys.
    pub(crate) fn has_left_over(&self, keys: &PermitKeys, owner: &OwnerId) -> bool {
        let mut holders = self.holders.iter();
        let held = holders.find(|holder| holder.key == keys.held.as_bytes());
        let mut own = held.into_iter().chain(self.place(keys));
        own.any(|entry| is_left_over(&entry.owner, owner))
    }

    /// How this ticket stands: a waiter at its place, any other behind all waiters. Also the waiter directly ahead that it
    /// waits for.
    pub(crate) fn turn(&self, keys: &PermitKeys) -> (PermitTurn, Option<&PermitEntry>) {
        let ahead = { self.waiters.iter() }.take_while(|waiter| waiter.key != keys.waiting());
        let ahead: Vec<_> = ahead.collect();
        let wanted = ahead.iter().map(|waiter| waiter.permits);
        let wanted = wanted.chain([keys.permits]);
        let turns = decide(self.total.unwrap_or(0), self.held(), wanted);
        let own = turns.last().copied().unwrap_or(PermitTurn::PassedOver);
        let mut ahead = ahead.into_iter().zip(turns);
        let before = ahead.rfind(|(_, turn)| *turn != PermitTurn::PassedOver);
        (own, before.map(|(waiter, _)| waiter))
    }

    /// What this waiter watches: the number of all permits, and the waiter directly ahead of it. The first waiter watches
    /// all holders instead.
    pub(crate) fn watched_by(&self, keys: &PermitKeys) -> Vec<WatchRange> {
        let number = WatchRange::until_changed(keys.number().as_bytes(), self.total.is_some());
        let other = match self.turn(keys) {
            (PermitTurn::PassedOver, _) => None,
            (_, Some(before)) => Some(WatchRange::until_deleted(&before.key)),
            (_, None) => {
                let count = self.holders.len();
                Some(WatchRange::until_one_is_deleted(keys.holders(), count))
            }
        };
        [number].into_iter().chain(other).collect()
    }
}

/// The holder or waiter with this key, and whether it holds. `None`: it is another kind of key.
fn entry(keys: &PermitKeys, kv: &KeyValue) -> Option<(PermitEntry, bool)> {
    let (permits, is_held) = keys.folder().permits(&kv.key)?;
    let entry = PermitEntry {
        key: kv.key.clone(),
        owner: String::from_utf8_lossy(&kv.value).into_owned(),
        permits,
        revision: kv.create_revision,
        lease: kv.lease,
    };
    Some((entry, is_held))
}

/// The number of permits that stands in this key.
fn total(number: &KeyValue) -> Result<i64> {
    let text = std::str::from_utf8(&number.value).ok();
    let total = text.and_then(|text| text.parse().ok());
    total.ok_or_else(|| {
        Error::new(ErrorKind::WrongType)
            .because("the key that should have the number of permits has no number")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Name;
    use crate::store::etcd::keys::Keys;

    /// A spare lease may have named a key of an earlier ticket, and its id is that of the next ticket.
    #[test]
    fn a_view_tells_whether_it_has_a_key_of_the_ticket() {
        let name = Name::new("render").unwrap();
        let keys = |id| PermitKeys::named(&Keys::new(""), &name, 2, id);
        let entry = |key: &str| PermitEntry {
            key: key.as_bytes().to_vec(),
            owner: "earlier:1".to_owned(),
            permits: 2,
            revision: 3,
            lease: 7,
        };
        let view = |holders, waiters| PermitView {
            total: Some(5),
            numbered: 2,
            is_lock: false,
            holders,
            waiters,
            revision: 4,
        };
        let (own, other) = (keys(7), keys(8));
        let holds = view(vec![entry(&own.held)], Vec::new());
        let waits = view(Vec::new(), vec![entry(&own.waiting)]);
        for (seen, is_placed) in [(holds, false), (waits, true)] {
            assert!(seen.has_key_of(&own) && !seen.has_key_of(&other));
            assert_eq!(seen.place(&own).is_some(), is_placed);
            assert!(seen.place(&other).is_none());
        }
    }
}
