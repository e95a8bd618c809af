//! The guard of the blocking API: a lock held by a thread.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::runtime::background::{AbortOnDrop, Blocker};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::state::HoldState;
use crate::types::LostReason;

/// A held lock, on the thread that acquired it. Dropping it releases the lock in the background;
/// [`release`](Self::release) waits for the release. While the thread has other guards of the same lock, it stays held.
///
/// It cannot be sent to another thread, because the thread is the owner:
///
/// ```compile_fail,E0277
/// fn send<T: Send>(_: T) {}
/// let client = tidelock::blocking::Client::connect("memory:").unwrap();
/// send(client.lock("a").acquire().unwrap());
/// ```
///
/// # Examples
/// ```
/// let client = tidelock::blocking::Client::connect("memory:")?;
/// let guard = client.lock("stock:42").acquire()?;
/// if guard.is_held() {
///     // look, decide, write
/// }
/// guard.release()?;
/// # Ok::<(), tidelock::Error>(())
/// ```
#[must_use = "if unused, the lock is released at once"]
#[clippy::has_significant_drop]
pub struct Guard {
    pub(super) inner: crate::Guard,
    pub(super) blocker: Arc<Blocker>,
    pub(super) callbacks: RefCell<Vec<AbortOnDrop>>,
    pub(super) stays_here: PhantomData<*const ()>,
}

impl Guard {
    /// The lock's name, prefix included.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("stock:42").acquire()?;
    /// assert_eq!(guard.name(), "stock:42");
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// The owner of this hold as other clients see it in the store: `uuid:n`.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("job").acquire()?;
    /// let (uuid, number) = guard.owner_id().split_once(':').map(|(u, n)| (u.to_owned(), n.to_owned())).unwrap();
    /// assert_eq!(uuid, client.id());
    /// assert_eq!(number, "1"); // this client's first acquisition
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn owner_id(&self) -> String {
        self.inner.owner_id()
    }

    /// How many replicas had acknowledged the grant; see [`Guard::acknowledged`](crate::Guard::acknowledged).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("job").acquire()?;
    /// assert!(guard.acknowledged().is_none()); // this store has no replicas
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn acknowledged(&self) -> Option<crate::Acknowledged> {
        self.inner.acknowledged()
    }

    /// This hold as a text; see [`Guard::sequencer`](crate::Guard::sequencer).
    ///
    /// # Errors
    /// As [`Guard::sequencer`](crate::Guard::sequencer).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("primary").acquire()?;
    /// assert_eq!(guard.sequencer()?.name(), "primary");
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn sequencer(&self) -> Result<crate::Sequencer> {
        self.inner.sequencer()
    }

    /// Held, unsure or lost; see [`Guard::state`](crate::Guard::state). No round trip.
    ///
    /// # Examples
    /// ```
    /// use tidelock::HoldState;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("leader").acquire()?;
    /// if guard.state() == HoldState::Held {
    ///     // begin the next piece of work
    /// }
    /// guard.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn state(&self) -> HoldState {
        self.inner.state()
    }

    /// Whether the lock is proved to be held right now. No round trip.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let lock = client.lock("job");
    /// let guard = lock.acquire()?;
    /// assert!(guard.is_held());
    /// client.close(std::time::Duration::ZERO)?; // releases what is left
    /// assert!(!guard.is_held());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// How long the lock stays proved if no further renewal succeeds. Zero: it is lost.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("job").acquire()?;
    /// assert!(guard.valid_for() > Duration::from_secs(29)); // of a lease of 30 s
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn valid_for(&self) -> Duration {
        self.inner.valid_for()
    }

    /// Waits until the lock is lost; see [`Guard::lost`](crate::Guard::lost).
    ///
    /// # Errors
    /// [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tidelock::{AcquireOptions, LostReason};
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let briefly = AcquireOptions::new().max_hold(Duration::from_millis(50));
    /// let guard = client.lock("report").acquire_with(briefly)?;
    /// assert_eq!(guard.lost()?, LostReason::MaxHold);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn lost(&self) -> Result<LostReason> {
        self.blocker.run(self.inner.lost())
    }

    /// As [`lost`](Self::lost), but waits at most `limit`. `None`: the lock is still held.
    ///
    /// # Errors
    /// [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tidelock::{AcquireOptions, LostReason};
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let briefly = AcquireOptions::new().max_hold(Duration::from_millis(50));
    /// let guard = client.lock("report").acquire_with(briefly)?;
    /// assert_eq!(guard.lost_timeout(Duration::from_secs(10))?, Some(LostReason::MaxHold));
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn lost_timeout(&self, limit: Duration) -> Result<Option<LostReason>> {
        let timers = self.inner.timers();
        self.blocker.run(timers.limit(limit, self.inner.lost()))
    }

    /// Calls `call` when the lock is lost, on a thread of the client, so it must be short. It is not called after this
    /// guard was dropped. When the client closes, that is at the end of the grace period; if it has closed, `call` is called
    /// at once, on this thread.
    ///
    /// # Examples
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use tidelock::{AcquireOptions, LostReason};
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let (tell, told) = mpsc::channel();
    /// let briefly = AcquireOptions::new().max_hold(Duration::from_millis(50));
    /// let guard = client.lock("report").acquire_with(briefly)?;
    /// guard.on_lost(move |reason| tell.send(reason).unwrap_or_default());
    /// assert_eq!(told.recv(), Ok(LostReason::MaxHold));
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn on_lost(&self, call: impl FnOnce(LostReason) + Send + 'static) {
        let lost = self.inner.lost();
        let task = self.blocker.spawn(async move { call(lost.await) });
        self.callbacks.borrow_mut().extend(task);
    }

    /// Waits until the client of this lock begins to close; see [`Guard::closing`](crate::Guard::closing).
    ///
    /// # Errors
    /// [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("leader").acquire()?;
    /// let shutdown = std::thread::spawn(move || client.close(Duration::from_secs(5)));
    /// guard.closing()?;
    /// guard.release()?; // the lock was held until here
    /// assert_eq!(shutdown.join().unwrap()?, 0);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn closing(&self) -> Result<()> {
        self.blocker.run(self.inner.closing())
    }

    /// As [`closing`](Self::closing), but waits at most `limit`. False: the client is open.
    ///
    /// # Errors
    /// [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("queue").acquire()?;
    /// for _message in 0..3 {
    ///     if guard.closing_timeout(Duration::ZERO)? {
    ///         break; // take no new work
    ///     }
    /// }
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn closing_timeout(&self, limit: Duration) -> Result<bool> {
        let timers = self.inner.timers();
        let closing = self
            .blocker
            .run(timers.limit(limit, self.inner.closing()))?;
        Ok(closing.is_some())
    }

    /// Calls `call` when the client begins to close, on a thread of the client, so it must be short. It is not called
    /// after this guard was dropped. If the client has closed, it is called at once, on this thread.
    ///
    /// # Examples
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::{sync::Arc, time::Duration};
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("leader").acquire()?;
    /// let enough = Arc::new(AtomicBool::new(false));
    /// guard.on_closing({
    ///     let enough = Arc::clone(&enough);
    ///     move || enough.store(true, Ordering::SeqCst)
    /// });
    /// assert!(!enough.load(Ordering::SeqCst)); // the loop of a worker asks here
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn on_closing(&self, call: impl FnOnce() + Send + 'static) {
        let closing = self.inner.closing();
        let task = self.blocker.spawn(async move {
            closing.await;
            call();
        });
        self.callbacks.borrow_mut().extend(task);
    }

    /// Runs work on this thread, and returns its result if the lock was held until its end. A thread cannot be stopped:
    /// work of many steps asks [`is_held`](Self::is_held) before each.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost) with the lock's name and [reason](crate::Error::lost_reason). If the lock was lost
    /// before, the work does not begin. If it was lost meanwhile, the work may have overlapped with that of another
    /// holder, and its result is dropped.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("report").acquire()?;
    /// let pages = guard.while_held(|| 12)?;
    /// assert_eq!(pages, 12);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn while_held<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        self.inner.still_held()?;
        let result = work();
        self.inner.still_held()?;
        Ok(result)
    }

    /// Returns one more guard of the same acquisition, without a request; see
    /// [`Guard::reenter`](crate::Guard::reenter). It stays on this thread.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let outer = client.lock("job").acquire()?;
    /// let inner = outer.reenter();
    /// drop(outer);
    /// assert!(inner.is_held()); // released when `inner` goes
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn reenter(&self) -> Self {
        Self {
            inner: self.inner.reenter(),
            blocker: Arc::clone(&self.blocker),
            callbacks: RefCell::default(),
            stays_here: PhantomData,
        }
    }

    /// Lengthens the lease; see [`Guard::extend`](crate::Guard::extend).
    ///
    /// # Errors
    /// As [`Guard::extend`](crate::Guard::extend), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tidelock::AcquireOptions;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let minute = AcquireOptions::new().expires_after(Duration::from_secs(60));
    /// let guard = client.lock("import").acquire_with(minute)?;
    /// guard.extend(Duration::from_secs(120))?;
    /// assert!(guard.valid_for() > Duration::from_secs(60));
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn extend(&self, lease: Duration) -> Result<()> {
        self.blocker.run(self.inner.extend(lease))?
    }

    /// Releases the lock and waits until the store has confirmed it. While the thread has other guards of the same
    /// lock, the lock stays held and this call returns at once.
    ///
    /// # Errors
    /// As [`Guard::release`](crate::Guard::release), and [`Runtime`](ErrorKind::Runtime) in async code: then
    /// the client releases the lock in the background.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let job = client.lock("job");
    /// job.acquire()?.release()?;
    /// assert!(!job.inspect()?.is_locked()); // the store has confirmed it
    /// # Ok::<(), tidelock::Error>(())
    /// ```
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
