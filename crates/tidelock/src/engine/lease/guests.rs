//! Guests: the holds of sets at the clients of their members.
//!
//! A set belongs to the client that made it, and its holds are in the lease table of that client. The clients of the other
//! members are its hosts: each of them lists such a hold as a guest, and an attempt in flight that may become one. The
//! algorithm of a host that closes:
//!
//! 1. It waits for its guests as for its own holds, within the same grace period. No attempt begins from then on.
//! 2. Each guest is lost then, and the client that made the set releases it. This holds for a majority too: the hold may have
//!    only just enough votes, and renewals would go on at a store that is closed.
//! 3. The host waits for those releases, and closes its store after that. In the other order the server could give the
//!    lock to another client, for example with the end of a session, before the holder hears of the loss.
//!
//! Invariants:
//! 1. A guest lives in the ticket of an attempt in flight, in the lease entry of its hold, and in its release or
//!    withdrawal. So it goes with the refusal, with the loss, or when the release is answered.
//! 2. A host that closes misses no attempt and no hold: we enter the list before we check whether the host is closed, and
//!    it is marked as closed before it reads its list. A hold enters again with its entry: the host may have found a
//!    guest without one, which it could not end.
//!
//! Lock order: the lock of the list is the last one to take. We drop no guest under it: the drop wakes tasks.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use crate::engine::runtime::event::{Event, Flag};
use crate::engine::runtime::sync::Mutex;
use crate::error::{Error, ErrorKind, Result};

/// The lock and the client that a guest belongs to. They lie above the guest, which knows them only by this trait.
pub(crate) trait GuestContext: Send + Sync {
    /// A client that the hold needs has closed: reports the loss and releases the lock, as this client does when it closes
    /// itself. `entry`: its id in the lease table. False: the hold has ended.
    fn end_by_close(&self, entry: u64) -> bool;
}

/// The guests of one client.
#[derive(Debug)]
pub(crate) struct Guests {
    list: Mutex<Vec<Weak<Guest>>>,
    /// Notified when a guest has gone.
    left: Event,
    /// Set when the client closes.
    closed: Arc<Flag>,
}

/// The clients of the members of a set, without the one that made the set.
pub(crate) type SetHosts = Vec<Arc<Guests>>;

/// A hold of a set, or an attempt in flight that may become one.
pub(crate) struct Guest {
    hosts: SetHosts,
    /// Weak, because the lease table of that client has this value.
    context: Weak<dyn GuestContext>,
    /// The id of its entry in the lease table, once it has one.
    entry: OnceLock<u64>,
}

impl Guests {
    pub(crate) fn new(closed: &Arc<Flag>) -> Arc<Self> {
        Arc::new(Self {
            list: Mutex::default(),
            left: Event::default(),
            closed: Arc::clone(closed),
        })
    }

    fn enter(&self, guest: &Arc<Guest>) {
        let mut list = self.list.lock();
        // We remove those that have gone only when the list is full, so each entry costs constant time on average.
        if list.len() == list.capacity() {
            list.retain(|guest| guest.strong_count() > 0);
            let left = list.len();
            list.reserve(left + 8);
        }
        list.push(Arc::downgrade(guest));
    }

    /// Resolves when no guest is left.
    pub(crate) async fn gone(&self) {
        let is_gone = || {
            let list = self.list.lock();
            list.iter().all(|guest| guest.strong_count() == 0)
        };
        self.left.until(is_gone).await;
    }

    /// The grace period of the client has ended: its guests are lost, and are released. Returns how many were still held.
    pub(crate) fn end(&self) -> usize {
        let list = self.list.lock().clone();
        let guests: Vec<Arc<Guest>> = list.iter().filter_map(Weak::upgrade).collect();
        guests.iter().filter(|guest| guest.end()).count()
    }
}

impl Guest {
    pub(crate) fn new<C: GuestContext + 'static>(of: &SetHosts, context: &Arc<C>) -> Arc<Self> {
        Arc::new(Self {
            hosts: of.clone(),
            context: Arc::downgrade(context) as _,
            entry: OnceLock::new(),
        })
    }

    /// Enters the lists of the hosts again, as a hold. Call it after the hold has that entry in the lease table.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    pub(crate) fn holds(self: &Arc<Self>, entry: u64) -> Result<()> {
        self.entry.get_or_init(|| entry);
        self.enter()
    }

    /// Enters the lists of the hosts. Call it before the attempt is sent.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] if one of them is closed: it may not have seen this guest.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<()> {
        for host in &self.hosts {
            host.enter(self);
            if host.closed.is_set() {
                return Err(Error::new(ErrorKind::Closed));
            }
        }
        Ok(())
    }

    /// False: the hold has ended, or there is none yet.
    fn end(&self) -> bool {
        let context = self.context.upgrade().zip(self.entry.get());
        context.is_some_and(|(context, entry)| context.end_by_close(*entry))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        for host in &self.hosts {
            host.left.notify();
        }
    }
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guest").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    struct Holder;

    impl GuestContext for Holder {
        fn end_by_close(&self, _: u64) -> bool {
            true
        }
    }

    #[test]
    fn a_list_names_the_guests_that_live_and_little_else() {
        let (hosts, holder) = (vec![Guests::new(&Arc::default())], Arc::new(Holder));
        let host = &hosts[0];
        let enter = || {
            let guest = Guest::new(&hosts, &holder);
            guest.holds(1).unwrap();
            guest
        };
        // One that leaves costs nothing before the list is full.
        for _ in 0..3 {
            drop(enter());
        }
        assert_eq!(host.list.lock().len(), 3);
        let mut living = Vec::new();
        for _ in 0..100 {
            living.push(enter());
            for _ in 0..10 {
                drop(enter());
            }
        }
        assert_eq!(host.end(), living.len());
        let places = host.list.lock().capacity();
        assert!(places <= 4 * living.len() + 16, "{places}");
        assert!(host.gone().now_or_never().is_none());
        drop(living);
        assert!(host.gone().now_or_never().is_some());
    }
}
