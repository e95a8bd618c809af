//! Promises about single requests for an upgrade to the bare store.

use crate::error::ErrorKind;
use crate::store::{Attempt, AttemptRequest, Backend, LockKind, Name, OwnerId, ReplicaAck, Ticket};
use crate::testing::fixture::{Bare, Fixture, unique};
use crate::types::OwnerMint;

/// One lock in the bare store.
struct BareLock {
    bare: Bare,
    mint: OwnerMint,
    name: Name,
    lease: std::time::Duration,
}

impl BareLock {
    async fn new(fixture: &Fixture) -> Self {
        Self {
            bare: fixture.bare().await,
            mint: OwnerMint::new(),
            name: Name::new(unique("prices")).expect("a good name"),
            lease: fixture.lease() * 60,
        }
    }

    fn store(&self) -> &dyn Backend {
        &*self.bare.store.front
    }

    /// A request of a caller that waits.
    fn ask(&self, kind: LockKind) -> AttemptRequest {
        let fresh = self.mint.fresh();
        let owner = if kind.is_upgradeable() {
            fresh.upgradeable()
        } else {
            fresh
        };
        self.ask_as(kind, owner)
    }

    fn ask_as(&self, kind: LockKind, owner: OwnerId) -> AttemptRequest {
        let name = self.name.clone();
        AttemptRequest {
            patience: self.lease,
            ..AttemptRequest::once(Ticket { kind, name, owner }, self.lease, ReplicaAck::Any)
        }
    }

    fn upgrade(&self, reader: &AttemptRequest) -> AttemptRequest {
        let reader = &reader.ticket.owner;
        AttemptRequest {
            upgrade_of: Some(reader.clone()),
            ..self.ask_as(LockKind::Write, self.mint.fresh().upgrading(reader))
        }
    }

    async fn enters(&self, ask: &AttemptRequest) -> bool {
        let outcome = self.store().attempt(ask).await.outcome.expect("answered");
        matches!(outcome, Attempt::Acquired(_))
    }

    async fn release(&self, ask: &AttemptRequest) {
        let released = self.store().release(&ask.ticket).await;
        released.expect("answered");
    }
}

/// A reader that waited first may ask again after an upgradeable one that came later has entered. Either it has entered
/// before the upgrade, which then waits, or it waits for the writer.
pub async fn a_reader_that_came_first_does_not_enter_beside_an_upgraded_writer(fixture: &Fixture) {
    let lock = BareLock::new(fixture).await;
    let first = lock.ask(LockKind::Write);
    let (reader, held) = (
        lock.ask(LockKind::Read),
        lock.ask(LockKind::UpgradeableRead),
    );
    assert!(lock.enters(&first).await, "it is free");
    assert!(!lock.enters(&reader).await && !lock.enters(&held).await);
    lock.release(&first).await;
    assert!(lock.enters(&held).await, "readers are ahead");
    let upgrade = lock.upgrade(&held);
    let inside = [lock.enters(&upgrade).await, lock.enters(&reader).await];
    let (gone, next) = match inside {
        [true, false] => (&upgrade, &reader),
        [false, true] => (&reader, &upgrade),
        both => panic!("the upgrade and the reader are inside: {both:?}"),
    };
    lock.release(gone).await;
    assert!(lock.enters(next).await, "nothing keeps it out");
    lock.release(next).await;
    lock.release(&held).await;
}

/// A waiter that had lost its place asks for the first one. It does not get ahead of the upgrade: that one waits for nobody
/// but the holders, and the other one would wait for its reader.
pub async fn nobody_gets_ahead_of_a_waiting_upgrade(fixture: &Fixture) {
    let lock = BareLock::new(fixture).await;
    for kind in [
        LockKind::Write,
        LockKind::Fair,
        LockKind::Read,
        LockKind::UpgradeableRead,
    ] {
        let (held, reader) = (
            lock.ask(LockKind::UpgradeableRead),
            lock.ask(LockKind::Read),
        );
        assert!(lock.enters(&held).await && lock.enters(&reader).await);
        let upgrade = lock.upgrade(&held);
        assert!(!lock.enters(&upgrade).await, "a reader is inside");
        let late = AttemptRequest {
            armed_by: Some(0),
            ..lock.ask(kind)
        };
        assert!(!lock.enters(&late).await, "an upgrade waits");
        lock.release(&reader).await;
        assert!(!lock.enters(&late).await, "an upgrade waits");
        assert!(lock.enters(&upgrade).await, "{kind:?} keeps it out");
        assert!(!lock.enters(&late).await, "it writes");
        lock.release(&upgrade).await;
        lock.release(&held).await;
        assert!(lock.enters(&late).await, "{kind:?} is next");
        lock.release(&late).await;
    }
}

/// All holders are removed by force while an upgrade waits. Its reader is gone, so it is not granted, whether another one has
/// had the lock since or not, and it keeps nobody out.
pub async fn an_upgrade_whose_reader_was_removed_is_never_granted(fixture: &Fixture) {
    let lock = BareLock::new(fixture).await;
    for between in [None, Some(LockKind::Mutex), Some(LockKind::UpgradeableRead)] {
        let (held, reader) = (
            lock.ask(LockKind::UpgradeableRead),
            lock.ask(LockKind::Read),
        );
        assert!(lock.enters(&held).await && lock.enters(&reader).await);
        let upgrade = lock.upgrade(&held);
        assert!(!lock.enters(&upgrade).await, "a reader is inside");
        let freed = lock.store().force_release(&lock.name, None).await;
        assert!(freed.expect("answered"), "it was held");
        if let Some(between) = between {
            let other = lock.ask(between);
            assert!(lock.enters(&other).await, "{between:?}: it is free");
            lock.release(&other).await;
        }
        for _ in 0..2 {
            let answer = lock.store().attempt(&upgrade).await.outcome;
            let error = answer.expect_err("its reader is gone");
            assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        }
        let next = lock.ask(LockKind::Write);
        assert!(lock.enters(&next).await, "the upgrade is gone");
        lock.release(&next).await;
    }
}
