//! Stores with a bug, to verify that the referee detects it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidelock::store::{
    Attempt, AttemptReply, AttemptRequest, Backend, BoxFuture, LockKind, MarkChange, Marks, Name,
    Released, Renewal, Renewed, Store, Ticket, ready,
};
use tidelock::testing::{Twist, Twisted};
use tidelock::{FencingToken, Result};

/// A bug that is put into the store, to verify that the referee detects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Every attempt is granted.
    LetsEverybodyIn,
    /// A withdrawal leaves no tombstone: a request that arrives after it takes effect.
    ForgetsWithdrawals,
    /// A lease ends sooner than the client was told.
    EndsEarly,
    /// A release frees the lock regardless of the owner.
    FreesForAnybody,
    /// A renewal is confirmed regardless of the owner.
    ConfirmsEverything,
    /// A fair lock is granted to any waiter that asks when it is free.
    ForgetsTheOrder,
    /// A slot that was marked as done has no mark.
    ForgetsMarks,
    /// Nobody sees the successor that a leader has named.
    ForgetsSuccessors,
    /// A mark is replaced whatever its text is: of two that replace it at the same time, both are told that they did.
    OverwritesMarks,
    /// Permits are granted, and one of them is counted.
    CountsOnePermit,
    /// Marks do not expire: candidates that have left stay listed. That is no violation, and must harm nobody.
    KeepsMarks,
}

/// Longer than any story.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// Puts the bug into the store.
pub(crate) fn with(store: Store, flaw: Option<Flaw>) -> Store {
    match flaw {
        None => store,
        Some(flaw) => {
            let inner = Arc::clone(&store.front);
            let broken = Broken(flaw, AtomicU64::default(), inner);
            Twisted::wrap(Store::single(store.front), broken)
        }
    }
}

#[derive(Debug)]
struct Broken(
    Flaw,
    /// Grants so far: a fenced lock needs a token with each.
    AtomicU64,
    /// The store without the bug.
    Arc<dyn Backend>,
);

impl Broken {
    fn sound_marks(&self) -> Option<&dyn Marks> {
        self.2.extensions().marks
    }
}

impl Twist for Broken {
    fn marks<'a>(&'a self, inner: &'a dyn Backend) -> Option<&'a dyn Marks> {
        match self.0 {
            Flaw::ForgetsMarks
            | Flaw::ForgetsSuccessors
            | Flaw::KeepsMarks
            | Flaw::OverwritesMarks => Some(self),
            _ => inner.extensions().marks,
        }
    }

    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        match self.0 {
            Flaw::LetsEverybodyIn => {
                let number = self.1.fetch_add(1, Ordering::SeqCst) + 1;
                ready(Ok(Attempt::granted(FencingToken::new(number))).into())
            }
            Flaw::EndsEarly => Box::pin(async move {
                let mut short = ask.clone();
                short.lease = ask.lease.mul_f64(0.8);
                inner.attempt(&short).await
            }),
            Flaw::ForgetsTheOrder => Box::pin(async move {
                let mut plain = ask.clone();
                plain.ticket.kind = match ask.ticket.kind {
                    LockKind::Fair => LockKind::Mutex,
                    LockKind::FairFenced => LockKind::Fenced,
                    other => other,
                };
                inner.attempt(&plain).await
            }),
            Flaw::CountsOnePermit => Box::pin(async move {
                let mut one = ask.clone();
                if let LockKind::Permits(_) = ask.ticket.kind {
                    one.ticket.kind = LockKind::Permits(1);
                }
                inner.attempt(&one).await
            }),
            _ => inner.attempt(ask),
        }
    }

    fn renew<'a>(
        &'a self,
        inner: &'a dyn Backend,
        batch: &'a [Renewal],
    ) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        Box::pin(async move {
            let answers = inner.renew(batch).await?;
            Ok(match self.0 {
                Flaw::ConfirmsEverything => batch.iter().map(|_| Renewed::Kept).collect(),
                _ => answers,
            })
        })
    }

    fn release<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            if self.0 == Flaw::FreesForAnybody {
                inner.force_release(&ticket.name, None).await?;
                return Ok(Released::Freed);
            }
            inner.release(ticket).await
        })
    }

    fn withdraw<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        match self.0 {
            Flaw::ForgetsWithdrawals => inner.release(ticket),
            _ => inner.withdraw(ticket),
        }
    }
}

/// What is left of the sound marks. `ForgetsMarks` confirms every write and keeps none; its clock stands still, so all
/// calls belong to one slot.
impl Marks for Broken {
    fn now<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<SystemTime>> {
        match self.sound_marks() {
            Some(marks) if self.0 != Flaw::ForgetsMarks => marks.now(name),
            _ => ready(Ok(UNIX_EPOCH)),
        }
    }

    fn read<'a>(&'a self, name: &'a Name, slot: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        match self.sound_marks() {
            Some(marks) if self.0 != Flaw::ForgetsMarks => marks.read(name, slot),
            _ => ready(Ok(None)),
        }
    }

    fn replace<'a>(
        &'a self,
        name: &'a Name,
        change: MarkChange<'a>,
    ) -> BoxFuture<'a, Result<bool>> {
        let is_forgotten = match self.0 {
            Flaw::ForgetsMarks => true,
            Flaw::ForgetsSuccessors => change.slot == "successor",
            _ => false,
        };
        match self.sound_marks() {
            Some(marks) if self.0 == Flaw::OverwritesMarks => Box::pin(async move {
                let now = marks.read(name, change.slot).await?;
                let before = now.as_deref();
                marks.replace(name, MarkChange { before, ..change }).await
            }),
            // An election removes the mark of a candidate that leaves by an empty one.
            Some(_)
                if self.0 == Flaw::KeepsMarks
                    && change.after.is_empty()
                    && name.as_str().ends_with("%candidates") =>
            {
                ready(Ok(true))
            }
            Some(marks) if !is_forgotten => {
                let keep = if self.0 == Flaw::KeepsMarks {
                    FOR_EVER
                } else {
                    change.keep
                };
                marks.replace(name, MarkChange { keep, ..change })
            }
            _ => ready(Ok(true)),
        }
    }

    fn history<'a>(
        &'a self,
        name: &'a Name,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>> {
        match self.sound_marks() {
            Some(marks) if self.0 != Flaw::ForgetsMarks => marks.history(name, limit),
            _ => ready(Ok(Vec::new())),
        }
    }
}
