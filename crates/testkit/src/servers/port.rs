use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::sync::{LazyLock, Mutex, PoisonError};

use anyhow::{Context, Result};

/// Below the range from which the kernel takes ports for outgoing connections. A port from that range could be lost to
/// any connection while its server is down between `kill` and `restart`; worse, a client that dials it then may be
/// connected to itself.
const FIRST: u16 = 10_000;
const COUNT: u64 = 20_000;

static GIVEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

/// A loopback port nobody listens on, and that this process has not handed out before.
pub(crate) fn free() -> Result<u16> {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let seeds = RandomState::new();
    (0_u64..500)
        .filter_map(|round| u16::try_from(seeds.hash_one(round) % COUNT).ok())
        .map(|offset| FIRST + offset)
        .find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok() && given.insert(port))
        .context("no free loopback port")
}
