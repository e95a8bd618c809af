//! Acquires a lock for a command: says what it waits for, and why it gave up.

use std::time::{Duration, Instant};

use tidelock::once::SlotRun;
use tidelock::{
    AcquireOptions, Client, ErrorKind, FencedGuard, FencingToken, Guard, Lock, LockGuard, Permits,
};

use crate::args::StoreArgs;
use crate::covers::Shown;
use crate::exit::{self, Failure, Outcome};
use crate::inspect::as_text;
use crate::which::Which;
use crate::{shell, store, waiting};

/// Bounds the time in which the store must say who holds the lock, once the wait for it has ended.
const LOOK: Duration = Duration::from_secs(1);

/// A lock that a command holds, and its token if it asked for one.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) guard: Guard,
    pub(crate) token: Option<FencingToken>,
    /// The slot that the command runs, if it runs once per slot.
    #[cfg_attr(windows, allow(dead_code))]
    pub(crate) run: Option<SlotRun>,
    /// The term that the command leads in, if it leads an election.
    #[cfg_attr(windows, allow(dead_code))]
    pub(crate) term: Option<u64>,
}

impl From<Guard> for Held {
    fn from(guard: Guard) -> Self {
        Self {
            guard,
            token: None,
            run: None,
            term: None,
        }
    }
}

impl From<FencedGuard> for Held {
    fn from(guard: FencedGuard) -> Self {
        Self {
            token: Some(guard.token()),
            guard: guard.into(),
            run: None,
            term: None,
        }
    }
}

impl From<Permits> for Held {
    fn from(permits: Permits) -> Self {
        Guard::from(permits).into()
    }
}

/// Acquires the lock, with a token if `fenced`.
pub(crate) async fn acquire(
    lock: &Lock,
    fenced: bool,
    options: AcquireOptions,
) -> tidelock::Result<Held> {
    if fenced {
        let guard = lock.clone().fenced().acquire_with(options).await;
        return guard.map(Held::from);
    }
    lock.acquire_with(options).await.map(Held::from)
}

/// The lock that a command wants, and how.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a str,
    pub(crate) which: &'a Which,
    pub(crate) fenced: bool,
    /// `None`: wait as long as somebody holds the lock. Connecting counts too.
    pub(crate) wait: Option<Duration>,
    /// When the wait began.
    pub(crate) begun: Instant,
    pub(crate) max_hold: Option<Duration>,
    /// Replaces the exit code of a lock that was not acquired.
    pub(crate) conflict_exit_code: Option<u8>,
}

impl Wanted<'_> {
    pub(crate) async fn acquire(&self, store: &StoreArgs, client: &Client) -> Outcome<Held> {
        let mut options = AcquireOptions::new();
        if let Some(limit) = self.wait {
            options = options.wait(limit.saturating_sub(self.begun.elapsed()));
        }
        if let Some(cap) = self.max_hold {
            options = options.max_hold(cap);
        }
        if let Some(permits) = self.which.permits {
            let permits = permits.lock(client, self.name).await?;
            let acquired = async { permits.acquire_with(options).await.map(Held::from) };
            return self.explained(store, &permits, acquired).await;
        }
        let lock = self.which.lock(client, self.name)?;
        let acquired = acquire(&lock, self.fenced, options);
        self.explained(store, &lock, acquired).await
    }

    /// Waits for the lock, says what it waits for, and why it was not acquired.
    async fn explained<G: LockGuard>(
        &self,
        store: &StoreArgs,
        lock: &Lock<G>,
        acquired: impl Future<Output = tidelock::Result<Held>>,
    ) -> Outcome<Held> {
        let acquired = tokio::select! {
            biased; // a grant ends the wait before anything is said about it
            acquired = acquired => acquired,
            never = waiting::explain(store, lock) => match never {},
        };
        match acquired {
            Ok(held) => Ok(held),
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                let message = self.not_acquired(store, lock).await?;
                let code = self.conflict_exit_code.unwrap_or(exit::NOT_ACQUIRED);
                Err(Failure::new(code, message))
            }
            Err(error) => Err(Failure::of_lock(error, lock.name())),
        }
    }

    /// Why the lock was not acquired: how long we waited, who holds it, in which store, and what to do next.
    async fn not_acquired<G: LockGuard>(
        &self,
        store: &StoreArgs,
        lock: &Lock<G>,
    ) -> Outcome<String> {
        let name = lock.name();
        let within = match self.wait {
            Some(limit) if !limit.is_zero() => {
                format!(" within {}", humantime::format_duration(limit))
            }
            _ => String::new(),
        };
        let seen = match tokio::time::timeout(LOOK, lock.inspect()).await {
            Ok(Ok(seen)) if seen.is_locked() || seen.permits.is_some() || seen.latch.is_some() => {
                as_text(&seen)
            }
            Ok(Ok(_)) => format!("{name}: free by now"),
            _ => format!("{name}: the store does not say who holds it"),
        };
        // `as_text` begins with the name.
        let state = seen.strip_prefix(name).unwrap_or(&seen);
        let shown = Shown::of(store)?;
        let advice = self.advice(store).unwrap_or_default();
        Ok(format!(
            "{name}: not acquired{within}{state}; store: {shown}{advice}"
        ))
    }

    /// The command that shows the lock. `None`: it cannot be written.
    fn advice(&self, store: &StoreArgs) -> Option<String> {
        let mut words = vec!["tidelock".to_owned()];
        // The name is the one that the user typed, without the prefix. The command adds the prefix again, and without
        // the flag it would take the one of the environment, if any: it would show another lock.
        let prefix = store::prefix(store);
        if store.prefix.is_some() || !prefix.is_empty() {
            words.push(format!("--prefix={prefix}"));
        }
        let names = std::iter::once(self.name).chain(self.which.also.iter().map(String::as_str));
        let names: Vec<String> = names.map(str::to_owned).collect();
        let (command, shows) = if names.len() == 1 {
            ("watch", "shows each change")
        } else {
            ("show", "shows them")
        };
        words.push(command.to_owned());
        if names.iter().any(|name| name.starts_with('-')) {
            words.push("--".to_owned());
        }
        words.extend(names);
        let command = shell::line_of(&words)?;
        Some(format!("; `{command}` {shows}"))
    }
}
