//! An acquisition on its way: it stands in line, or asks the store.

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

/// An acquisition on its way.
pub(super) enum Entering {
    Asks(BoxFuture<'static, Outcome>),
    /// Most who wait in line are called to take a hold over. No future is made for that: one that can ask the store is large.
    Stands(Place),
}

impl Entering {
    /// Asks the store, for a line if it leads one.
    pub(super) fn ask(one: Loop, lead: Option<Lead>) -> Self {
        Self::Asks(Box::pin(async move { one.drive(lead).await }))
    }

    /// Waits in line.
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
