//! What an acquisition, its caller and the store know of each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, ErrorKind};

/// What the loop and its caller tell each other.
#[derive(Debug, Default)]
pub(super) struct Caller {
    /// The caller has left; the loop is finishing in the background.
    pub(super) gone: AtomicBool,
    /// A request is on its way: the loop must not be dropped before it has been answered.
    pub(super) in_flight: AtomicBool,
    /// Why the last request brought no answer, to be reported when the time is up.
    trouble: Mutex<Option<Error>>,
}

impl Caller {
    pub(super) fn set_trouble(&self, trouble: Option<Error>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// The error for a caller whose time is up: what kept the store from answering says more than the time does.
    pub(super) fn out_of_time(&self, only_asked: bool) -> Error {
        let trouble = self
            .trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match trouble {
            Some(error) => error,
            None if self.in_flight.load(Ordering::SeqCst) => {
                // Who only asked did not wait for a holder: what did not come is an answer.
                let kind = if only_asked {
                    ErrorKind::OutcomeUnknown
                } else {
                    ErrorKind::TimedOut
                };
                Error::new(kind).because("the store had not answered when the time was up")
            }
            None => Error::new(ErrorKind::TimedOut),
        }
    }
}

/// Whether anybody still waits for the answer to a question. By default somebody does.
#[derive(Debug, Clone, Default)]
pub struct Asker(Option<Arc<Caller>>);

impl Asker {
    pub(super) fn new(caller: &Arc<Caller>) -> Self {
        Self(Some(Arc::clone(caller)))
    }

    /// The caller has left: a question that still waits for its turn to be sent need not be sent. Where many leave at
    /// once, the store would otherwise be busy with locks for nobody while those who stay find no turn.
    pub fn has_left(&self) -> bool {
        let caller = self.0.as_ref();
        caller.is_some_and(|caller| caller.gone.load(Ordering::SeqCst))
    }
}
