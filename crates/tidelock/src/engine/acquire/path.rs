//! A running acquisition: it waits in a local queue, or asks the store.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::engine::acquire::attempt_loop::AcquireLoop;
use crate::engine::lease::hold::Hold;
use crate::engine::local_queue::leader::Leader;
use crate::engine::local_queue::waiter::{Notification, WaiterFuture};
use crate::error::Result;
use crate::store::BoxFuture;

pub(crate) type AcquireResult = Result<Option<Arc<Hold>>>;

/// A running acquisition.
pub(crate) enum AcquirePath {
    /// Runs the acquire loop.
    Asks(BoxFuture<'static, AcquireResult>),
    /// Waits in the local queue. Most waiters get a hold by hand-off, so this state has no future of the acquire loop:
    /// that future is large, and a lock may have many waiters.
    Waits(WaiterFuture),
}

impl AcquirePath {
    /// Asks the store: as a leader for the whole local queue, otherwise only for itself.
    pub(crate) fn ask(one: AcquireLoop, leader: Option<Leader>) -> Self {
        Self::Asks(Box::pin(async move { one.drive(leader).await }))
    }

    /// Waits in the local queue.
    pub(crate) fn wait(waiter: WaiterFuture) -> Self {
        match waiter.request().announce_wait() {
            Ok(()) => Self::Waits(waiter),
            Err(closed) => Self::Asks(Box::pin(ready(Err(closed)))),
        }
    }
}

impl Future for AcquirePath {
    type Output = AcquireResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<AcquireResult> {
        if let Self::Waits(waiter) = &mut *self {
            match std::task::ready!(Pin::new(&mut *waiter).poll(cx)) {
                Notification::Hold(hold) if hold.is_held() => {
                    let open = waiter.request().context.core.refuse_if_closed();
                    return Poll::Ready(open.map(|()| Some(hold)));
                }
                call => {
                    let (one, number) = (AcquireLoop::of(waiter), waiter.number());
                    *self = Self::Asks(Box::pin(one.come(call, number)));
                }
            }
        }
        match &mut *self {
            Self::Asks(rest) => rest.as_mut().poll(cx),
            Self::Waits(_) => Poll::Pending,
        }
    }
}
