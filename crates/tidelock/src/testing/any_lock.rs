//! A lock with or without fencing tokens, chosen at run time: for tests and tools that do the same with both.

use std::ops::Deref;

use crate::error::Result;
use crate::fenced::FencedGuard;
use crate::guard::Guard;
use crate::lock::{FencedLock, Lock};
use crate::options::AcquireOptions;
use crate::release::Release;
use crate::snapshot::Snapshot;
use crate::types::FencingToken;

/// A [`Lock`] or a [`FencedLock`].
#[derive(Debug, Clone)]
pub enum AnyLock {
    /// Without tokens.
    Plain(Lock),
    /// With tokens.
    Fenced(FencedLock),
}

impl AnyLock {
    /// The lock, with tokens if `fenced`.
    pub fn new(lock: Lock, fenced: bool) -> Self {
        if fenced {
            Self::Fenced(lock.fenced())
        } else {
            Self::Plain(lock)
        }
    }

    /// The name, prefix included.
    pub fn name(&self) -> &str {
        match self {
            Self::Plain(lock) => lock.name(),
            Self::Fenced(lock) => lock.name(),
        }
    }

    /// See [`Lock::acquire`].
    ///
    /// # Errors
    /// As the lock.
    pub async fn acquire(&self) -> Result<AnyGuard> {
        self.acquire_with(AcquireOptions::new()).await
    }

    /// See [`Lock::acquire_with`].
    ///
    /// # Errors
    /// As the lock.
    pub async fn acquire_with(&self, options: AcquireOptions) -> Result<AnyGuard> {
        match self {
            Self::Plain(lock) => lock.acquire_with(options).await.map(AnyGuard::from),
            Self::Fenced(lock) => lock.acquire_with(options).await.map(AnyGuard::from),
        }
    }

    /// See [`Lock::try_acquire`].
    ///
    /// # Errors
    /// As the lock.
    pub async fn try_acquire(&self) -> Result<Option<AnyGuard>> {
        Ok(match self {
            Self::Plain(lock) => lock.try_acquire().await?.map(AnyGuard::from),
            Self::Fenced(lock) => lock.try_acquire().await?.map(AnyGuard::from),
        })
    }

    /// See [`Lock::inspect`].
    ///
    /// # Errors
    /// As the lock.
    pub async fn inspect(&self) -> Result<Snapshot> {
        match self {
            Self::Plain(lock) => lock.inspect().await,
            Self::Fenced(lock) => lock.inspect().await,
        }
    }

    /// See [`Lock::force_release`].
    ///
    /// # Errors
    /// As the lock.
    pub async fn force_release(&self) -> Result<bool> {
        match self {
            Self::Plain(lock) => lock.force_release().await,
            Self::Fenced(lock) => lock.force_release().await,
        }
    }
}

impl From<Lock> for AnyLock {
    fn from(lock: Lock) -> Self {
        Self::Plain(lock)
    }
}

impl From<FencedLock> for AnyLock {
    fn from(lock: FencedLock) -> Self {
        Self::Fenced(lock)
    }
}

/// A held [`AnyLock`]: the guard, and its token if it has one.
#[derive(Debug)]
pub struct AnyGuard {
    guard: Guard,
    token: Option<FencingToken>,
}

impl AnyGuard {
    /// The token of a fenced lock.
    pub fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// The token as a number, zero without one.
    pub fn number(&self) -> u64 {
        self.token.map_or(0, FencingToken::get)
    }

    /// See [`Guard::reenter`].
    #[must_use]
    pub fn reenter(&self) -> Self {
        Self {
            guard: self.guard.reenter(),
            token: self.token,
        }
    }

    /// See [`Guard::release`].
    pub fn release(self) -> Release {
        self.guard.release()
    }
}

impl Deref for AnyGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl From<Guard> for AnyGuard {
    fn from(guard: Guard) -> Self {
        Self { guard, token: None }
    }
}

impl From<FencedGuard> for AnyGuard {
    fn from(guard: FencedGuard) -> Self {
        Self {
            token: Some(guard.token()),
            guard: guard.into(),
        }
    }
}
