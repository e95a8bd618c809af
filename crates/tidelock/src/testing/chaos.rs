//! A wrapper that does to a store what networks do: delays, lost requests, lost replies, requests that arrive late.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::backend::{
    Ask, Attempt, Backend, Background, BoxFuture, Capabilities, ClientId, Env, Incarnation, Name,
    Page, Released, Renewal, Renewed, Store, Ticket, Timers,
};
use crate::error::{Error, ErrorKind, Result};
use crate::fence::SqlFence;
use crate::guard::FencingToken;
use crate::snapshot::{ClientInfo, Finding, Snapshot};

/// How often what happens. The same seed rolls the same dice; which request meets which roll depends on the scheduler.
#[derive(Clone)]
pub struct Faults {
    dice: Arc<Mutex<Dice>>,
    seed: u64,
    /// Of 100 requests, so many never arrive and say so.
    pub refused: u8,
    /// So many take effect, and their reply is lost.
    pub muted: u8,
    /// So many take effect only after their caller has been told that the outcome is unknown.
    pub late: u8,
    /// Each request and each reply is delayed by up to this much.
    pub delay: Duration,
    /// See [`pending`](Self::pending).
    pub pends: u8,
}

/// What one client asks about one name: who, and of what.
type Matter = (String, String);

struct Dice {
    rng: fastrand::Rng,
    /// How many faults in a row each of them has met.
    in_a_row: HashMap<Matter, u8>,
}

/// After so many faults in a row the next request of the same client about the same name is served. A store that does not
/// answer for a whole lease ends waits and holds, as it should, and that is tested apart: with bare dice one wait in some
/// ten thousand met such an outage by chance, and one run in ten was red.
const MOST_IN_A_ROW: u8 = 3;

impl Faults {
    /// Nothing happens.
    pub fn none() -> Self {
        Self {
            refused: 0,
            muted: 0,
            late: 0,
            delay: Duration::ZERO,
            pends: 0,
            ..Self::of_seed(0)
        }
    }

    /// Nothing happens, but each request pends so many times before it takes effect, and as often before it is answered:
    /// await points that a fast store never stops at. Reads and breaking a lock pend too.
    pub fn pending(times: u8) -> Self {
        Self {
            pends: times,
            ..Self::none()
        }
    }

    /// A bad day, from `TIDELOCK_CHAOS_SEED` or from a new seed, which is printed.
    pub fn seeded() -> Self {
        let given = std::env::var("TIDELOCK_CHAOS_SEED").ok();
        let seed = given
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().1);
        eprintln!("chaos: set TIDELOCK_CHAOS_SEED={seed} to roll these dice again");
        Self::of_seed(seed)
    }

    /// A bad day, of that seed.
    pub fn of_seed(seed: u64) -> Self {
        Self {
            dice: Arc::new(Mutex::new(Dice {
                rng: fastrand::Rng::with_seed(seed),
                in_a_row: HashMap::new(),
            })),
            seed,
            refused: 5,
            muted: 8,
            late: 8,
            delay: Duration::from_millis(4),
            pends: 0,
        }
    }

    /// Rarer: where one question goes to several stores, each with faults of its own.
    #[must_use]
    pub fn shared_by(self, stores: u8) -> Self {
        Self {
            refused: self.refused / stores,
            muted: self.muted / stores,
            late: self.late / stores,
            ..self
        }
    }

    /// A request may be about several: it is served if one of them has met enough.
    fn roll(&self, about: &[Matter]) -> Fate {
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        let Dice { rng, in_a_row } = &mut *dice;
        let pick = rng.u8(..100);
        let mut delay = || self.delay.mul_f64(rng.f64());
        let (before, after) = (delay(), delay());
        let refused = self.refused;
        let muted = refused + self.muted;
        let late = muted + self.late;
        let had_enough = |matter| in_a_row.get(matter) == Some(&MOST_IN_A_ROW);
        if pick >= late || about.iter().any(had_enough) {
            for matter in about {
                in_a_row.remove(matter);
            }
            return Fate::Served(before, after);
        }
        for matter in about {
            *in_a_row.entry(matter.clone()).or_default() += 1;
        }
        match pick {
            n if n < refused => Fate::Refused(before),
            n if n < muted => Fate::Muted(before, after),
            _ => Fate::Late(before, after * 4),
        }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults")
            .field("seed", &self.seed)
            .field("refused", &self.refused)
            .field("muted", &self.muted)
            .field("late", &self.late)
            .field("delay", &self.delay)
            .finish_non_exhaustive()
    }
}

enum Fate {
    Served(Duration, Duration),
    Refused(Duration),
    Muted(Duration, Duration),
    Late(Duration, Duration),
}

/// What is done to a connection by hand. The clones are one.
#[derive(Debug, Clone, Default)]
pub struct Plug(Arc<PlugState>);

#[derive(Debug, Default)]
struct PlugState {
    out: AtomicBool,
    mute_next: AtomicU64,
    asked: AtomicU64,
}

impl Plug {
    /// From now on no request arrives.
    pub fn pull(&self) {
        self.0.out.store(true, Ordering::SeqCst);
    }

    /// Requests arrive again.
    pub fn put_back(&self) {
        self.0.out.store(false, Ordering::SeqCst);
    }

    /// The next so many requests take effect, and their replies are lost.
    pub fn lose_replies(&self, count: u64) {
        self.0.mute_next.store(count, Ordering::SeqCst);
    }

    /// How many attempts, renewals, releases and withdrawals have been asked for.
    pub fn requests(&self) -> u64 {
        self.0.asked.load(Ordering::SeqCst)
    }

    fn mutes(&self) -> bool {
        let take = |left: u64| left.checked_sub(1);
        self.0
            .mute_next
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
            .is_ok()
    }
}

/// A store with faults. Reads are never lost.
#[derive(Debug)]
pub struct Chaos {
    inner: Arc<dyn Backend>,
    faults: Faults,
    plug: Plug,
    timers: Timers,
    background: Background,
}

impl Chaos {
    /// Puts faults before both faces of a store.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "the two faces share what is given"
    )]
    pub fn wrap(store: Store, env: &Env, faults: Faults, plug: Plug) -> Store {
        let before = |inner| {
            Arc::new(Self {
                inner,
                faults: faults.clone(),
                plug: plug.clone(),
                timers: env.timers.clone(),
                background: env.background.clone(),
            }) as Arc<dyn Backend>
        };
        Store {
            front: before(store.front),
            back: before(store.back),
        }
    }

    /// One request under its fate. `ask` may be called on another task than its caller's, and later.
    fn request<T: Send + 'static>(
        &self,
        about: Vec<Matter>,
        ask: impl FnOnce(Arc<dyn Backend>) -> BoxFuture<'static, Result<T>> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        Box::pin(async move {
            self.plug.0.asked.fetch_add(1, Ordering::SeqCst);
            if self.plug.0.out.load(Ordering::SeqCst) {
                return Err(Error::new(ErrorKind::Unavailable).because("chaos: unplugged"));
            }
            let fate = if self.plug.mutes() {
                Fate::Muted(Duration::ZERO, Duration::ZERO)
            } else {
                self.faults.roll(&about)
            };
            let inner = Arc::clone(&self.inner);
            match fate {
                Fate::Served(before, after) => {
                    self.pause(before).await;
                    let answer = self.slowly(ask(inner)).await;
                    self.pause(after).await;
                    answer
                }
                Fate::Refused(before) => {
                    self.pause(before).await;
                    Err(Error::new(ErrorKind::Unavailable).because("chaos: it never arrived"))
                }
                Fate::Muted(before, after) => {
                    self.pause(before).await;
                    drop(ask(inner).await);
                    self.pause(after).await;
                    Err(Error::new(ErrorKind::OutcomeUnknown).because("chaos: the reply was lost"))
                }
                Fate::Late(before, later) => {
                    self.pause(before).await;
                    let delay = self.timers.after(later);
                    self.background.spawn(async move {
                        delay.await;
                        drop(ask(inner).await);
                    });
                    Err(Error::new(ErrorKind::OutcomeUnknown).because("chaos: it arrives later"))
                }
            }
        })
    }

    /// Pends before and behind.
    async fn slowly<T>(&self, request: impl Future<Output = T>) -> T {
        for _ in 0..self.faults.pends {
            tokio::task::yield_now().await;
        }
        let answer = request.await;
        for _ in 0..self.faults.pends {
            tokio::task::yield_now().await;
        }
        answer
    }

    async fn pause(&self, time: Duration) {
        if !time.is_zero() {
            self.timers.after(time).await;
        }
    }
}

fn about(ticket: &Ticket) -> Matter {
    (ticket.owner.client().to_owned(), ticket.name.to_string())
}

impl Backend for Chaos {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn attempt<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Result<Attempt>> {
        let ask = ask.clone();
        self.request(vec![about(&ask.ticket)], move |inner| {
            Box::pin(async move { inner.attempt(&ask).await })
        })
    }

    fn in_doubt(&self, ticket: &Ticket) -> bool {
        self.inner.in_doubt(ticket)
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        let batch = batch.to_vec();
        let matters = batch.iter().map(|one| about(&one.ticket)).collect();
        self.request(matters, move |inner| {
            Box::pin(async move { inner.renew(&batch).await })
        })
    }

    fn lane(&self, name: &Name) -> u64 {
        self.inner.lane(name)
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        let ticket = ticket.clone();
        self.request(vec![about(&ticket)], move |inner| {
            Box::pin(async move { inner.release(&ticket).await })
        })
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        let ticket = ticket.clone();
        self.request(vec![about(&ticket)], move |inner| {
            Box::pin(async move { inner.withdraw(&ticket).await })
        })
    }

    fn check<'a>(
        &'a self,
        name: &'a Name,
        generation: FencingToken,
    ) -> BoxFuture<'a, Result<bool>> {
        let name = name.clone();
        let matter = (String::new(), name.to_string());
        self.request(vec![matter], move |inner| {
            Box::pin(async move { inner.check(&name, generation).await })
        })
    }

    fn force_release<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.slowly(self.inner.force_release(name)))
    }

    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        Box::pin(self.slowly(self.inner.inspect(name)))
    }

    fn list<'a>(&'a self, pattern: &'a str, cursor: u64) -> BoxFuture<'a, Result<Page>> {
        Box::pin(self.slowly(self.inner.list(pattern, cursor)))
    }

    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: &'a ClientInfo,
        keep: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        self.inner.announce(client, info, keep)
    }

    fn examine(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        self.inner.examine()
    }

    fn incarnation(&self) -> BoxFuture<'_, Result<Option<Incarnation>>> {
        self.inner.incarnation()
    }

    fn pause(&self, name: &Name) -> Option<Duration> {
        self.inner.pause(name)
    }

    fn plain(&self) -> Option<Arc<dyn Backend>> {
        let inner = self.inner.plain()?;
        Some(Arc::new(Self {
            inner,
            faults: self.faults.clone(),
            plug: self.plug.clone(),
            timers: self.timers.clone(),
            background: self.background.clone(),
        }))
    }

    fn sql_fence(&self, name: &Name, token: FencingToken) -> Option<SqlFence> {
        self.inner.sql_fence(name, token)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.slowly(self.inner.close()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_day_is_no_outage() {
        let faults = Faults {
            refused: 100,
            ..Faults::of_seed(1)
        };
        let of = |client: &str, name: &str| (client.to_owned(), name.to_owned());
        let served = |about: &[Matter]| matches!(faults.roll(about), Fate::Served(..));
        let [a, b] = ["a", "b"].map(|client| of(client, "stock"));
        // Another client's requests between them change nothing.
        let fates: Vec<bool> = (0..8)
            .map(|_| {
                let fate = served(std::slice::from_ref(&a));
                served(std::slice::from_ref(&b));
                fate
            })
            .collect();
        let row = [false, false, false, true];
        assert_eq!(fates, [row, row].concat());
        // Nor does it help to come with another one each time.
        let fates = ["x", "y", "z", "till"].map(|name| served(&[of("c", name), of("c", "stock")]));
        assert_eq!(fates, row);
    }
}
