//! The semaphore of the blocking API, and the guard of its permits.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::blocking::fenced::{LockGuard, sealed};
use crate::blocking::{Client, Guard, Lock};
use crate::engine::runtime::background::Blocker;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::snapshot::Snapshot;

/// A semaphore, for threads; see [`Semaphore`](crate::Semaphore). A thread that holds permits waits for more like any
/// other.
///
/// # Examples
/// ```
/// let client = tidelock::blocking::Client::connect("memory:")?;
/// let render = client.semaphore("render");
/// render.set_permits_if_new(3)?; // only the first call of all processes has an effect
/// let two = render.permits(2).acquire()?; // both, or none
/// let one = render.acquire()?;
/// assert!(render.try_acquire()?.is_none()); // also for this thread
/// two.release()?;
/// # drop(one);
/// # Ok::<(), tidelock::Error>(())
/// ```
#[derive(Clone)]
pub struct Semaphore {
    semaphore: crate::Semaphore,
    blocker: Arc<Blocker>,
}

impl Client {
    /// A semaphore; see [`Client::semaphore`](crate::Client::semaphore). Sends nothing.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let render = client.semaphore("render");
    /// render.set_permits_if_new(5)?;
    /// render.acquire()?.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn semaphore(&self, name: &str) -> Semaphore {
        Semaphore {
            semaphore: self.client.semaphore(name),
            blocker: Arc::clone(&self.blocker),
        }
    }
}

impl Semaphore {
    /// So many permits at once, all or none; see [`Semaphore::permits`](crate::Semaphore::permits).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let render = client.semaphore("render");
    /// render.set_permits_if_new(5)?;
    /// assert_eq!(render.permits(3).acquire()?.count(), 3);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn permits(&self, count: u16) -> Lock<Permits> {
        Lock {
            lock: self.semaphore.permits(count),
            blocker: Arc::clone(&self.blocker),
        }
    }

    /// Waits for one permit; see [`Semaphore::acquire`](crate::Semaphore::acquire).
    ///
    /// # Errors
    /// As [`Semaphore::acquire`](crate::Semaphore::acquire), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let render = client.semaphore("render");
    /// render.set_permits_if_new(5)?;
    /// let permit = render.acquire()?;
    /// permit.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    #[track_caller]
    pub fn acquire(&self) -> Result<Permits> {
        self.permits(1).acquire()
    }

    /// Takes one permit if there is one. `None`: there is not.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`](crate::Semaphore::try_acquire), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert!(client.semaphore("render").try_acquire()?.is_none()); // it has no permits yet
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    #[track_caller]
    pub fn try_acquire(&self) -> Result<Option<Permits>> {
        self.permits(1).try_acquire()
    }

    /// Gives a new semaphore this many permits; see
    /// [`Semaphore::set_permits_if_new`](crate::Semaphore::set_permits_if_new).
    ///
    /// # Errors
    /// As [`Semaphore::set_permits_if_new`](crate::Semaphore::set_permits_if_new), and
    /// [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert!(client.semaphore("render").set_permits_if_new(5)?);
    /// assert!(!client.semaphore("render").set_permits_if_new(8)?); // it has 5
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn set_permits_if_new(&self, total: u32) -> Result<bool> {
        self.blocker.run(self.semaphore.set_permits_if_new(total))?
    }

    /// Changes the number of permits; see [`Semaphore::set_permits`](crate::Semaphore::set_permits).
    ///
    /// # Errors
    /// As [`Semaphore::set_permits`](crate::Semaphore::set_permits), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// client.semaphore("render").set_permits(5)?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn set_permits(&self, total: u32) -> Result<()> {
        self.blocker.run(self.semaphore.set_permits(total))?
    }

    /// Adds or removes permits; see [`Semaphore::add_permits`](crate::Semaphore::add_permits).
    ///
    /// # Errors
    /// As [`Semaphore::add_permits`](crate::Semaphore::add_permits), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let render = client.semaphore("render");
    /// render.set_permits(5)?;
    /// render.add_permits(-2)?;
    /// assert_eq!(render.inspect()?.permits.map(|count| count.total), Some(3));
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn add_permits(&self, more: i32) -> Result<()> {
        self.blocker.run(self.semaphore.add_permits(more))?
    }

    /// See [`Semaphore::inspect`](crate::Semaphore::inspect).
    ///
    /// # Errors
    /// As [`Semaphore::inspect`](crate::Semaphore::inspect), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let render = client.semaphore("render");
    /// render.set_permits_if_new(5)?;
    /// assert_eq!(render.inspect()?.permits.map(|count| count.available), Some(5));
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn inspect(&self) -> Result<Snapshot> {
        self.blocker.run(self.semaphore.inspect())?
    }

    /// Takes all permits back; see [`Semaphore::force_release`](crate::Semaphore::force_release).
    ///
    /// # Errors
    /// As [`Semaphore::force_release`](crate::Semaphore::force_release), and [`Runtime`](ErrorKind::Runtime) in async
    /// code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert!(!client.semaphore("render").force_release()?); // no permit was held
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn force_release(&self) -> Result<bool> {
        self.blocker.run(self.semaphore.force_release())?
    }

    /// The name, prefix included.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert_eq!(client.semaphore("render").name(), "render");
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.semaphore.name()
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.semaphore.fmt(f)
    }
}

/// Permits of a [`Semaphore`], on the thread that acquired them. It has all methods of a [`Guard`]. See
/// [`Permits`](crate::Permits).
///
/// # Examples
/// ```
/// let client = tidelock::blocking::Client::connect("memory:")?;
/// let render = client.semaphore("render");
/// render.set_permits_if_new(5)?;
/// let two = render.permits(2).acquire()?;
/// assert!(two.is_held());
/// two.release()?;
/// # Ok::<(), tidelock::Error>(())
/// ```
#[must_use = "if unused, the permits are given back at once"]
#[clippy::has_significant_drop]
pub struct Permits {
    guard: Guard,
    ids: Vec<String>,
}

impl LockGuard for Permits {}

impl sealed::FromAsync for Permits {
    type Async = crate::Permits;

    fn from_async(permits: crate::Permits, stay: impl FnOnce(crate::Guard) -> Guard) -> Self {
        Self {
            ids: permits.ids(),
            guard: stay(permits.into()),
        }
    }

    fn into_async(self) -> crate::Permits {
        crate::Permits::of(self.guard.inner)
    }

    fn as_async(&self) -> &crate::Guard {
        &self.guard.inner
    }
}

impl Permits {
    /// How many permits these are; see [`Permits::count`](crate::Permits::count).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let render = client.semaphore("render");
    /// render.set_permits_if_new(5)?;
    /// assert_eq!(render.permits(3).acquire()?.count(), 3);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn count(&self) -> u16 {
        u16::try_from(self.ids.len()).unwrap_or(u16::MAX)
    }

    /// The ids of the permits; see [`Permits::ids`](crate::Permits::ids).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let render = client.semaphore("render");
    /// render.set_permits_if_new(5)?;
    /// assert_eq!(render.permits(2).acquire()?.ids().len(), 2);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn ids(&self) -> Vec<String> {
        self.ids.clone()
    }

    /// Gives the permits back and waits until the store has confirmed it; see [`Guard::release`].
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let render = client.semaphore("render");
    /// render.set_permits_if_new(5)?;
    /// render.acquire()?.release()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn release(self) -> Result<()> {
        self.guard.release()
    }
}

impl Deref for Permits {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl From<Permits> for Guard {
    /// The guard without its number of permits. They stay held.
    fn from(permits: Permits) -> Self {
        permits.guard
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits")
            .field("guard", &self.guard)
            .field("ids", &self.ids)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn permits_have_their_number_and_an_id_each() {
        let client = Client::connect("memory:").unwrap();
        let render = client.semaphore("render");
        assert!(render.set_permits_if_new(3).unwrap());
        assert!(!render.set_permits_if_new(9).unwrap());
        let two = render.permits(2).acquire().unwrap();
        let ids = two.ids();
        assert_eq!((two.count(), ids.len()), (2, 2));
        assert_eq!(ids[0], two.owner_id());
        assert!(ids[0] != ids[1] && ids.iter().all(|id| id.len() == 32));
        assert!(render.permits(2).try_acquire().unwrap().is_none());
        let one = render.try_acquire().unwrap().unwrap();
        assert_eq!(one.count(), 1);
        two.release().unwrap();
        assert!(render.force_release().unwrap());
        assert!(!render.force_release().unwrap());
        let error = one.release().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    }
}
