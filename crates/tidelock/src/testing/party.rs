//! Somebody who locks, through whichever face is tested: the promises are written once for all of them.

use std::time::Duration;

#[cfg(feature = "blocking")]
use super::threads::{self, ThreadHeld};
use crate::client::Client;
use crate::error::Result;
use crate::guard::{FencingToken, Guard, LostReason};
use crate::lock::Lock;
use crate::options::AcquireOptions;
use crate::read_write::ReadWriteLock;
use crate::sequencer::Sequencer;
use crate::state::HoldState;

/// A client, through one of its faces. The clones are one client.
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

    /// A lock of that name.
    pub fn lock(&self, name: &str) -> Place {
        Place {
            lock: self.client.lock(name),
            #[cfg(feature = "blocking")]
            blocking: self.blocking.as_ref().map(|client| client.lock(name)),
        }
    }

    /// A lock of that name with tokens.
    pub fn fenced_lock(&self, name: &str) -> Place {
        Place {
            lock: self.client.fenced_lock(name),
            #[cfg(feature = "blocking")]
            blocking: self
                .blocking
                .as_ref()
                .map(|client| client.fenced_lock(name)),
        }
    }

    /// Asks the store about a hold.
    ///
    /// # Errors
    /// As the face under test.
    pub async fn check(&self, sequencer: &Sequencer) -> Result<bool> {
        #[cfg(feature = "blocking")]
        if let Some(client) = self.blocking.clone() {
            let sequencer = sequencer.clone();
            return threads::apart(move || client.check(&sequencer)).await;
        }
        self.client.check(sequencer).await
    }

    /// The side for reading of a read-write lock of that name.
    ///
    /// # Panics
    /// If the store has no such locks.
    pub fn read(&self, name: &str) -> Place {
        Place {
            lock: self.sides(name).read(),
            #[cfg(feature = "blocking")]
            blocking: self.blocking_sides(name).map(|sides| sides.read()),
        }
    }

    /// Its side for writing.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    pub fn write(&self, name: &str) -> Place {
        Place {
            lock: self.sides(name).write(),
            #[cfg(feature = "blocking")]
            blocking: self.blocking_sides(name).map(|sides| sides.write()),
        }
    }

    fn sides(&self, name: &str) -> ReadWriteLock {
        let sides = self.client.read_write_lock(name);
        sides.expect("the store has read-write locks")
    }

    #[cfg(feature = "blocking")]
    fn blocking_sides(&self, name: &str) -> Option<crate::blocking::ReadWriteLock> {
        let sides = self.blocking.as_ref()?.read_write_lock(name);
        Some(sides.expect("the store has read-write locks"))
    }

    /// Closes the client.
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
pub struct Place {
    lock: Lock,
    #[cfg(feature = "blocking")]
    blocking: Option<crate::blocking::Lock>,
}

impl Place {
    /// The lock underneath, for what only the async face has, and for looking.
    pub fn lock(&self) -> &Lock {
        &self.lock
    }

    /// Waits and takes it.
    ///
    /// # Errors
    /// As the face under test.
    pub async fn acquire(&self) -> Result<Held> {
        self.acquire_with(AcquireOptions::new()).await
    }

    /// Takes it, with options.
    ///
    /// # Errors
    /// As the face under test.
    pub async fn acquire_with(&self, options: AcquireOptions) -> Result<Held> {
        #[cfg(feature = "blocking")]
        if let Some(lock) = self.blocking.clone() {
            let held =
                ThreadHeld::take(options, move |options| lock.acquire_with(options).map(Some));
            return Ok(Held::Thread(held.await?.expect("an acquire gives a guard")));
        }
        self.lock.acquire_with(options).await.map(Held::Async)
    }

    /// Takes it if it is free.
    ///
    /// # Errors
    /// As the face under test.
    pub async fn try_acquire(&self) -> Result<Option<Held>> {
        #[cfg(feature = "blocking")]
        if let Some(lock) = self.blocking.clone() {
            let held = ThreadHeld::take(AcquireOptions::new(), move |options| {
                lock.try_acquire_with(options)
            });
            return Ok(held.await?.map(Held::Thread));
        }
        Ok(self.lock.try_acquire().await?.map(Held::Async))
    }

    /// Somebody holds it.
    pub async fn is_locked(&self) -> bool {
        self.lock
            .inspect()
            .await
            .expect("it can be read")
            .is_locked()
    }

    /// Nobody waits for it, as far as the store can tell.
    pub async fn nobody_waits(&self) -> bool {
        self.waiters().await == 0
    }

    /// How many wait for it, as far as the store can tell.
    pub async fn waiters(&self) -> u64 {
        let waiters = self.lock.inspect().await.expect("it can be read").waiters;
        waiters.unwrap_or(0)
    }
}

/// A held lock. Dropping it releases.
#[derive(Debug)]
pub enum Held {
    /// The async guard.
    Async(Guard),
    /// A blocking guard, on the thread that acquired it.
    #[cfg(feature = "blocking")]
    Thread(ThreadHeld),
}

impl Held {
    /// The lock is proved to be held.
    pub async fn is_held(&self) -> bool {
        self.valid_for().await > Duration::ZERO
    }

    /// For how long at least.
    #[allow(clippy::unused_async, reason = "the other face asks another thread")]
    pub async fn valid_for(&self) -> Duration {
        match self {
            Self::Async(guard) => guard.valid_for(),
            #[cfg(feature = "blocking")]
            Self::Thread(held) => held.ask(crate::blocking::Guard::valid_for).await,
        }
    }

    /// The hold in writing.
    ///
    /// # Errors
    /// As the face under test.
    #[allow(clippy::unused_async, reason = "the other face asks another thread")]
    pub async fn sequencer(&self) -> Result<Sequencer> {
        match self {
            Self::Async(guard) => guard.sequencer(),
            #[cfg(feature = "blocking")]
            Self::Thread(held) => held.ask(crate::blocking::Guard::sequencer).await,
        }
    }

    /// Held, unsure or lost.
    #[allow(clippy::unused_async, reason = "the other face asks another thread")]
    pub async fn state(&self) -> HoldState {
        match self {
            Self::Async(guard) => guard.state(),
            #[cfg(feature = "blocking")]
            Self::Thread(held) => held.ask(crate::blocking::Guard::state).await,
        }
    }

    /// The token.
    #[allow(clippy::unused_async, reason = "the other face asks another thread")]
    pub async fn token(&self) -> Option<FencingToken> {
        match self {
            Self::Async(guard) => guard.token(),
            #[cfg(feature = "blocking")]
            Self::Thread(held) => held.ask(crate::blocking::Guard::token).await,
        }
    }

    /// The owner on the wire.
    #[allow(clippy::unused_async, reason = "the other face asks another thread")]
    pub async fn owner_id(&self) -> String {
        match self {
            Self::Async(guard) => guard.owner_id(),
            #[cfg(feature = "blocking")]
            Self::Thread(held) => held.ask(crate::blocking::Guard::owner_id).await,
        }
    }

    /// Waits for the loss.
    pub async fn lost(&self) -> LostReason {
        match self {
            Self::Async(guard) => guard.lost().await,
            #[cfg(feature = "blocking")]
            Self::Thread(held) => held.lost().await,
        }
    }

    /// Releases and waits for it.
    ///
    /// # Errors
    /// As the face under test.
    pub async fn release(self) -> Result<()> {
        match self {
            Self::Async(guard) => guard.release().await,
            #[cfg(feature = "blocking")]
            Self::Thread(held) => held.release().await,
        }
    }
}
