use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::sync::{LazyLock, Mutex, PoisonError};

use anyhow::{Context, Result, bail};

/// Below the range of the kernel's ephemeral ports. Another connection could take a port from that range while its
/// server is down between `kill` and `restart`. Worse, a client that connects to such a port may be connected to
/// itself.
const FIRST: u16 = 10_000;
const COUNT: u16 = 20_000;

/// The distance of a cluster node's bus port; before Redis 7 it is fixed.
const BUS: u16 = 10_000;

static GIVEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

/// A free loopback port that this process has not handed out before.
pub(crate) fn free() -> Result<u16> {
    find(COUNT, &[0])
}

/// As `free`, but the cluster bus port that belongs to it is free as well.
pub(crate) fn free_with_bus() -> Result<u16> {
    find(COUNT - BUS, &[0, BUS])
}

/// A port such that the ports at these distances are free as well.
fn find(count: u16, distances: &[u16]) -> Result<u16> {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let seeds = RandomState::new();
    let found = (0_u64..500)
        .filter_map(|round| u16::try_from(seeds.hash_one(round) % u64::from(count)).ok())
        .map(|offset| FIRST + offset)
        .find(|port| {
            let mut all = distances.iter().map(|distance| port + distance);
            all.all(|port| !given.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok())
        })
        .context("no free loopback port")?;
    given.extend(distances.iter().map(|distance| found + distance));
    Ok(found)
}

/// Starts a server on a free port from `find`, and on another one if another process takes the port between our check and
/// the server's bind.
pub(crate) fn start_on(
    find: impl Fn() -> Result<u16>,
    mut start: impl FnMut(u16) -> Result<()>,
) -> Result<()> {
    for _ in 0..4 {
        match start(find()?) {
            Err(error) if is_taken(&error) => {}
            outcome => return outcome,
        }
    }
    bail!("four ports in a row were taken by others")
}

/// The error contains the server's log.
fn is_taken(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}").to_lowercase();
    text.contains("address already in use")
}
