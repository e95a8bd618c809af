//! Read-write lock: two locks of one name, one for reading and one for writing.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use crate::downgrade::Downgrade;
use crate::engine::ClientInner;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::fenced::LockGuard;
use crate::lock::Lock;
use crate::options::AcquireOptions;
use crate::store::LockKind;

/// Two [`Lock`]s of one name: any number of guards of [`read`](Self::read), or one guard of [`write`](Self::write).
/// Cheap to make and to clone, and without state. [`Client::read_write_lock`](crate::Client::read_write_lock) makes it.
///
/// *Order*: first come, first served, over all processes. A reader waits for the writers that came before it, a writer
/// for everything that came before it. So a stream of readers cannot keep a writer out, and readers that wait for one
/// writer enter together. `try_acquire` of the read side returns `None` while a writer holds the lock *or
/// waits for it*.
///
/// *Exclusion*: the two sides exclude each other as described, also in other processes.
/// [`Client::lock`](crate::Client::lock) of the same name counts as a writer; on Redis each kind refuses the other with
/// [`WrongType`](ErrorKind::WrongType). On Redis the lock is Redisson's `RReadWriteLock`. Java has no queue there: its
/// readers join readers, and its writers take a free lock, before those that wait in order here. On ZooKeeper the lock also excludes
/// Curator's `InterProcessReadWriteLock` on the same path. Curator ignores mutexes there, so share a name with Java
/// either as a read-write lock or as a mutex.
///
/// *Downgrade*: [`downgrade`](Self::downgrade) turns a guard of the write side into one of the read side, and no other
/// writer gets the lock in between.
///
/// *Re-entry*: with an [`Owner`](crate::Owner), as for every lock. An owner that holds the write side and asks for the
/// read side gets a guard of the hold it has. The lock stays exclusive until the last of these guards is released. An
/// owner that holds the read side and asks for the write side would wait for itself, so the
/// call fails with [`InvalidOptions`](ErrorKind::InvalidOptions). Without an owner the client cannot detect this: a
/// task that waits for the write side while it has a guard of the read side never gets it, as with any lock that it
/// takes twice.
///
/// Both sides can be [fenced](Lock::fenced): a writer's token is larger than those of all earlier holders, a reader's is
/// larger than those of all earlier writers. Only holds with a token count: fence both sides where you check tokens.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let prices = client.read_write_lock("prices");
/// let one = prices.read().acquire().await?;
/// let other = prices.read().acquire().await?; // readers share
/// assert!(prices.write().try_acquire().await?.is_none());
/// one.release().await?;
/// other.release().await?;
/// let writer = prices.write().acquire().await?;
/// assert!(prices.read().try_acquire().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ReadWriteLock {
    read: Lock,
    write: Lock,
}

impl ReadWriteLock {
    pub(crate) fn new(core: &Arc<ClientInner>, name: &str) -> Self {
        let side = |kind| Lock::new(core, kind, name);
        Self {
            read: side(LockKind::Read),
            write: side(LockKind::Write),
        }
    }

    /// The read side: its guards exclude writers, not each other.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let prices = client.read_write_lock("prices");
    /// let guard = prices.read().acquire().await?;
    /// assert!(prices.read().try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub fn read(&self) -> Lock {
        self.read.clone()
    }

    /// The write side: its guard excludes all others.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let prices = client.read_write_lock("prices");
    /// let guard = prices.write().acquire().await?;
    /// assert!(prices.read().try_acquire().await?.is_none());
    /// assert!(prices.write().try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn write(&self) -> Lock {
        self.write.clone()
    }

    /// Turns a writer into a reader, and no other writer gets the lock in between: `downgrade_with` the default options.
    ///
    /// # Errors
    /// As [`downgrade_with`](Self::downgrade_with).
    ///
    /// # Cancel safety
    /// As [`downgrade_with`](Self::downgrade_with).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let prices = client.read_write_lock("prices");
    /// let writer = prices.write().acquire().await?;
    /// // change the prices …
    /// let reader = prices.downgrade(writer).await?;
    /// // … and report what was written, beside other readers
    /// assert!(prices.read().try_acquire().await?.is_some());
    /// assert!(prices.write().try_acquire().await?.is_none());
    /// reader.release().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn downgrade<G: LockGuard>(&self, writer: G) -> Downgrade<G> {
        self.downgrade_with(writer, AcquireOptions::new())
    }

    /// Turns a writer into a reader, and no other writer gets the lock in between. The store grants the read hold while
    /// the write hold lasts, ahead of all waiters; then the write hold ends, and waiting readers that are next enter. The
    /// read hold has an owner id and a lease of its own, by `options`. The guard of a fenced writer becomes a fenced
    /// reader, with a new token. Pass an [`Owner`](crate::Owner) again, so that it re-enters the read hold.
    ///
    /// # Errors
    /// [`InvalidOptions`](ErrorKind::InvalidOptions) if the guard is not of this lock's write side, or if its owner has
    /// another guard of it. [`Lost`](ErrorKind::Lost) if the write hold was lost. Otherwise as
    /// [`Lock::acquire_with`]; a writer that holds the lock never waits for others. After an error the lock is released:
    /// `writer` has been dropped.
    ///
    /// # Cancel safety
    /// Cancel safe. A dropped future releases the lock as a dropped guard does, and leaves no hold behind.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{AcquireOptions, Owner};
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let prices = client.read_write_lock("prices");
    /// let me = AcquireOptions::new().owner(&Owner::new());
    /// let writer = prices.write().acquire_with(me.clone()).await?;
    /// let reader = prices.downgrade_with(writer, me.clone()).await?;
    /// let again = prices.read().acquire_with(me).await?; // the same hold
    /// assert_eq!(again.owner_id(), reader.owner_id());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn downgrade_with<G: LockGuard>(&self, writer: G, options: AcquireOptions) -> Downgrade<G> {
        let place = Location::caller();
        let name = self.read.checked_name();
        Downgrade::of(&self.read.context, name, writer, options, place)
    }

    /// The name of both sides, prefix included.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::builder().prefix("shop:").connect("memory:").await?;
    /// assert_eq!(client.read_write_lock("prices").name(), "shop:prices");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        self.write.name()
    }
}

impl fmt::Debug for ReadWriteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadWriteLock")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
