//! The fixture: creates the clients of a test in the suite of promises.

mod bounds;

use std::any::Any;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::chaos::Chaos;
use super::faults::Faults;
use super::party::Party;
use super::recast::{FAIR, PERMIT, Recast, SPIN, WRITER};
use super::twist::Twisted;
use crate::builder::ClientBuilder;
use crate::client::Client;
use crate::engine::runtime::background::Stop;
use crate::error::Result;
use crate::store::set::{self, Member, Quorum, Rule};
use crate::store::{
    Backend, Background, BoxFuture, Capabilities, Clock, Env, OwnerId, Store, Timers, ready,
    registry,
};
use crate::test_util::Plug;

/// How long what a cancelled operation needs no longer may stay in the store: a subscription lingers for a moment, so that
/// the next waiter can use it.
const LINGERS: Duration = Duration::from_secs(30);

/// How long a single request to the bare store waits for its answer. The store answers, but not always while the machine is
/// busy.
const PATIENCE: Duration = Duration::from_secs(10);

type LookForLeftovers = Arc<dyn Fn() -> Option<String> + Send + Sync>;

type Open = Arc<dyn for<'a> Fn(&'a Env) -> BoxFuture<'a, Result<Store>> + Send + Sync>;

/// Creates clients that share one store. The tests use their own lock names, so the store need not be empty.
#[derive(Clone)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "they have nothing to do with each other"
)]
pub struct Fixture {
    open: Open,
    lease: Duration,
    /// The lease that its clients ask for: `lease`, unless it is [patient](Fixture::patient).
    asked: Duration,
    faults: Option<Faults>,
    /// A part of the store has faults.
    faulty: bool,
    kept: Option<Arc<dyn Any + Send + Sync>>,
    leftovers: Option<LookForLeftovers>,
    odd_braces: bool,
    /// Its locks may be parts of a set.
    sets: bool,
    clock: Clock,
    /// How the store shows an owner.
    shows: fn(OwnerId) -> String,
    #[cfg(feature = "blocking")]
    blocking: bool,
}

impl Fixture {
    /// Clients of the store at this URL.
    pub fn url(url: impl Into<String>) -> Self {
        let url: Arc<str> = url.into().into();
        Self::opened_by(move |env| {
            let url = Arc::clone(&url);
            Box::pin(async move { registry::connect(&url, env).await })
        })
    }

    /// Clients of a fresh store in this process.
    pub fn memory() -> Self {
        Self::url(format!("memory:{}", unique("fixture")))
    }

    /// Clients of a fresh store in this process that can do what the store of this name can.
    pub fn memory_like(store: &str) -> Self {
        Self::url(format!("memory:{}?like={store}", unique("fixture")))
    }

    /// Clients of a store of your own.
    pub fn opened_by(
        open: impl for<'a> Fn(&'a Env) -> BoxFuture<'a, Result<Store>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            open: Arc::new(open),
            lease: LEASE * factor(),
            asked: LEASE * factor(),
            faults: None,
            faulty: false,
            kept: None,
            leftovers: None,
            shows: |owner| owner.to_string(),
            odd_braces: true,
            sets: true,
            clock: Clock::Boot,
            #[cfg(feature = "blocking")]
            blocking: false,
        }
    }

    /// Clients of a store of your own that needs no connection to open.
    pub fn of<B: Backend>(make: impl Fn(&Env) -> B + Send + Sync + 'static) -> Self {
        Self::opened_by(move |env| ready(Ok(Store::single(Arc::new(make(env))))))
    }

    /// Clients of a set of stores. A lock is held if it is held in every store.
    pub fn all_of(parts: impl IntoIterator<Item = Self>) -> Self {
        Self::set_of(parts, |_| Rule::All)
    }

    /// Clients of a set of stores. A lock is held if it is held in a majority of the stores.
    pub fn majority_of(parts: impl IntoIterator<Item = Self>) -> Self {
        Self::set_of(parts, |env| {
            Rule::Majority(Quorum::new(env.lease / 6, false, env.lease))
        })
    }

    fn set_of(
        parts: impl IntoIterator<Item = Self>,
        rule: impl Fn(&Env) -> Rule + Send + Sync + 'static,
    ) -> Self {
        let parts: Arc<[Self]> = parts.into_iter().collect();
        let rule = Arc::new(rule);
        // We inject faults into each part and not into the whole set, because a set never gets two requests of one
        // ticket at the same time.
        let faulty = parts.iter().any(Self::is_faulty);
        let kept = Arc::clone(&parts);
        let whole = Self::opened_by(move |env| {
            let (parts, rule) = (Arc::clone(&parts), Arc::clone(&rule));
            Box::pin(async move {
                let mut members = Vec::new();
                for (n, part) in parts.iter().enumerate() {
                    let store = part.store(env).await?;
                    members.push(Member::new(store, None, format!("part {n}"), None));
                }
                Ok(set::open(set::Plan {
                    rule: rule(env),
                    members,
                    timers: env.timers.clone(),
                    background: env.background.clone(),
                    response_timeout: env.response_timeout,
                }))
            })
        });
        Self {
            faulty,
            ..whole.keeping(kept)
        }
    }

    /// Wraps the store with a wrapper of your own.
    #[must_use]
    pub fn wrapped(self, wrap: impl Fn(&Env, Store) -> Store + Send + Sync + 'static) -> Self {
        let (open, wrap) = (Arc::clone(&self.open), Arc::new(wrap));
        Self {
            open: Arc::new(move |env| {
                let (open, wrap) = (Arc::clone(&open), Arc::clone(&wrap));
                Box::pin(async move { open(env).await.map(|store| wrap(env, store)) })
            }),
            ..self
        }
    }

    /// Makes each lock one of another kind, which may not be a part of a set.
    fn recast(self, kind: Recast) -> Self {
        Self {
            sets: false,
            ..self.wrapped(move |_, store| Twisted::wrap(store, kind))
        }
    }

    /// Makes each lock the write side of a read-write lock. It passes the tests of any lock.
    #[must_use]
    pub fn as_writer(self) -> Self {
        self.recast(WRITER)
    }

    /// Makes each lock a fair lock. It passes the tests of any lock.
    #[must_use]
    pub fn as_fair(self) -> Self {
        self.recast(FAIR)
    }

    /// Makes each lock a spin lock. It passes the tests of any lock.
    #[must_use]
    pub fn as_spin(self) -> Self {
        self.recast(SPIN)
    }

    /// Makes each lock a semaphore with one permit. It passes the tests of any lock.
    #[must_use]
    pub fn as_permit(self) -> Self {
        Self {
            shows: |owner| owner.permit_id(0),
            ..self.recast(PERMIT)
        }
    }

    /// The owner id of a hold as the store shows it.
    pub(super) fn shown(&self, owner: &str) -> String {
        (self.shows)(OwnerId::of_text(owner))
    }

    /// Keeps a value, such as a folder or a server, for the lifetime of the fixture.
    #[must_use]
    pub fn keeping(mut self, thing: impl Any + Send + Sync) -> Self {
        self.kept = Some(Arc::new(thing));
        self
    }

    /// Looks into the store itself after the promise of a generated test: `leftovers` names what it finds there. The test
    /// fails if it still finds something after half a minute. It needs a store of its own.
    #[must_use]
    pub fn checked_by(
        mut self,
        leftovers: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.leftovers = Some(Arc::new(leftovers));
        self
    }

    pub(super) async fn until_nothing_is_left(&self) {
        let Some(leftovers) = &self.leftovers else {
            return;
        };
        let begun = tokio::time::Instant::now();
        while let Some(what) = leftovers() {
            assert!(begun.elapsed() < LINGERS, "left in the store: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sets the lease of the tests. Default: 900 ms. Use a longer one for a slower store. `TIDELOCK_LEASE_FACTOR=2` in the
    /// environment doubles all of them, for a busy machine. A fixture that is [`simulated`](Self::simulated) already takes this
    /// lease as it is: there nobody waits for a core until a lease ends.
    #[must_use]
    pub fn lease_of(mut self, lease: Duration) -> Self {
        let factor = if self.is_simulated() { 1 } else { factor() };
        self.lease = lease * factor;
        self.asked = self.lease;
        self
    }

    /// Wraps the store with random delays, losses and repeats. Prints the seed; `TIDELOCK_CHAOS_SEED` sets it.
    #[must_use]
    pub fn through_chaos(self) -> Self {
        self.through(Faults::seeded())
    }

    /// Wraps the store with the given faults.
    #[must_use]
    pub fn through(mut self, faults: Faults) -> Self {
        self.faults = Some(faults);
        self
    }

    /// Runs each test on one thread and a clock that jumps to the next timer, so that no lease is waited for. For stores
    /// that read the time from [`Env::timers`] only.
    #[must_use]
    pub fn simulated(mut self) -> Self {
        self.clock = Clock::Simulated;
        self
    }

    /// Uses the store through [`blocking`](crate::blocking), with each acquisition on its own thread.
    #[cfg(feature = "blocking")]
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.blocking = true;
        self
    }

    /// Declares that the store refuses names with braces that form no hash tag.
    #[must_use]
    pub fn without_odd_braces(mut self) -> Self {
        self.odd_braces = false;
        self
    }

    /// True if the store accepts names with braces that form no hash tag.
    pub fn takes_odd_braces(&self) -> bool {
        self.odd_braces
    }

    /// True if its locks may be parts of a set: only plain locks may.
    pub fn has_sets(&self) -> bool {
        self.sets
    }

    /// True if faults are injected.
    pub fn is_faulty(&self) -> bool {
        self.faulty || self.faults.is_some()
    }

    pub(super) fn is_simulated(&self) -> bool {
        self.clock == Clock::Simulated
    }

    /// Settings for a client of this fixture.
    pub fn builder(&self) -> ClientBuilder {
        let builder = Client::builder()
            .lease(self.asked)
            .response_timeout(self.lease * 2)
            .publish_process_info(false);
        match self.clock {
            Clock::Boot => builder,
            Clock::Simulated => builder.simulated_time(),
        }
    }

    /// A client with these settings.
    pub async fn client(&self, builder: ClientBuilder) -> Client {
        builder
            .connect_to(async |env: &Env| self.store(env).await)
            .await
            .expect("the fixture's store can be opened")
    }

    /// Creates a party, which locks through the API that this fixture tests.
    pub async fn party(&self) -> Party {
        self.party_with(self.builder()).await
    }

    /// Like [`party`](Self::party), with the given settings.
    pub async fn party_with(&self, builder: ClientBuilder) -> Party {
        self.party_through(builder, |_, store| store).await
    }

    /// Creates a party with a connection that can be unplugged, as if the process had died or lost its network.
    pub async fn mortal(&self, builder: ClientBuilder) -> (Party, Plug) {
        let plug = Plug::default();
        let hand = plug.clone();
        let party = self
            .party_through(builder, move |env, store| {
                Chaos::wrap(store, env, Faults::none(), hand.clone())
            })
            .await;
        (party, plug)
    }

    /// Opens the store behind this fixture's faults.
    async fn store(&self, env: &Env) -> Result<Store> {
        let store = (self.open)(env).await?;
        Ok(match &self.faults {
            Some(faults) => Chaos::wrap(store, env, faults.clone(), Plug::default()),
            None => store,
        })
    }

    async fn party_through(
        &self,
        builder: ClientBuilder,
        around: impl Fn(&Env, Store) -> Store + Send + 'static,
    ) -> Party {
        let this = self.clone();
        #[cfg(feature = "blocking")]
        if self.blocking {
            return Party::blocking(move || {
                let open =
                    async move |env: &Env| this.store(env).await.map(|store| around(env, store));
                crate::blocking::Client::from_async(builder.connect_to(open))
            })
            .await;
        }
        let open = async move |env: &Env| this.store(env).await.map(|store| around(env, store));
        Party::asynchronous(builder.connect_to(open).await.expect("the store opens"))
    }

    /// Opens the bare store, without a client and without faults, for tests of single requests.
    pub async fn bare(&self) -> Bare {
        let clock = self.clock;
        let (background, stop) = Background::start(clock).expect("a thread");
        let timers = Timers::new(clock);
        background.spawn(timers.clone().drive());
        let env = Env {
            response_timeout: (self.lease * 2).max(PATIENCE),
            ..Env::of_limits(timers, background, self.lease)
        };
        let store = (self.open)(&env).await.expect("the store opens");
        Bare { store, _stop: stop }
    }

    /// The capabilities of the store.
    pub async fn capabilities(&self) -> Capabilities {
        self.bare().await.store.front.capabilities()
    }
}

/// A store without a client. Its background thread ends with it.
#[derive(Debug)]
pub struct Bare {
    /// The store.
    pub store: Store,
    _stop: Stop,
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixture")
            .field("lease", &self.lease)
            .field("faults", &self.faults)
            .finish_non_exhaustive()
    }
}

/// Opens the store at a URL, for use in a wrapper.
///
/// # Errors
/// The errors of [`Client::connect`].
///
/// # Cancel safety
/// Cancel safe. If the future is dropped, its connections are closed.
pub async fn open(url: &str, env: &Env) -> Result<Store> {
    registry::connect(url, env).await
}

/// The lease of a fixture that sets none.
const LEASE: Duration = Duration::from_millis(900);

/// How many times longer the leases are than their fixtures say.
fn factor() -> u32 {
    let given = std::env::var("TIDELOCK_LEASE_FACTOR").ok();
    given.map_or(1, |text| {
        let factor = text.parse::<NonZeroU32>();
        factor
            .expect("TIDELOCK_LEASE_FACTOR is a whole number above 0")
            .get()
    })
}

/// Returns a unique name.
pub(super) fn unique(base: &str) -> String {
    format!("{base}:{}", uuid::Uuid::new_v4().simple())
}

/// Polls until a condition is true. Panics after `limit`.
pub(super) async fn eventually<F: Future<Output = bool>>(
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> F,
) {
    let begun = tokio::time::Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits for an event. Panics after `limit`.
pub(super) async fn within<T>(what: &str, limit: Duration, event: impl Future<Output = T>) -> T {
    tokio::time::timeout(limit, event)
        .await
        .unwrap_or_else(|_| panic!("not within {limit:?}: {what}"))
}
