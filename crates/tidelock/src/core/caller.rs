//! What an acquisition, its caller and the store know of each other.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::backend::{Kind, Name};
use crate::core::seat::{Seat, Terms};
use crate::core::site::Base;
use crate::error::{Error, ErrorKind, Result};
use crate::options::AcquireOptions;

/// What was asked for, and what the loop, the line and the caller tell each other. All of it in one place: of many who wait
/// for one name each would pay for every further one with each turn.
pub(crate) struct Caller {
    pub(super) base: Arc<Base>,
    pub(super) name: Name,
    pub(super) options: AcquireOptions,
    pub(super) place: &'static Location<'static>,
    pub(super) terms: Terms,
    /// Where it waits behind others of this process.
    pub(super) seat: Seat,
    /// The caller has left; the loop is finishing in the background.
    pub(super) gone: AtomicBool,
    /// A request is on its way: the loop must not be dropped before it has been answered.
    pub(super) in_flight: AtomicBool,
    /// Why the last request brought no answer, to be reported when the time is up.
    trouble: Mutex<Option<Error>>,
}

impl Caller {
    /// # Errors
    /// When the options make no sense.
    pub(crate) fn new(
        base: Arc<Base>,
        kind: Kind,
        name: Name,
        options: AcquireOptions,
        place: &'static Location<'static>,
    ) -> Result<Self> {
        let settings = &base.core.settings;
        let term = options
            .term(settings.lease, &settings.drift)
            .map_err(|error| error.on_lock(&name))?;
        Ok(Self {
            terms: Terms {
                kind,
                lease: term.length,
                renewed: term.renewed,
                wish: options.acknowledge.unwrap_or(settings.acknowledge),
                delay: options.lock_delay.unwrap_or_default(),
            },
            base,
            name,
            options,
            place,
            seat: Seat::default(),
            gone: AtomicBool::new(false),
            in_flight: AtomicBool::new(false),
            trouble: Mutex::default(),
        })
    }

    /// How long it waits at most.
    pub(super) fn patience(&self) -> Duration {
        self.options.wait.unwrap_or(Duration::MAX)
    }

    /// It only wants to know whether the lock is free.
    pub(super) fn only_asks(&self) -> bool {
        self.patience().is_zero()
    }

    /// Has a place in line now. After that it is looked whether the client is closed: a close that is not seen here calls all
    /// who have one.
    pub(super) fn wait_in_line(&self) -> Result<()> {
        self.base.core.refuse_if_closed()?;
        self.explain_own_hold();
        Ok(())
    }

    /// A classic mistake looks like a hang; the log tells it apart.
    pub(super) fn explain_own_hold(&self) {
        // A look through all that is held is worth it only where somebody reads the log.
        if tracing::enabled!(tracing::Level::INFO)
            && let Some(held_at) = self.base.core.steward.table.place_of(&self.name)
        {
            tracing::info!(lock = %self.name, held_since = %held_at, waiting_at = %self.place, "waits for a lock that a guard of this same client holds");
        }
    }

    pub(super) fn set_trouble(&self, trouble: Option<Error>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// The error for a caller whose time is up: what kept the store from answering says more than the time does.
    pub(super) fn out_of_time(&self) -> Error {
        let trouble = self
            .trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match trouble {
            Some(error) => error,
            None if self.in_flight.load(Ordering::SeqCst) => {
                // Who only asked did not wait for a holder: what did not come is an answer.
                let kind = if self.only_asks() {
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

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("name", &self.name)
            .field("place", &self.place)
            .finish_non_exhaustive()
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
