//! What a hold depends on besides its lease.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::core::clock::Moment;
use crate::options::Drift;

/// Something of the store that a hold ends with, whatever lease was granted: a session, which the server ends when it has
/// heard nothing from it for a time. A lock with a longer lease is proved only for as long as the session is.
#[derive(Clone)]
pub struct Bond(Arc<Kind>);

enum Kind {
    One {
        span: Duration,
        heard: Box<dyn Fn() -> Moment + Send + Sync>,
        connected: Box<dyn Fn() -> bool + Send + Sync>,
    },
    /// So many of these are needed.
    Several { needed: usize, bonds: Vec<Bond> },
}

impl Bond {
    /// The store keeps it for that time after it has heard from this client. `heard` says when the last request was sent
    /// that is known to have arrived; it is asked often, so it must be quick, and must never go back.
    pub fn new(span: Duration, heard: impl Fn() -> Moment + Send + Sync + 'static) -> Self {
        Self::suspendable(span, heard, || true)
    }

    /// The same, of something that can be cut off: `connected` says whether the store would hear from this client now.
    /// While it would not, the holder is told to be unsure. It is asked often too.
    pub fn suspendable(
        span: Duration,
        heard: impl Fn() -> Moment + Send + Sync + 'static,
        connected: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Kind::One {
            span,
            heard: Box::new(heard),
            connected: Box::new(connected),
        }))
    }

    /// It lasts as long as so many of the parts do. Parts without a bond last for ever. `None`: so does the whole.
    pub(crate) fn of(needed: usize, parts: Vec<Option<Self>>) -> Option<Self> {
        let free = parts.iter().filter(|part| part.is_none()).count();
        let bonds: Vec<Self> = parts.into_iter().flatten().collect();
        let needed = needed.saturating_sub(free);
        (needed > 0).then(|| Self(Arc::new(Kind::Several { needed, bonds })))
    }

    /// Until when it is proved.
    pub(crate) fn until(&self, drift: &Drift) -> Moment {
        match &*self.0 {
            Kind::One { span, heard, .. } => heard() + drift.proved(*span),
            Kind::Several { needed, bonds } => {
                let mut each: Vec<Moment> = bonds.iter().map(|bond| bond.until(drift)).collect();
                each.sort_unstable();
                // The shortest of those that last longest; too few of them prove nothing.
                let at = each.len().checked_sub(*needed);
                at.map_or(Moment(0), |at| each[at])
            }
        }
    }
}

impl Bond {
    /// Enough of it is connected.
    pub(crate) fn is_connected(&self) -> bool {
        match &*self.0 {
            Kind::One { connected, .. } => connected(),
            Kind::Several { needed, bonds } => {
                bonds.iter().filter(|bond| bond.is_connected()).count() >= *needed
            }
        }
    }
}

impl fmt::Debug for Bond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::One { span, .. } => f.debug_tuple("Bond").field(span).finish(),
            Kind::Several { needed, bonds } => {
                f.debug_tuple("Bond").field(needed).field(bonds).finish()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bond(heard: u64) -> Bond {
        Bond::new(Duration::from_nanos(10), move || Moment(heard))
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
            let heard = || Moment(5);
            Some(Bond::suspendable(Duration::ZERO, heard, move || connected))
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
}
