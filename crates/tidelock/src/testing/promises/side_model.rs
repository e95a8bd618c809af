//! The order of a read-write lock against a model: requests at random to the bare store, one after the other.

use fastrand::Rng;

use crate::error::ErrorKind;
use crate::store::{Attempt, AttemptRequest, Backend, LockKind, Name, OwnerId, ReplicaAck, Ticket};
use crate::testing::fixture::{Fixture, unique};
use crate::types::OwnerMint;

/// One lock each. That of 20 has found a reader beside a writer in a store that compared it only with entries ahead of it.
const SEEDS: std::ops::Range<u64> = 18..24;
/// How many steps with each lock.
const STEPS: u32 = 40;
/// Bounds the waiters.
const MOST: usize = 5;

#[derive(Debug)]
struct Entry {
    ask: AttemptRequest,
    held: bool,
}

impl Entry {
    fn kind(&self) -> LockKind {
        self.ask.ticket.kind
    }

    fn owner(&self) -> &OwnerId {
        &self.ask.ticket.owner
    }

    fn reads(&self) -> bool {
        self.kind().shares_with(LockKind::Read)
    }
}

/// Holders and waiters. The waiters are in their order.
#[derive(Debug, Default)]
struct Model(Vec<Entry>);

impl Model {
    fn holders(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter().filter(|entry| entry.held)
    }

    /// Whether the waiter at this place may enter now.
    fn enters(&self, at: usize) -> bool {
        let waiter = &self.0[at];
        let mut ahead = self.0[..at].iter().filter(|entry| !entry.held);
        let mut holders = self.holders();
        if let Some(reader) = &waiter.ask.upgrade_of {
            return holders.all(|holder| holder.owner() == reader);
        }
        if !waiter.reads() {
            return ahead.next().is_none() && holders.next().is_none();
        }
        let shares = |other: &Entry| other.reads() && waiter.kind().shares_with(other.kind());
        ahead.all(shares) && holders.all(shares)
    }

    fn let_in(&mut self) {
        while let Some(at) = (0..self.0.len()).find(|at| !self.0[*at].held && self.enters(*at)) {
            self.0[at].held = true;
        }
    }

    /// One of the entries that fit.
    fn any(&self, dice: &mut Rng, fits: impl Fn(&Entry) -> bool) -> Option<usize> {
        let fitting: Vec<usize> = (0..self.0.len()).filter(|at| fits(&self.0[*at])).collect();
        (!fitting.is_empty()).then(|| fitting[dice.usize(..fitting.len())])
    }

    /// Whether the holders may hold together: readers, of which one may be upgradeable, or one writer beside the reader
    /// that it was.
    fn is_sound(&self) -> bool {
        let alone = |one: &Entry| {
            let mut others = self.holders().filter(|other| other.owner() != one.owner());
            others.all(|other| {
                let upgraded = |writer: &Entry, reader: &Entry| {
                    writer.ask.upgrade_of.as_ref() == Some(reader.owner())
                };
                one.kind().shares_with(other.kind()) || upgraded(one, other) || upgraded(other, one)
            })
        };
        self.holders().all(alone)
    }

    fn upgrade_of(&self, reader: &Entry) -> Option<&Entry> {
        let mut all = self.0.iter();
        all.find(|entry| entry.ask.upgrade_of.as_ref() == Some(reader.owner()))
    }
}

struct Ground<'a> {
    store: &'a dyn Backend,
    fixture: &'a Fixture,
    mint: OwnerMint,
    name: Name,
    model: Model,
}

impl Ground<'_> {
    fn ask(&self, kind: LockKind, reader: Option<&OwnerId>) -> AttemptRequest {
        let fresh = self.mint.fresh();
        let owner = match reader {
            Some(reader) => fresh.upgrading(reader),
            None if kind.is_upgradeable() => fresh.upgradeable(),
            None => fresh,
        };
        let name = self.name.clone();
        let lease = self.fixture.lease() * 60;
        AttemptRequest {
            patience: lease,
            upgrade_of: reader.cloned(),
            ..AttemptRequest::once(Ticket { kind, name, owner }, lease, ReplicaAck::Any)
        }
    }

    async fn attempt(&self, ask: &AttemptRequest) -> bool {
        let outcome = self.store.attempt(ask).await.outcome.expect("answered");
        matches!(outcome, Attempt::Acquired(_))
    }

    /// Whether the store lets it in. A writer that has outlived its reader does not ask any more.
    async fn holds(&self, entry: &Entry) -> bool {
        if let Some(reader) = &entry.ask.upgrade_of
            && self.model.0.iter().all(|other| other.owner() != reader)
        {
            let answer = self.store.attempt(&entry.ask).await.outcome;
            let error = answer.expect_err("its reader has left");
            assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
            return entry.held;
        }
        self.attempt(&entry.ask).await
    }

    async fn step(&mut self, dice: &mut Rng) {
        let waiting = self.model.0.iter().filter(|entry| !entry.held).count();
        match dice.u8(..8) {
            0..=2 if waiting < MOST => {
                let kinds = [
                    LockKind::Read,
                    LockKind::Read,
                    LockKind::UpgradeableRead,
                    LockKind::UpgradeableRead,
                    LockKind::Write,
                    LockKind::Fair,
                ];
                let ask = self.ask(kinds[dice.usize(..kinds.len())], None);
                self.model.0.push(Entry { ask, held: false });
            }
            3 | 4 => {
                let model = &self.model;
                let fits = |entry: &Entry| {
                    entry.held && entry.kind().is_upgradeable() && model.upgrade_of(entry).is_none()
                };
                if let Some(at) = model.any(dice, fits) {
                    let ask = self.ask(LockKind::Write, Some(model.0[at].owner()));
                    self.model.0.insert(0, Entry { ask, held: false });
                }
            }
            5 => {
                if let Some(at) = self.model.any(dice, |entry| !entry.held) {
                    let gone = self.model.0.remove(at);
                    let withdrawn = self.store.withdraw(&gone.ask.ticket).await;
                    withdrawn.expect("answered");
                }
            }
            _ => self.release(dice).await,
        }
        self.settle(dice).await;
    }

    /// The reader of an upgrade that waits is not released: the upgrade would be lost.
    async fn release(&mut self, dice: &mut Rng) {
        let model = &self.model;
        let fits =
            |entry: &Entry| entry.held && model.upgrade_of(entry).is_none_or(|writer| writer.held);
        if let Some(at) = model.any(dice, fits) {
            let gone = self.model.0.remove(at);
            let released = self.store.release(&gone.ask.ticket).await;
            released.expect("answered");
        }
    }

    /// All waiters ask, in any order. The store lets in those that the model lets in.
    async fn settle(&mut self, dice: &mut Rng) {
        let waiting = self.model.0.iter().filter(|entry| !entry.held);
        let mut waiting: Vec<AttemptRequest> = waiting.map(|entry| entry.ask.clone()).collect();
        dice.shuffle(&mut waiting);
        for ask in waiting {
            let entered = self.attempt(&ask).await;
            if entered && ask.ticket.kind.is_upgradeable() && dice.bool() {
                self.upgrade_at_once(&ask.ticket.owner, dice).await;
                break;
            }
        }
        self.model.let_in();
        for entry in &self.model.0 {
            let held = self.holds(entry).await;
            assert_eq!(held, entry.held, "{:?} in {:#?}", entry.owner(), self.model);
        }
    }

    /// The upgrade of a reader that has just entered asks before waiters that may enter have asked again. Some stores have
    /// let them in all the same, and others have not. We go by the answers, and check that those inside may be there together.
    async fn upgrade_at_once(&mut self, reader: &OwnerId, dice: &mut Rng) {
        let ask = self.ask(LockKind::Write, Some(reader));
        let held = self.attempt(&ask).await;
        self.model.0.insert(0, Entry { ask, held });
        let mut order: Vec<usize> = (0..self.model.0.len()).collect();
        dice.shuffle(&mut order);
        loop {
            let mut changed = false;
            for at in &order {
                let held = self.holds(&self.model.0[*at]).await;
                changed |= held != self.model.0[*at].held;
                self.model.0[*at].held = held;
                assert!(self.model.is_sound(), "{:#?}", self.model);
            }
            if !changed {
                return;
            }
        }
    }
}

/// Readers, upgradeable readers, their upgrades, writers and waiters for the fair lock come and go at random.
///
/// # Panics
/// If the store lets in another one than the model, or keeps out one that the model lets in.
pub async fn requests_at_random_are_served_as_in_the_model(fixture: &Fixture) {
    let bare = fixture.bare().await;
    for seed in SEEDS {
        let mut ground = Ground {
            store: &*bare.store.front,
            fixture,
            mint: OwnerMint::new(),
            name: Name::new(unique("prices")).expect("a good name"),
            model: Model::default(),
        };
        let mut dice = Rng::with_seed(seed);
        for _ in 0..STEPS {
            ground.step(&mut dice).await;
        }
        while !ground.model.0.is_empty() {
            let left = ground.model.0.len();
            ground.release(&mut dice).await;
            assert!(
                ground.model.0.len() < left,
                "nobody holds: {:#?}",
                ground.model
            );
            ground.settle(&mut dice).await;
        }
    }
}
