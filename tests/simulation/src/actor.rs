//! One task of a client. It acquires locks, holds them, and gives them up in every possible way.

use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use tidelock::testing::{AnyGuard, AnyLock};
use tidelock::{AcquireOptions, ErrorKind};
use tokio::time::{sleep, timeout};

use crate::referee::{Referee, Turn};
use crate::share::Share;

/// A lock, and how its holders share it.
#[derive(Debug, Clone)]
pub(crate) struct StoryLock {
    pub(crate) name: String,
    pub(crate) lock: AnyLock,
    pub(crate) share: Share,
}

impl StoryLock {
    pub(crate) fn new(name: &str, lock: impl Into<AnyLock>, share: Share) -> Self {
        Self {
            name: name.to_owned(),
            lock: lock.into(),
            share,
        }
    }

    /// One that has one holder at a time.
    pub(crate) fn alone(name: &str, lock: impl Into<AnyLock>) -> Self {
        Self::new(name, lock, Share::Alone)
    }
}

pub(crate) struct Actor {
    pub(crate) who: String,
    /// The number of its client, and how many there are.
    pub(crate) client: usize,
    pub(crate) clients: usize,
    /// The store answers all requests, so that a transfer must reach the candidate that was named.
    pub(crate) is_calm: bool,
    pub(crate) locks: Vec<StoryLock>,
    pub(crate) rounds: usize,
    pub(crate) lease: Duration,
    pub(crate) dice: Rng,
    pub(crate) referee: Rc<Referee>,
}

impl Actor {
    pub(crate) async fn live(mut self) {
        for _ in 0..self.rounds {
            let chosen = self.dice.usize(..self.locks.len());
            let StoryLock { name, lock, share } = self.locks[chosen].clone();
            self.pause(self.lease / 4).await;
            let is_election = matches!(lock, AnyLock::Election(..));
            if is_election {
                self.referee.campaigns(&name, self.client);
            }
            let taken = self.take(&name, &lock).await;
            if is_election && taken.is_some() {
                self.referee.elected(&name, self.client);
            }
            if is_election {
                self.referee.ends_campaign(&name, self.client);
            }
            let Some(guard) = taken else { continue };
            if share == Share::Alone {
                let turn = self.referee.granted(&name, &self.who, guard.token());
                if let Some(slot) = guard.slot() {
                    self.referee.begun(&name, &self.who, slot);
                }
                let held = self.hold(&name, Rc::new(guard), Some(turn)).await;
                self.give_up(&name, held, is_election).await;
            } else {
                let guard = Rc::new(guard);
                self.referee.shares(&name, &self.who, share, &guard);
                let held = self.hold(&name, guard, None).await;
                self.give_up(&name, held, false).await;
            }
        }
        self.referee.note(format_args!("{} is done", self.who));
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.dice.f64())
    }

    async fn pause(&mut self, most: Duration) {
        sleep(self.up_to(most)).await;
    }

    /// Acquires in one of all possible ways, or gives up. A caller that gives up must not hold the lock; the referee
    /// detects it otherwise.
    async fn take(&mut self, name: &str, lock: &AnyLock) -> Option<AnyGuard> {
        let mut options = AcquireOptions::new();
        let patience = self.up_to(self.lease * 3);
        if self.dice.u8(..100) < 20 {
            options = options.expires_after(self.lease / 3 + self.up_to(self.lease));
        }
        let answer = match self.dice.u8(..100) {
            0..20 => lock.try_acquire().await.transpose()?,
            20..45 => lock.acquire_with(options.wait(patience)).await,
            45..65 => {
                let left = timeout(patience, lock.acquire_with(options)).await;
                let Ok(answer) = left else {
                    self.referee
                        .note(format_args!("{} leaves {name}", self.who));
                    return None;
                };
                answer
            }
            _ => lock.acquire_with(options).await,
        };
        match answer {
            Ok(guard) => Some(guard),
            Err(error) => {
                // These errors are expected: an attempt fails when an outage lasts longer than a lease, even without a
                // wait limit, and the caller is expected to try again.
                let expected = [
                    ErrorKind::TimedOut,
                    ErrorKind::Unavailable,
                    ErrorKind::OutcomeUnknown,
                ];
                // The lock of a job may be lost between its grant and the mark of the attempt.
                let is_early_loss =
                    matches!(lock, AnyLock::Job(..)) && error.kind() == ErrorKind::Lost;
                if is_early_loss || expected.contains(&error.kind()) {
                    self.referee
                        .note(format_args!("{} has no {name}: {error}", self.who));
                } else {
                    self.referee
                        .blame(format!("{} could not ask for {name}: {error}", self.who));
                }
                None
            }
        }
    }

    fn act(&self, name: &str, turn: Option<Turn>) {
        match turn {
            Some(turn) => self.referee.act(name, &self.who, turn),
            None => self.referee.act_together(name),
        }
    }

    /// Holds the lock for a while, or until it is lost. `turn`: that of a holder that is alone.
    async fn hold(
        &mut self,
        name: &str,
        guard: Rc<AnyGuard>,
        turn: Option<Turn>,
    ) -> Option<AnyGuard> {
        let steps = if self.dice.u8(..100) < 5 { 20 } else { 6 };
        for _ in 0..self.dice.usize(..steps) {
            if !guard.is_held() {
                break;
            }
            self.act(name, turn);
            let step = self.up_to(self.lease / 2);
            if let Ok(reason) = timeout(step, guard.lost()).await {
                self.referee.lost(name, &self.who, reason);
                if guard.is_held() {
                    let why = format!("{} was told of a loss of {name} and holds it", self.who);
                    self.referee.blame(why);
                }
                break;
            }
            if guard.is_held() && self.dice.u8(..100) < 15 {
                // The answer may be lost, so an error is no failure. The guard's state afterwards is what counts.
                let extended = guard.extend(self.lease * 2).await;
                self.referee
                    .note(format_args!("{} extends {name}: {extended:?}", self.who));
            }
        }
        if guard.is_held() {
            self.act(name, turn);
        }
        self.referee.unshares(name, &guard);
        Rc::into_inner(guard)
    }

    async fn give_up(&mut self, name: &str, held: Option<AnyGuard>, is_election: bool) {
        let Some(guard) = held else {
            return self.referee.blame("a guard was kept".to_owned());
        };
        match self.dice.u8(..100) {
            0..25 => {
                self.referee.note(format_args!("{} drops {name}", self.who));
                drop(guard);
            }
            25..40 => {
                let patience = self.up_to(self.lease / 20);
                let left = timeout(patience, guard.release()).await.is_err();
                let word = if left {
                    "turns away from"
                } else {
                    "has released"
                };
                self.referee
                    .note(format_args!("{} {word} {name}", self.who));
            }
            40..70 if is_election => self.transfer(name, guard).await,
            _ => {
                let slot = guard.slot().map(str::to_owned);
                let released = guard.release().await;
                self.referee
                    .note(format_args!("{} releases {name}: {released:?}", self.who));
                if let Some(slot) = slot.filter(|_| released.is_ok()) {
                    self.referee.done(name, slot);
                }
            }
        }
    }

    /// Names a client at random. One that does not campaign cannot be named: then the leader resigns.
    async fn transfer(&mut self, name: &str, guard: AnyGuard) {
        let to = self.dice.usize(..self.clients);
        if self.is_calm && to != self.client {
            self.referee.names(name, to, self.lease / 3);
        }
        let transferred = guard.transfer_to(&to.to_string()).await;
        let failed = transferred.err();
        if failed.is_some() {
            self.referee.names_nobody(name);
        }
        let error = failed.as_ref().map(|(error, _)| error);
        self.referee.note(format_args!(
            "{} transfers {name} to {to}: {error:?}",
            self.who
        ));
        if let Some((_, Some(guard))) = failed {
            let released = guard.release().await;
            self.referee
                .note(format_args!("{} resigns {name}: {released:?}", self.who));
        }
    }
}
