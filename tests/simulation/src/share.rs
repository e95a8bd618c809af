//! Checks the holders of a lock that several may hold at once: readers, and those who have permits of a semaphore.

use std::rc::{Rc, Weak};

use tidelock::testing::AnyGuard;

/// How the holders of a lock share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// One holder at a time.
    Alone,
    /// With other readers.
    Reads,
    /// With nobody.
    Writes,
    /// With others, while there are enough permits for all.
    Permits { count: u32, total: u32 },
}

/// The holders of one lock, from their grant until they begin to give it up. Whether one of them still holds it is what its
/// own guard says.
#[derive(Debug, Default)]
pub(crate) struct Sharers(Vec<Sharer>);

#[derive(Debug)]
struct Sharer {
    who: String,
    share: Share,
    guard: Weak<AnyGuard>,
}

impl Sharer {
    fn holds(&self) -> bool {
        self.guard.upgrade().is_some_and(|guard| guard.is_held())
    }
}

impl Sharers {
    pub(crate) fn add(&mut self, who: &str, share: Share, guard: &Rc<AnyGuard>) {
        self.0.push(Sharer {
            who: who.to_owned(),
            share,
            guard: Rc::downgrade(guard),
        });
    }

    pub(crate) fn remove(&mut self, guard: &Rc<AnyGuard>) {
        let own = Rc::downgrade(guard);
        self.0.retain(|sharer| !sharer.guard.ptr_eq(&own));
    }

    /// What must not happen at the same time, if it does.
    pub(crate) fn conflict(&self) -> Option<String> {
        let held: Vec<&Sharer> = self.0.iter().filter(|one| one.holds()).collect();
        let writer = held.iter().find(|one| one.share == Share::Writes);
        if let Some(writer) = writer.filter(|_| held.len() > 1) {
            let who: Vec<&str> = held.iter().map(|one| &*one.who).collect();
            return Some(format!("{} writes beside {who:?}", writer.who));
        }
        let (mut taken, mut all) = (0, u32::MAX);
        for one in held {
            if let Share::Permits { count, total } = one.share {
                taken += count;
                all = total;
            }
        }
        (taken > all).then(|| format!("{taken} of {all} permits are held"))
    }
}
