//! The future of a downgrade: a writer becomes a reader, and no other writer gets the lock in between. The other way is in
//! [`upgrade`](crate::upgrade).

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::engine::acquire::acquisition::Acquisition;
use crate::engine::acquire::context::LockContext;
use crate::engine::acquire::request::AcquireRequest;
use crate::engine::lease::hold::Hold;
use crate::error::{Error, ErrorKind, Result};
use crate::fenced::LockGuard;
use crate::guard::Guard;
use crate::options::AcquireOptions;
#[cfg(doc)]
use crate::read_write::ReadWriteLock;
use crate::release::Release;
use crate::store::{LockKind, Name};

/// Future of [`ReadWriteLock::downgrade`] and [`ReadWriteLock::downgrade_with`].
///
/// # Cancel safety
/// Dropped before it completes, it releases the lock as a dropped guard does: neither the write hold nor the read hold is
/// left.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let prices = client.read_write_lock("prices");
/// let writer = prices.write().acquire().await?;
/// let downgrade: tidelock::Downgrade = prices.downgrade(writer); // nothing is sent yet
/// let reader = downgrade.await?;
/// assert!(prices.read().try_acquire().await?.is_some());
/// # Ok(()) }
/// ```
#[must_use = "futures do nothing unless awaited; dropped, it releases the lock"]
pub struct Downgrade<G = Guard> {
    state: DowngradeState,
    gives: PhantomData<fn() -> G>,
}

enum DowngradeState {
    Refused(Option<Error>),
    /// The read hold is asked for. It is a hold of its own, so that each of the two is renewed, lost and released as any
    /// other: a lost reply is repeated, and a caller that leaves withdraws one and releases the other.
    Joins {
        reader: Acquisition,
        writer: Arc<Hold>,
    },
    /// Both holds are there. From here on the result is the reader, whatever the release of the writer answers: the
    /// store has seen no gap between the two.
    Leaves {
        reader: Option<Guard>,
        writer: Release,
    },
}

impl<G: LockGuard> Downgrade<G> {
    /// `name`: the lock that the writer must hold in the store of this context.
    pub(crate) fn of(
        context: &Arc<LockContext>,
        name: Result<Name>,
        writer: G,
        options: AcquireOptions,
        place: &'static Location<'static>,
    ) -> Self {
        let guard: Guard = writer.into();
        let begun = name.and_then(|name| {
            begin(context, &name, guard, options, place).map_err(|error| error.on_lock(&name))
        });
        Self {
            state: begun.unwrap_or_else(|error| DowngradeState::Refused(Some(error))),
            gives: PhantomData,
        }
    }
}

fn begin(
    context: &Arc<LockContext>,
    name: &Name,
    writer: Guard,
    options: AcquireOptions,
    place: &'static Location<'static>,
) -> Result<DowngradeState> {
    let refuse = |why: &'static str| Err(Error::new(ErrorKind::InvalidOptions).because(why));
    let ticket = writer.hold().granted().ticket.clone();
    let kind = match ticket.kind {
        LockKind::Write => LockKind::Read,
        LockKind::WriteFenced => LockKind::ReadFenced,
        _ => return refuse("only a guard of the write side can be downgraded"),
    };
    if ticket.name != *name || !Arc::ptr_eq(writer.hold().context.store(), &context.store) {
        return refuse("the guard is of another lock; downgrade it with the lock that gave it");
    }
    // Otherwise the other guard would keep the readers out, and its holder would take itself for a writer. From here on
    // the slot of the owner does not have the hold, so the owner cannot re-enter it meanwhile.
    let Some(hold) = Arc::into_inner(writer.0) else {
        return refuse(
            "its owner has another guard of the write lock; release that one before the downgrade",
        );
    };
    let writer = Arc::new(hold);
    let mut request = AcquireRequest::new(Arc::clone(context), kind, name.clone(), options, place)?;
    request.downgrade_of = Some(ticket.owner);
    Ok(DowngradeState::Joins {
        reader: Acquisition::of(Ok(request)),
        writer,
    })
}

impl<G: LockGuard> Future for Downgrade<G> {
    type Output = Result<G>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<G>> {
        let done = || Error::new(ErrorKind::NotHeld).because("the downgrade had ended");
        if let DowngradeState::Joins { reader, .. } = &mut self.state {
            let joined = ready!(Pin::new(reader).poll(cx));
            let joins = std::mem::replace(&mut self.state, DowngradeState::Refused(None));
            let DowngradeState::Joins { reader, writer } = joins else {
                return Poll::Ready(Err(done()));
            };
            let Some(hold) = joined? else {
                return Poll::Ready(Err(reader.not_free()));
            };
            // Its holder may have been told that others write. That the store knows better comes too late.
            if let Some(lost) = writer.status.refusal() {
                return Poll::Ready(Err(lost.on_lock(&writer.granted().ticket.name)));
            }
            let writer = Release::of_downgraded(writer, &hold);
            self.state = DowngradeState::Leaves {
                reader: Some(Guard::new(hold)),
                writer,
            };
        }
        match &mut self.state {
            DowngradeState::Leaves { reader, writer } => {
                let _ = ready!(Pin::new(writer).poll(cx));
                let reader = reader.take().ok_or_else(done);
                Poll::Ready(reader.and_then(G::from_guard))
            }
            DowngradeState::Refused(error) => Poll::Ready(Err(error.take().unwrap_or_else(done))),
            DowngradeState::Joins { .. } => Poll::Pending,
        }
    }
}

impl<G> fmt::Debug for Downgrade<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Downgrade").finish_non_exhaustive()
    }
}
