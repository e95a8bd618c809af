//! Who holds one lock, and who waits for it with a place of its own.

use std::time::Duration;

use crate::backend::{Kind, Moment, OwnerId};

/// Places in the order in which they came. A mutex has a place only while it is held; those who wait for one wait elsewhere.
#[derive(Debug, Default)]
pub(super) struct Queue(Vec<Place>);

#[derive(Debug)]
pub(super) struct Place {
    pub(super) kind: Kind,
    pub(super) owner: OwnerId,
    /// When the lease ends; of one that waits, when nobody believes any more that it still does.
    pub(super) ends: Moment,
    /// `None`: it waits.
    pub(super) token: Option<u64>,
    /// How long the lock is to be nobody's if the hold ends by itself.
    pub(super) delay: Duration,
}

impl Queue {
    /// Without those whose time is up. Yields until when the lock is nobody's for their sake, if it is: from the end of a
    /// hold, not from when somebody looks.
    pub(super) fn tidy(&mut self, now: Moment) -> Option<Moment> {
        let ended = self.holders().filter(|place| place.ends <= now);
        let delayed = ended.filter(|place| !place.delay.is_zero());
        let until = delayed.map(|place| place.ends + place.delay).max();
        self.0.retain(|place| place.ends > now);
        until
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_held(&self) -> bool {
        self.holders().next().is_some()
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = &Place> {
        self.0.iter().filter(|place| place.token.is_some())
    }

    pub(super) fn waiters(&self) -> usize {
        self.0.len() - self.holders().count()
    }

    /// The place by which the owner holds the lock.
    pub(super) fn held_by(&mut self, owner: &OwnerId) -> Option<&mut Place> {
        let mut places = self.0.iter_mut();
        places.find(|place| place.owner == *owner && place.token.is_some())
    }

    /// When to ask again at the latest: when the first ends of those who stand in the owner's way. `None`: nobody does.
    pub(super) fn in_the_way(&self, owner: &OwnerId, kind: Kind) -> Option<Moment> {
        let before = self.0.iter().take_while(|place| place.owner != *owner);
        let ends = before.filter(|place| !kind.shares_with(place.kind));
        ends.map(|place| place.ends).min()
    }

    /// Gives the owner that place, or its own to what stands there.
    pub(super) fn put(&mut self, place: Place) {
        match self.0.iter_mut().find(|own| own.owner == place.owner) {
            Some(own) => *own = place,
            None => self.0.push(place),
        }
    }

    /// Ends what the owner has, if it has something. True: it held the lock.
    pub(super) fn remove(&mut self, owner: &OwnerId) -> Option<bool> {
        let at = self.0.iter().position(|place| place.owner == *owner)?;
        Some(self.0.remove(at).token.is_some())
    }

    /// Ends all that hold the lock. False: nobody did.
    pub(super) fn force(&mut self) -> bool {
        let held = self.is_held();
        self.0.retain(|place| place.token.is_none());
        held
    }

    /// Those who wait, and in whose way nobody stands: the first, or all readers up to the first that is none.
    pub(super) fn next(&self) -> impl Iterator<Item = &OwnerId> {
        let readers = self.0.iter().take_while(|place| place.kind == Kind::Read);
        let first = self.0.iter().take(readers.count().max(1));
        first
            .filter(|place| place.token.is_none())
            .map(|place| &place.owner)
    }
}
