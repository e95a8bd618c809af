//! Bonds: something in the store that a hold depends on besides its lease, such as a session.

use crate::engine::runtime::sync::atomic::{AtomicBool, Ordering};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::engine::runtime::clock::BootInstant;
use crate::engine::runtime::event::Event;
use crate::engine::runtime::sync::Mutex;
use crate::types::Drift;

/// Something in the store whose end also ends the hold, such as a session. The server ends a session from which it has
/// heard nothing for a time. A lock with a longer lease is proved only while the session is proved.
#[derive(Clone)]
pub struct Bond(Arc<BondKind>);

enum BondKind {
    One {
        span: Duration,
        last_confirmed: Box<dyn Fn() -> BootInstant + Send + Sync>,
        connected: Box<dyn Fn() -> bool + Send + Sync>,
        severed: AtomicBool,
        /// Notified when this bond is severed: one for each status that depends on it.
        listeners: Mutex<Vec<Weak<Event>>>,
    },
    /// At least `needed` of `bonds` must last.
    Several { needed: usize, bonds: Vec<Bond> },
}

impl Bond {
    /// A bond that the store keeps for `span` after it has heard from this client. `last_confirmed` returns the time at which
    /// the client sent the last request that is known to have arrived. It is called often, also under a lock of the
    /// client: it must be quick and must not block, and its result must never decrease.
    pub fn new(
        span: Duration,
        last_confirmed: impl Fn() -> BootInstant + Send + Sync + 'static,
    ) -> Self {
        Self::suspendable(span, last_confirmed, || true)
    }

    /// As [`new`](Self::new), for something that can be disconnected. `connected` returns whether the store can hear
    /// from this client now. While it returns false, the state of the hold is [`Unsure`](crate::HoldState::Unsure). It
    /// too is called often.
    pub fn suspendable(
        span: Duration,
        last_confirmed: impl Fn() -> BootInstant + Send + Sync + 'static,
        connected: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(BondKind::One {
            span,
            last_confirmed: Box::new(last_confirmed),
            connected: Box::new(connected),
            severed: AtomicBool::new(false),
            listeners: Mutex::default(),
        }))
    }

    /// Ends the bond now, whatever was proved. It notifies the holders that depend on it at once.
    pub fn sever(&self) {
        if let BondKind::One {
            severed, listeners, ..
        } = &*self.0
        {
            severed.store(true, Ordering::SeqCst);
            let mut listeners = listeners.lock();
            let told = std::mem::take(&mut *listeners);
            drop(listeners);
            for event in told.iter().filter_map(Weak::upgrade) {
                event.notify();
            }
        }
    }

    /// Whether so many parts were severed that the rest is not enough.
    pub(crate) fn is_severed(&self) -> bool {
        match &*self.0 {
            BondKind::One { severed, .. } => severed.load(Ordering::SeqCst),
            BondKind::Several { needed, bonds } => {
                let whole = bonds.iter().filter(|bond| !bond.is_severed()).count();
                whole < *needed
            }
        }
    }

    /// Registers a listener for [`sever`](Self::sever). The caller must check [`is_severed`](Self::is_severed) after
    /// this call: a bond that was severed before does not notify.
    pub(crate) fn listen(&self, event: &Arc<Event>) {
        match &*self.0 {
            BondKind::One { listeners, .. } => {
                let mut listeners = listeners.lock();
                // We remove the dropped ones only when the list is full. Each registration then costs constant time on
                // average, and the list stays within about twice the number of listeners.
                if listeners.len() == listeners.capacity() {
                    listeners.retain(|event| event.strong_count() > 0);
                    let left = listeners.len();
                    listeners.reserve(left + 8);
                }
                listeners.push(Arc::downgrade(event));
            }
            BondKind::Several { bonds, .. } => bonds.iter().for_each(|bond| bond.listen(event)),
        }
    }

    /// A bond that lasts while at least `needed` of the parts last. A part without a bond always lasts. `None`: enough
    /// parts have no bond, so the whole needs none.
    pub(crate) fn of(needed: usize, parts: Vec<Option<Self>>) -> Option<Self> {
        let free = parts.iter().filter(|part| part.is_none()).count();
        let bonds: Vec<Self> = parts.into_iter().flatten().collect();
        let needed = needed.saturating_sub(free);
        (needed > 0).then(|| Self(Arc::new(BondKind::Several { needed, bonds })))
    }

    /// Until when the bond is proved. The instant 0 if it was severed.
    pub(crate) fn until(&self, drift: &Drift) -> BootInstant {
        match &*self.0 {
            BondKind::One { severed, .. } if severed.load(Ordering::SeqCst) => BootInstant(0),
            BondKind::One {
                span,
                last_confirmed,
                ..
            } => last_confirmed() + drift.proved(*span),
            BondKind::Several { needed, bonds } => {
                let mut each: Vec<BootInstant> =
                    bonds.iter().map(|bond| bond.until(drift)).collect();
                each.sort_unstable();
                // It ends when fewer than `needed` parts last, so with the `needed`-th of them, counted from the one
                // that lasts longest. With fewer parts than that nothing is proved.
                let at = each.len().checked_sub(*needed);
                at.map_or(BootInstant(0), |at| each[at])
            }
        }
    }
}

impl Bond {
    /// Whether enough parts are connected.
    pub(crate) fn is_connected(&self) -> bool {
        match &*self.0 {
            BondKind::One { connected, .. } => connected(),
            BondKind::Several { needed, bonds } => {
                bonds.iter().filter(|bond| bond.is_connected()).count() >= *needed
            }
        }
    }
}

impl fmt::Debug for Bond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            BondKind::One { span, .. } => f.debug_tuple("Bond").field(span).finish(),
            BondKind::Several { needed, bonds } => {
                f.debug_tuple("Bond").field(needed).field(bonds).finish()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Wake, Waker};

    use super::*;
    use crate::engine::runtime::event::EventListener;

    #[derive(Default)]
    struct Told(AtomicBool);

    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    fn bond(last_confirmed: u64) -> Bond {
        Bond::new(Duration::from_nanos(10), move || {
            BootInstant(last_confirmed)
        })
    }

    #[test]
    fn a_severed_bond_has_ended_and_is_reported() {
        let exact = Drift {
            share: 0.0,
            fixed: Duration::ZERO,
        };
        let (one, two) = (bond(5), bond(7));
        let both = Bond::of(2, vec![Some(one.clone()), Some(two.clone())]).unwrap();
        let either = Bond::of(1, vec![Some(one.clone()), Some(two)]).unwrap();
        let event = Arc::<Event>::default();
        both.listen(&event);
        for _ in 0..100 {
            one.listen(&Arc::default());
        }
        let told = Arc::<Told>::default();
        let waker = Waker::from(Arc::clone(&told));
        let mut listener = EventListener::new(&*event);
        let read = || both.is_severed().then_some(());
        let polled = listener.poll_until_some(&Context::from_waker(&waker), read);
        assert!(polled.is_pending() && !told.0.load(Ordering::SeqCst));
        one.sever();
        assert!(told.0.load(Ordering::SeqCst), "the holder is told");
        assert!(one.is_severed() && both.is_severed() && !either.is_severed());
        assert_eq!(both.until(&exact), BootInstant(0));
        assert_eq!(either.until(&exact), BootInstant(17));
    }

    #[test]
    fn several_last_as_long_as_enough_of_them_do() {
        let exact = Drift {
            share: 0.0,
            fixed: Duration::ZERO,
        };
        let until = |needed, parts| Bond::of(needed, parts).map(|bond: Bond| bond.until(&exact).0);
        assert_eq!(until(1, vec![Some(bond(5))]), Some(15));
        assert_eq!(
            until(3, vec![Some(bond(5)), Some(bond(7)), Some(bond(6))]),
            Some(15)
        );
        assert_eq!(
            until(2, vec![Some(bond(5)), Some(bond(7)), Some(bond(6))]),
            Some(16)
        );
        assert_eq!(until(2, vec![Some(bond(5)), None, Some(bond(6))]), Some(16));
        assert_eq!(until(2, vec![None, None, Some(bond(6))]), None);
        assert_eq!(until(2, vec![Some(bond(5))]), Some(0));
    }

    #[test]
    fn several_are_connected_when_enough_of_them_are() {
        let bond = |connected| {
            let last_confirmed = || BootInstant(5);
            Some(Bond::suspendable(
                Duration::ZERO,
                last_confirmed,
                move || connected,
            ))
        };
        let connected =
            |needed, parts| Bond::of(needed, parts).map(|bond: Bond| bond.is_connected());
        assert_eq!(connected(1, vec![bond(true)]), Some(true));
        assert_eq!(connected(2, vec![bond(true), bond(false)]), Some(false));
        assert_eq!(
            connected(2, vec![bond(true), bond(false), None]),
            Some(true)
        );
        assert_eq!(
            connected(3, vec![bond(true), bond(false), None]),
            Some(false)
        );
    }

    /// A connection may have one bond for all holds that ever depend on it.
    #[test]
    fn holds_that_have_ended_do_not_pile_up_as_listeners() {
        let session = bond(5);
        let kept = || match &*session.0 {
            BondKind::One { listeners, .. } => listeners.lock().len(),
            BondKind::Several { .. } => 0,
        };
        let held: Vec<Arc<Event>> = (0..100).map(|_| Arc::default()).collect();
        for event in &held {
            session.listen(event);
        }
        let mut most = kept();
        assert_eq!(most, held.len());
        for _ in 0..2000 {
            session.listen(&Arc::default());
            most = most.max(kept());
        }
        assert!(most <= held.len() * 3, "{most}");
    }
}
