//! A lock held by a thread.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::core::rt::{Blocker, Task};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::guard::{FencingToken, LostReason};

/// A held lock, on the thread that acquired it. Dropping it asks for the release in the background;
/// [`release`](Self::release) waits for it. While the thread has other guards of the same lock, it stays held.
///
/// It cannot be sent to another thread, because the thread is the owner:
///
/// ```compile_fail,E0277
/// fn send<T: Send>(_: T) {}
/// let client = tidelock::blocking::Client::connect("memory:").unwrap();
/// send(client.lock("a").acquire().unwrap());
/// ```
#[must_use = "if unused, the lock is released at once"]
#[clippy::has_significant_drop]
pub struct Guard {
    pub(super) inner: crate::Guard,
    pub(super) blocker: Arc<Blocker>,
    pub(super) callbacks: RefCell<Vec<Task>>,
    pub(super) stays_here: PhantomData<*const ()>,
}

impl Guard {
    /// The lock's name, prefix included.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// This acquisition as other clients see it in the store: `uuid:n`.
    pub fn owner_id(&self) -> String {
        self.inner.owner_id()
    }

    /// How many replicas had acknowledged the grant; see [`Guard::acknowledged`](crate::Guard::acknowledged).
    pub fn acknowledged(&self) -> Option<crate::Acknowledged> {
        self.inner.acknowledged()
    }

    /// The fencing token; see [`Guard::token`](crate::Guard::token).
    pub fn token(&self) -> Option<FencingToken> {
        self.inner.token()
    }

    /// Whether the lock is proved to be held right now. No trip.
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// How long the lock is proved to be held if no further renewal succeeds. Zero: it is lost.
    pub fn valid_for(&self) -> Duration {
        self.inner.valid_for()
    }

    /// Waits for the loss of the lock, at most that long. `None`: it is still held.
    ///
    /// # Errors
    /// [`Runtime`](ErrorKind::Runtime) inside an async runtime.
    pub fn wait_lost(&self, limit: Duration) -> Result<Option<LostReason>> {
        self.blocker.run(self.inner.lost_within(limit))
    }

    /// Calls back when the lock is lost, on a thread of the client's: be brief there. Not called once this guard has gone.
    pub fn on_lost(&self, call: impl FnOnce(LostReason) + Send + 'static) {
        let lost = self.inner.lost();
        let task = self.blocker.spawn(async move { call(lost.await) });
        self.callbacks.borrow_mut().extend(task);
    }

    /// Lengthens the lease; see [`Guard::extend`](crate::Guard::extend).
    ///
    /// # Errors
    /// As there, and [`Runtime`](ErrorKind::Runtime) inside an async runtime.
    pub fn extend(&self, lease: Duration) -> Result<()> {
        self.blocker.run(self.inner.extend(lease))?
    }

    /// Releases the lock and waits until the store has confirmed it. While the thread has other guards of the same
    /// lock, it stays held and this returns at once.
    ///
    /// # Errors
    /// As [`Guard::release`](crate::Guard::release), and [`Runtime`](ErrorKind::Runtime) inside an async runtime: then
    /// the lock is released in the background.
    pub fn release(self) -> Result<()> {
        let Self { inner, blocker, .. } = self;
        blocker.run(inner.release())?
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
