//! A client of the API under test, async or blocking. The promises are written once and run against both.

use std::time::Duration;

use super::any_lock::{AnyGuard, AnyLock};
#[cfg(feature = "blocking")]
use super::threads::{self, ThreadHeld};
use crate::client::Client;
use crate::error::Result;
use crate::lock::Lock;
use crate::options::AcquireOptions;
use crate::read_write::ReadWriteLock;
use crate::sequencer::Sequencer;
use crate::state::HoldState;
use crate::types::{FencingToken, LostReason};

/// A client, used through the async or the blocking API. Clones share one client.
#[derive(Debug, Clone)]
pub struct Party {
    client: Client,
    #[cfg(feature = "blocking")]
    blocking: Option<crate::blocking::Client>,
}

impl Party {
    pub(super) fn asynchronous(client: Client) -> Self {
        Self {
            client,
            #[cfg(feature = "blocking")]
            blocking: None,
        }
    }

    #[cfg(feature = "blocking")]
    pub(super) async fn blocking(
        connect: impl FnOnce() -> Result<crate::blocking::Client> + Send + 'static,
    ) -> Self {
        let client = threads::apart(connect).await.expect("the store opens");
        Self {
            client: client.as_async().clone(),
            blocking: Some(client),
        }
    }

    /// The client underneath.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The lock with this name.
    pub fn lock(&self, name: &str) -> PartyMember {
        PartyMember {
            lock: self.client.lock(name),
            fenced: false,
            #[cfg(feature = "blocking")]
            blocking: self.blocking.as_ref().map(|client| client.lock(name)),
        }
    }

    /// The fair lock with this name.
    pub fn fair(&self, name: &str) -> PartyMember {
        PartyMember {
            lock: self.client.fair_lock(name),
            fenced: false,
            #[cfg(feature = "blocking")]
            blocking: self.blocking.as_ref().map(|client| client.fair_lock(name)),
        }
    }

    /// The spin lock with this name.
    pub fn spin(&self, name: &str) -> PartyMember {
        PartyMember {
            lock: self.client.spin_lock(name),
            fenced: false,
            #[cfg(feature = "blocking")]
            blocking: self.blocking.as_ref().map(|client| client.spin_lock(name)),
        }
    }

    /// Asks the store whether the sequencer's hold still has the lock.
    ///
    /// # Errors
    /// As the API under test.
    pub async fn verify(&self, sequencer: &Sequencer) -> Result<bool> {
        #[cfg(feature = "blocking")]
        if let Some(client) = self.blocking.clone() {
            let sequencer = sequencer.clone();
            return threads::apart(move || client.verify(&sequencer)).await;
        }
        self.client.verify(sequencer).await
    }

    /// The read side of the read-write lock with this name.
    pub fn read(&self, name: &str) -> PartyMember {
        PartyMember {
            lock: self.sides(name).read(),
            fenced: false,
            #[cfg(feature = "blocking")]
            blocking: self.blocking_sides(name).map(|sides| sides.read()),
        }
    }

    /// The write side of the read-write lock with this name.
    pub fn write(&self, name: &str) -> PartyMember {
        PartyMember {
            lock: self.sides(name).write(),
            fenced: false,
            #[cfg(feature = "blocking")]
            blocking: self.blocking_sides(name).map(|sides| sides.write()),
        }
    }

    /// The upgradeable read of the read-write lock with this name.
    pub fn upgradeable(&self, name: &str) -> PartyMember {
        PartyMember {
            lock: self.sides(name).upgradeable_read(),
            fenced: false,
            #[cfg(feature = "blocking")]
            blocking: self
                .blocking_sides(name)
                .map(|sides| sides.upgradeable_read()),
        }
    }

    fn sides(&self, name: &str) -> ReadWriteLock {
        self.client.read_write_lock(name)
    }

    #[cfg(feature = "blocking")]
    fn blocking_sides(&self, name: &str) -> Option<crate::blocking::ReadWriteLock> {
        Some(self.blocking.as_ref()?.read_write_lock(name))
    }

    /// Closes the client. Returns how many guards were left after the grace period.
    pub async fn close(&self, grace: Duration) -> usize {
        #[cfg(feature = "blocking")]
        if let Some(client) = self.blocking.clone() {
            return threads::apart(move || client.close(grace).expect("no runtime here")).await;
        }
        self.client.close(grace).await
    }
}

/// A lock of a [`Party`].
#[derive(Debug, Clone)]
pub struct PartyMember {
    lock: Lock,
    fenced: bool,
    #[cfg(feature = "blocking")]
    blocking: Option<crate::blocking::Lock>,
}

impl PartyMember {
    /// The lock underneath, for methods that only the async API has, and to inspect it.
    pub fn lock(&self) -> &Lock {
        &self.lock
    }

    /// The same lock with fencing tokens.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.fenced = true;
        self
    }

    fn chosen(&self) -> AnyLock {
        AnyLock::new(self.lock.clone(), self.fenced)
    }

    /// Acquires the lock; waits if it is held.
    ///
    /// # Errors
    /// As the API under test.
    pub async fn acquire(&self) -> Result<Held> {
        self.acquire_with(AcquireOptions::new()).await
    }

    /// Acquires the lock with options.
    ///
    /// # Errors
    /// As the API under test.
    pub async fn acquire_with(&self, options: AcquireOptions) -> Result<Held> {
        #[cfg(feature = "blocking")]
        if let Some(lock) = self.blocking.clone() {
            let held = if self.fenced {
                let lock = lock.fenced();
                ThreadHeld::take(options, move |options| lock.acquire_with(options).map(Some)).await
            } else {
                ThreadHeld::take(options, move |options| lock.acquire_with(options).map(Some)).await
            };
            return Ok(Held::Thread(held?.expect("an acquire gives a guard")));
        }
        self.chosen().acquire_with(options).await.map(Held::Async)
    }

    /// Acquires the lock if it is free.
    ///
    /// # Errors
    /// As the API under test.
    pub async fn try_acquire(&self) -> Result<Option<Held>> {
        #[cfg(feature = "blocking")]
        if let Some(lock) = self.blocking.clone() {
            let options = AcquireOptions::new();
            let held = if self.fenced {
                let lock = lock.fenced();
                ThreadHeld::take(options, move |options| lock.try_acquire_with(options)).await
            } else {
                ThreadHeld::take(options, move |options| lock.try_acquire_with(options)).await
            };
            return Ok(held?.map(Held::Thread));
        }
        Ok(self.chosen().try_acquire().await?.map(Held::Async))
    }

    /// Returns whether the lock is held.
    pub async fn is_locked(&self) -> bool {
        self.lock
            .inspect()
            .await
            .expect("it can be read")
            .is_locked()
    }

    /// Returns whether there are no waiters, as far as the store can count them.
    pub async fn nobody_waits(&self) -> bool {
        self.waiters().await == 0
    }

    /// The number of waiters. Zero if the store cannot count them.
    pub async fn waiters(&self) -> u64 {
        let waiters = self.lock.inspect().await.expect("it can be read").waiters;
        waiters.unwrap_or(0)
    }
}

/// A held lock. A drop releases it.
#[derive(Debug)]
pub enum Held {
    /// The async guard.
    Async(AnyGuard),
    /// A blocking guard, on the thread that acquired it.
    #[cfg(feature = "blocking")]
    Thread(ThreadHeld),
}

impl Held {
    /// Returns whether the lock is proved to be held.
    pub async fn is_held(&self) -> bool {
        self.valid_for().await > Duration::ZERO
    }

    /// How long the lock is proved to be held from now on.
    #[allow(clippy::unused_async, reason = "the other face asks another thread")]
    pub async fn valid_for(&self) -> Duration {
        match self {
            Self::Async(guard) => guard.valid_for(),
            #[cfg(feature = "blocking")]
            Self::Thread(held) => held.ask(crate::blocking::Guard::valid_for).await,
        }
    }

    /// The sequencer of this hold.
    ///
    /// # Errors
    /// As the API under test.
    #[allow(clippy::unused_async, reason = "the other face asks another thread")]
    pub async fn sequencer(&self) -> Result<Sequencer> {
        match self {
            Self::Async(guard) => guard.sequencer(),
            #[cfg(feature = "blocking")]
            Self::Thread(held) => held.ask(crate::blocking::Guard::sequencer).await,
        }
    }

    /// The state: held, unsure or lost.
    #[allow(clippy::unused_async, reason = "the other face asks another thread")]
    pub async fn state(&self) -> HoldState {
        match self {
            Self::Async(guard) => guard.state(),
            #[cfg(feature = "blocking")]
            Self::Thread(held) => held.ask(crate::blocking::Guard::state).await,
        }
    }

    /// The token of a fenced lock.
    ///
    /// # Panics
    /// If the lock is not fenced.
    pub fn token(&self) -> FencingToken {
        let token = match self {
            Self::Async(guard) => guard.token(),
            #[cfg(feature = "blocking")]
            Self::Thread(held) => held.token,
        };
        token.expect("a fenced lock")
    }

    /// The owner id that the store sees.
    #[allow(clippy::unused_async, reason = "the other face asks another thread")]
    pub async fn owner_id(&self) -> String {
        match self {
            Self::Async(guard) => guard.owner_id(),
            #[cfg(feature = "blocking")]
            Self::Thread(held) => held.ask(crate::blocking::Guard::owner_id).await,
        }
    }

    /// Waits until the lock is lost.
    pub async fn lost(&self) -> LostReason {
        match self {
            Self::Async(guard) => guard.lost().await,
            #[cfg(feature = "blocking")]
            Self::Thread(held) => held.lost().await,
        }
    }

    /// Waits until the client begins to close.
    pub async fn closing(&self) {
        match self {
            Self::Async(guard) => guard.closing().await,
            #[cfg(feature = "blocking")]
            Self::Thread(held) => held.closing().await,
        }
    }

    /// Releases the lock, and waits for the store's answer.
    ///
    /// # Errors
    /// As the API under test.
    pub async fn release(self) -> Result<()> {
        match self {
            Self::Async(guard) => guard.release().await,
            #[cfg(feature = "blocking")]
            Self::Thread(held) => held.release().await,
        }
    }
}
