//! Ways in for the fuzz targets of `fuzz/`, one for each thing that reads bytes from outside: whatever it is given, it does
//! not panic, and what is said of it here holds. The same functions run on a few thousand inputs with every `cargo test`.
//!
//! Not for anybody else: no promise of stability.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a panic is how a property says that it does not hold"
)]

use std::time::Duration;

use crate::AcquireOptions;
use crate::engine::lease::granted::GrantedTicket;
use crate::engine::lease::status::HoldStatus;
use crate::error::ErrorKind;
use crate::name::Name;
use crate::store::fuzz as stores;
use crate::store::{BootInstant, Clock};
use crate::types::Drift;

/// URLs of Redis: one server, a socket, sentinels, a cluster.
#[cfg(feature = "redis")]
pub fn redis_url(text: &str) {
    stores::redis_url(text);
}

/// URLs of the other stores.
pub fn other_url(text: &str) {
    stores::other_url(text);
}

/// The passwords in a URL, as its store reads them. None where it is refused.
pub fn passwords(url: &str) -> Vec<String> {
    stores::passwords(url)
}

/// Environment variables make settings or an error. Neither shows a password.
pub fn environment() {
    let shown = match crate::Client::builder().from_env() {
        Ok(builder) => format!("{builder:?} {:?}", builder.check().err()),
        Err(error) => format!("{error} {error:?}"),
    };
    let secret = "hunter2";
    let (password, others): (Vec<_>, Vec<_>) = std::env::vars_os()
        .filter(|(name, _)| name.to_string_lossy().starts_with("TIDELOCK_"))
        .filter(|(_, text)| text.to_string_lossy().contains(secret))
        .partition(|(name, _)| name == "TIDELOCK_PASSWORD");
    // A value that is also a prefix may be shown as the prefix.
    if !password.is_empty() && others.is_empty() {
        assert!(!shown.contains(secret), "{shown}");
    }
}

/// Lock names, and what each store makes of them.
pub fn name(text: &str) {
    let Ok(name) = Name::new(text) else {
        assert!(text.is_empty() || text.len() > 512 || text.contains('\0'));
        return;
    };
    assert_eq!(name.as_str(), text);
    stores::name(&name);
}

/// What a Redis server says, as it comes from the socket.
#[cfg(feature = "redis")]
pub fn redis_reply(bytes: &[u8]) {
    crate::store::redis::fuzz::reply(bytes);
}

/// What a Redis server says unasked, and the texts of its errors and of its `INFO`.
#[cfg(feature = "redis")]
pub fn redis_text(text: &str) {
    crate::store::redis::fuzz::text(text);
}

/// What memcached says, torn anywhere.
#[cfg(feature = "memcached")]
pub fn memcached_reply(bytes: &[u8]) {
    crate::store::memcached::fuzz::reply(bytes);
}

/// What etcd says.
#[cfg(feature = "etcd")]
pub fn etcd_answer(bytes: &[u8]) {
    crate::store::etcd::fuzz::answer(bytes);
}

/// The nodes of a ZooKeeper, their names and what is written in them.
#[cfg(feature = "zookeeper")]
pub fn zookeeper_node(text: &str) {
    crate::store::zookeeper::fuzz::node(text);
}

/// A text that parses as a sequencer is displayed in the same way, and no other text parses.
pub fn sequencer(text: &str) {
    match text.parse::<crate::Sequencer>() {
        Ok(one) => {
            assert_eq!(one.to_string(), text);
            assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
            assert!(Name::new(one.name()).is_ok());
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidOptions),
    }
    if let Ok(name) = Name::new(text) {
        let one = crate::Sequencer::new(name, crate::FencingToken::new(text.len() as u64));
        assert_eq!(one.to_string().parse::<crate::Sequencer>().unwrap(), one);
    }
}

/// Patterns, before the first line end, and names behind it.
pub fn glob(text: &str) {
    stores::glob(text);
}

/// Which clock a file's deadlines are stamps of, and on what volume it lies: texts of the kernel.
#[cfg(feature = "sqlite")]
pub fn sqlite_surroundings(text: &str) {
    crate::store::sqlite::fuzz::surroundings(text);
}

/// Leases, drifts and instants: no deadline is later than its lease, nothing that is accepted panics, and what is not
/// accepted says so.
pub fn times(lease: Duration, share: f64, fixed: Duration, sent: u64, later: Duration) {
    let builder = crate::Client::builder().lease(lease).drift(share, fixed);
    let accepted = builder.check();
    if let Err(error) = &accepted {
        assert_eq!(error.kind(), ErrorKind::InvalidOptions);
    }
    let drift = Drift { share, fixed };
    let good_share = (0.0..0.5).contains(&share);
    assert!(good_share || accepted.is_err());
    let drift = if good_share { drift } else { Drift::default() };
    options(lease, later, &drift);
    let sent = BootInstant::from_nanos(sent);
    let deadline = sent + drift.proved(lease);
    assert!(deadline <= sent + lease && deadline >= sent);
    assert!(deadline.since(sent) <= lease);
    if accepted.is_ok() {
        assert!(
            deadline > sent || sent == BootInstant::FAR,
            "something is proved"
        );
        stores::lease(lease);
    }
    #[cfg(feature = "sqlite")]
    stores::stamp(
        lease,
        i64::try_from(sent.nanos()).unwrap_or(i64::MAX),
        later,
    );
    renewals(deadline, sent + later);
}

/// When a client connected, as it stands in a store: any number of milliseconds since 1970 is a date.
pub fn since(millis: u64) {
    stores::since(millis);
}

/// Whatever is asked for is taken or refused in words.
fn options(one: Duration, other: Duration, drift: &Drift) {
    let with = AcquireOptions::new;
    for options in [
        with().lease(one).wait(other),
        with().expires_after(one).max_hold(other),
        with().lease(one).expires_after(other),
        with().wait(one).max_hold(other),
        with().lock_delay(one),
    ] {
        let both = options.lease.is_some() && options.expires_after.is_some();
        match options.term(Duration::from_secs(30), drift) {
            Ok(term) => {
                assert!(!both && !drift.proved(term.length).is_zero());
                assert_eq!(term.renewed, options.expires_after.is_none());
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidOptions),
        }
    }
}

/// A later proof lengthens what is held, and an earlier one that comes after it does not shorten it.
fn renewals(first: BootInstant, second: BootInstant) {
    let Ok(name) = crate::store::Name::new("a") else {
        return;
    };
    let granted = GrantedTicket::of(name, Duration::from_secs(30));
    let status = HoldStatus::new(granted, first, Clock::Boot);
    for (proved, until) in [
        (second, first.max(second)),
        (first, first.max(second)),
        (BootInstant::from_nanos(0), first.max(second)),
    ] {
        status.prove(proved);
        assert_eq!(status.valid_until(), until);
    }
}

/// Timers: set, left and rung in the order the numbers say. None rings early, and none that is due is left.
pub fn timers(steps: &[(u8, u16)]) {
    crate::engine::runtime::timer_queue::fuzz::holds(steps);
}
