//! The future of an upgrade: an upgradeable reader becomes a writer, and no other writer gets the lock in between. The
//! other way is in [`downgrade`](crate::downgrade).
//!
//! The writer is a second hold, which the store grants beside that of the reader. So an upgrade that ends without it, by a
//! timeout, a cancellation or a drop, only withdraws a ticket, and the reader reads on.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::engine::acquire::acquisition::Acquisition;
use crate::engine::acquire::context::LockContext;
use crate::engine::acquire::request::{AcquireRequest, AcquireResult};
use crate::engine::acquire::upgrade_claim::UpgradeClaim;
use crate::error::{Error, ErrorKind, Result};
use crate::fenced::LockGuard;
use crate::guard::Guard;
use crate::loss::Lost;
use crate::options::AcquireOptions;
#[cfg(doc)]
use crate::read_write::ReadWriteLock;
use crate::store::{LockKind, Name};

/// Future of [`ReadWriteLock::upgrade`] and [`ReadWriteLock::upgrade_with`].
///
/// # Cancel safety
/// Dropped before it completes, it leaves no write hold behind and lets new readers in again. The upgradeable guard stays
/// valid.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let prices = client.read_write_lock("prices");
/// let reader = prices.upgradeable_read().acquire().await?;
/// let upgrade: tidelock::Upgrade = prices.upgrade(&reader); // nothing is sent yet
/// let writer = upgrade.await?;
/// assert!(prices.read().try_acquire().await?.is_none());
/// writer.release().await?;
/// assert!(reader.is_held());
/// # Ok(()) }
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Upgrade<G = Guard> {
    state: UpgradeState,
    gives: PhantomData<fn() -> G>,
}

enum UpgradeState {
    /// The guard was refused. `None`: the future has completed.
    Done(Option<Error>),
    /// The guard writes already, so it needs no request.
    Writes(Guard),
    Asks {
        writer: Acquisition,
        lost: Lost,
        /// Keeps the upgradeable hold while the store is asked. Without it a guard that is released meanwhile would let
        /// another writer in.
        reader: Guard,
        /// The claim on the upgradeable hold ends with it.
        _caller: Arc<()>,
    },
}

impl<G: LockGuard> Upgrade<G> {
    /// `name`: the lock that the reader must hold in the store of this context.
    pub(crate) fn of(
        context: &Arc<LockContext>,
        name: Result<Name>,
        reader: &Guard,
        options: AcquireOptions,
        place: &'static Location<'static>,
    ) -> Self {
        let begun = name.and_then(|name| {
            begin(context, &name, reader, options, place).map_err(|error| error.on_lock(&name))
        });
        Self {
            state: begun.unwrap_or_else(|error| UpgradeState::Done(Some(error))),
            gives: PhantomData,
        }
    }
}

fn begin(
    context: &Arc<LockContext>,
    name: &Name,
    reader: &Guard,
    options: AcquireOptions,
    place: &'static Location<'static>,
) -> Result<UpgradeState> {
    let refuse = |why: &'static str| Err(Error::new(ErrorKind::InvalidOptions).because(why));
    let ticket = &reader.hold().granted().ticket;
    if ticket.name != *name || !Arc::ptr_eq(reader.hold().context.store(), &context.store) {
        return refuse("the guard is of another lock; upgrade it with the lock that gave it");
    }
    let kind = match ticket.kind {
        LockKind::UpgradeableRead => LockKind::Write,
        LockKind::UpgradeableReadFenced => LockKind::WriteFenced,
        // An owner that writes got this guard when it asked for an upgradeable read.
        kind if kind.is_write() => return Ok(UpgradeState::Writes(reader.reenter())),
        _ => {
            return refuse(
                "only a guard of the upgradeable read can be upgraded; two plain readers would wait for each other",
            );
        }
    };
    let mut request = AcquireRequest::new(Arc::clone(context), kind, name.clone(), options, place)?;
    let caller = Arc::new(());
    request.upgrade_of = Some(Box::new(UpgradeClaim::new(&reader.0, &caller)));
    Ok(UpgradeState::Asks {
        writer: Acquisition::of(Ok(request)),
        lost: reader.lost(),
        reader: reader.reenter(),
        _caller: caller,
    })
}

impl<G: LockGuard> Future for Upgrade<G> {
    type Output = Result<G>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<G>> {
        let result = match &mut self.state {
            UpgradeState::Done(error) => Err(error.take().unwrap_or_else(|| {
                Error::new(ErrorKind::NotHeld)
                    .because("the future was polled after it had completed")
            })),
            UpgradeState::Writes(writer) => match writer.hold().status.refusal() {
                Some(lost) => Err(lost.on_lock(writer.name())),
                None => Ok(writer.reenter()),
            },
            UpgradeState::Asks {
                writer,
                lost,
                reader,
                ..
            } => {
                // We check for the loss first. What the caller has read may be wrong by now, so a grant comes too late.
                let result = match Pin::new(lost).poll(cx) {
                    Poll::Ready(reason) => Err(Error::lost(reason).on_lock(reader.name())),
                    Poll::Pending => entered(ready!(Pin::new(&mut *writer).poll(cx)), writer),
                };
                // The store does not find the reader. Otherwise the guard would say that it is held until its next renewal.
                if let Some(reason) = result.as_ref().err().and_then(Error::lost_reason) {
                    reader.hold().status.lose(reason);
                }
                // The status may have changed since, and the event comes a moment later.
                match reader.hold().status.refusal() {
                    Some(lost) if result.is_ok() => Err(lost.on_lock(reader.name())),
                    _ => result,
                }
            }
        };
        self.state = UpgradeState::Done(None);
        Poll::Ready(result.and_then(G::from_guard))
    }
}

/// The result of the acquisition, as that of an upgrade.
fn entered(result: AcquireResult, writer: &Acquisition) -> Result<Guard> {
    result?.map(Guard::new).ok_or_else(|| writer.not_free())
}

impl<G> fmt::Debug for Upgrade<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgrade").finish_non_exhaustive()
    }
}
