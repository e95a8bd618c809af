//! Read-write lock: three locks of one name, for reading, for reading upgradeably and for writing.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use crate::downgrade::Downgrade;
use crate::engine::ClientInner;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::fenced::LockGuard;
use crate::guard::Guard;
use crate::lock::Lock;
use crate::options::AcquireOptions;
use crate::store::LockKind;
use crate::upgrade::Upgrade;

/// Three [`Lock`]s of one name: any number of guards of [`read`](Self::read) and at most one of
/// [`upgradeable_read`](Self::upgradeable_read) beside them, or one guard of [`write`](Self::write).
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
/// *Upgrade*: a plain reader cannot become a writer: two of them would wait for each other.
/// [`upgradeable_read`](Self::upgradeable_read) is a reader that plain readers may join, and that excludes writers and
/// other upgradeable readers. As there is at most one, [`upgrade`](Self::upgrade) turns it into a writer without a
/// deadlock, and no other writer gets the lock in between: what it has read still holds when it writes. On `memory:`, `sqlite:`,
/// PostgreSQL and MySQL.
///
/// *Re-entry*: with an [`Owner`](crate::Owner), as for every lock. An owner that holds the write side and asks for the
/// read side gets a guard of the hold it has. The lock stays exclusive until the last of these guards is released. An
/// owner that holds the read side and asks for the write side would wait for itself, so the
/// call fails with [`InvalidOptions`](ErrorKind::InvalidOptions). So do the calls of an owner that holds the read side and
/// asks for an upgradeable read, and of one that reads upgradeably and asks for the write side: it uses `upgrade`. Without an owner the client cannot detect this: a
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
    upgradeable: Lock,
}

impl ReadWriteLock {
    pub(crate) fn new(core: &Arc<ClientInner>, name: &str) -> Self {
        let side = |kind| Lock::new(core, kind, name);
        Self {
            read: side(LockKind::Read),
            write: side(LockKind::Write),
            upgradeable: side(LockKind::UpgradeableRead),
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

    /// The upgradeable read: its guard excludes writers and other upgradeable readers, and plain readers may join it.
    /// [`upgrade`](Self::upgrade) turns it into a writer. It takes its turn in the queue as the other sides do; plain readers
    /// pass one that waits for another upgradeable reader.
    ///
    /// On `memory:`, `sqlite:`, PostgreSQL and MySQL. The other stores fail with [`Unsupported`](ErrorKind::Unsupported) before any traffic.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let prices = client.read_write_lock("prices");
    /// let guard = prices.upgradeable_read().acquire().await?;
    /// assert!(prices.read().try_acquire().await?.is_some());
    /// assert!(prices.upgradeable_read().try_acquire().await?.is_none());
    /// assert!(prices.write().try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn upgradeable_read(&self) -> Lock {
        self.upgradeable.clone()
    }

    /// Turns an upgradeable reader into a writer, and no other writer gets the lock in between: `upgrade_with` the default
    /// options.
    ///
    /// # Errors
    /// As [`upgrade_with`](Self::upgrade_with).
    ///
    /// # Cancel safety
    /// As [`upgrade_with`](Self::upgrade_with).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let prices = client.read_write_lock("prices");
    /// let reader = prices.upgradeable_read().acquire().await?;
    /// // read the prices, beside other readers …
    /// let is_outdated = true;
    /// if is_outdated {
    ///     let writer = prices.upgrade(&reader).await?;
    ///     // … and change them: nobody has changed them since they were read
    ///     writer.release().await?;
    /// }
    /// reader.release().await?; // until here other readers may join it again
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn upgrade<G: LockGuard>(&self, reader: &G) -> Upgrade<G> {
        self.upgrade_with(reader, AcquireOptions::new())
    }

    /// Turns an upgradeable reader into a writer, and no other writer gets the lock in between. The result is a second
    /// guard, with an owner id and a lease of its own, by `options`; that of a fenced reader has a new, larger token. The
    /// upgradeable guard stays valid: when the writer is released, its holder reads on, and may upgrade again. If it is
    /// dropped first, the writer stays. [`downgrade`](Self::downgrade) turns the writer into a plain reader.
    ///
    /// Nothing happens before the future is polled. Once it waits in the store, no new reader enters, and no waiter does: the
    /// writer is granted when the readers that are inside have left. [`AcquireOptions::wait`] limits that. With a zero wait it
    /// is granted only if no other reader is inside.
    ///
    /// It also waits for a plain read guard of the caller, without end: release that one first. With the
    /// [`Owner`](crate::Owner) of that guard it fails instead. Pass an owner again, so that it re-enters the write hold. The
    /// acquisitions of one owner take turns, so its reads of this lock that come later wait until its upgrade has ended. The
    /// upgrade itself waits only for other upgrades and downgrades of that owner: an earlier acquisition of another kind may
    /// itself wait for this reader. If one already waits in the store, it does not re-enter the write hold, but waits until that
    /// has ended. A guard that writes already, because its owner held the write side when it asked for the upgradeable read,
    /// becomes another guard of the same hold.
    ///
    /// # Errors
    /// [`InvalidOptions`](ErrorKind::InvalidOptions) if the guard is not of this lock's upgradeable read, if the owner in
    /// `options` has a plain read guard, and while another upgrade of the same hold waits or its writer holds the lock: that
    /// one may change what the caller has read. With the same owner it re-enters that writer instead.
    /// [`Lost`](ErrorKind::Lost) if the upgradeable hold was lost; then its guard is lost too. Otherwise as
    /// [`Lock::acquire_with`], for example [`TimedOut`](ErrorKind::TimedOut). After any other error than `Lost` the
    /// upgradeable guard is as it was before: you can read on, or try again.
    ///
    /// # Cancel safety
    /// Cancel safe. A dropped future leaves no write hold behind, and new readers may enter again. The upgradeable guard
    /// stays valid. While the future lives, it keeps the upgradeable hold, also if the guard is dropped.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::{AcquireOptions, ErrorKind};
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let prices = client.read_write_lock("prices");
    /// let reader = prices.upgradeable_read().acquire().await?;
    /// let other = prices.read().acquire().await?;
    /// let briefly = AcquireOptions::new().wait(Duration::from_millis(20));
    /// let error = prices.upgrade_with(&reader, briefly.clone()).await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::TimedOut); // the other reader is still inside
    /// assert!(reader.is_held());
    /// other.release().await?;
    /// let writer = prices.upgrade_with(&reader, briefly).await?;
    /// assert!(writer.is_held());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn upgrade_with<G: LockGuard>(&self, reader: &G, options: AcquireOptions) -> Upgrade<G> {
        self.upgrade_guard(reader.guard(), options, Location::caller())
    }

    /// As [`upgrade_with`](Self::upgrade_with), of a guard whose type tells nothing about tokens.
    pub(crate) fn upgrade_guard<G: LockGuard>(
        &self,
        reader: &Guard,
        options: AcquireOptions,
        place: &'static Location<'static>,
    ) -> Upgrade<G> {
        let name = self.write.checked_name();
        Upgrade::of(&self.write.context, name, reader, options, place)
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
