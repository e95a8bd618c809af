//! A running acquisition: it waits in a local queue, or asks the store.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::backend::BoxFuture;
use crate::core::drive::Loop;
use crate::core::hold::Hold;
use crate::core::lead::Lead;
use crate::core::seat::{Call, Place};
use crate::error::Result;

pub(super) type Outcome = Result<Option<Arc<Hold>>>;

/// A running acquisition.
pub(super) enum Entering {
    /// Runs the acquire loop.
    Asks(BoxFuture<'static, Outcome>),
    /// Waits in the local queue. Most waiters get a hold by hand-off, so this state has no future of the acquire loop:
    /// that future is large, and a lock may have many waiters.
    Stands(Place),
}

impl Entering {
    /// Asks the store: as a leader for the whole local queue, otherwise only for itself.
    pub(super) fn ask(one: Loop, lead: Option<Lead>) -> Self {
        Self::Asks(Box::pin(async move { one.drive(lead).await }))
    }

    /// Waits in the local queue.
    pub(super) fn stand(place: Place) -> Self {
        match place.caller().wait_in_line() {
            Ok(()) => Self::Stands(place),
            Err(closed) => Self::Asks(Box::pin(ready(Err(closed)))),
        }
    }
}

impl Future for Entering {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        if let Self::Stands(place) = &mut *self {
            match std::task::ready!(Pin::new(&mut *place).poll(cx)) {
                Call::Hold(hold) if hold.is_held() => {
                    let open = place.caller().base.core.refuse_if_closed();
                    return Poll::Ready(open.map(|()| Some(hold)));
                }
                call => {
                    let (one, number) = (Loop::of(place), place.number());
                    *self = Self::Asks(Box::pin(one.come(call, number)));
                }
            }
        }
        match &mut *self {
            Self::Asks(rest) => rest.as_mut().poll(cx),
            Self::Stands(_) => Poll::Pending,
        }
    }
}
