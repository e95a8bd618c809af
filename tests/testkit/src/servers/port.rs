use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{LazyLock, Mutex, PoisonError};

use anyhow::{Context, Result, bail};

/// Below the range of the kernel's ephemeral ports. Another connection could take a port from that range while its
/// server is down between `kill` and `restart`. Worse, a client that connects to such a port may be connected to
/// itself.
const FIRST: u16 = 10_000;

/// The distance of a cluster node's bus port; before Redis 7 it is fixed.
const BUS: u16 = 10_000;

/// The ports of a block, without their bus ports.
const BLOCK: u16 = 100;
const BLOCKS: u16 = BUS / BLOCK;

static PORTS: LazyLock<Mutex<Ports>> = LazyLock::new(Mutex::default);

/// A free loopback port that this process has not handed out before, and that no other process of tests hands out.
pub(crate) fn free() -> Result<u16> {
    find(&[0])
}

/// As `free`, but the cluster bus port that belongs to it is free as well.
pub(crate) fn free_with_bus() -> Result<u16> {
    find(&[0, BUS])
}

fn find(distances: &[u16]) -> Result<u16> {
    PORTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take(distances)
}

/// The ports that a process may hand out. It claims them in blocks, and keeps each claim until it ends.
///
/// Two processes of tests that look for free ports at the same time may find the same one. Then both start a server on
/// it, and the second server ends; but the first one answers when we ask whether the second is ready. Its tests run
/// against a server that another process stops.
#[derive(Debug, Default)]
struct Ports {
    left: BTreeSet<u16>,
    claims: Vec<UnixDatagram>,
}

impl Ports {
    /// Takes a port such that the ports at these distances are free as well.
    fn take(&mut self, distances: &[u16]) -> Result<u16> {
        loop {
            let all = |port: u16| distances.iter().map(move |distance| port + distance);
            let fits = |port: &u16| all(*port).all(|port| self.left.contains(&port));
            let mut fitting: Vec<u16> = self.left.iter().copied().filter(fits).collect();
            // A port alone comes from a pair that another one has broken already, if there is one.
            fitting.sort_by_key(|port| self.has_partner(*port));
            if let Some(port) = fitting.into_iter().find(|port| all(*port).all(is_free)) {
                for distance in distances {
                    self.left.remove(&(port + distance));
                }
                return Ok(port);
            }
            self.claim()?;
        }
    }

    /// Whether the port that belongs to this one, as its bus port or the other way round, is left.
    fn has_partner(&self, port: u16) -> bool {
        self.left.contains(&(port + BUS)) || self.left.contains(&(port - BUS))
    }

    /// Claims a block that no process has.
    fn claim(&mut self) -> Result<()> {
        let start = RandomState::new().hash_one(()) % u64::from(BLOCKS);
        let start = u16::try_from(start).context("a block")?;
        let mut blocks = (0..BLOCKS).map(|step| (start + step) % BLOCKS);
        let (block, claim) = loop {
            let block = blocks
                .next()
                .context("no free loopback port: other processes of tests have them")?;
            if let Some(claim) = claim(block)? {
                break (block, claim);
            }
        };
        let first = FIRST + block * BLOCK;
        let ports = first..first + BLOCK;
        self.left.extend(ports.clone());
        self.left.extend(ports.map(|port| port + BUS));
        self.claims.push(claim);
        Ok(())
    }
}

/// The claim of a block, unless a process has it: a socket with an abstract name. The kernel frees the name when the
/// process ends. Each network namespace has names of its own, as it has ports of its own.
fn claim(block: u16) -> Result<Option<UnixDatagram>> {
    let name = format!("tidelock-tests/ports/{block}");
    let addr = SocketAddr::from_abstract_name(name)?;
    match UnixDatagram::bind_addr(&addr) {
        Ok(claim) => Ok(Some(claim)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error).context("claiming ports"),
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// Starts a server on a free port from `find`, and on another one if a process that claims no ports takes the port between
/// our check and the server's bind.
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

#[cfg(test)]
mod tests {
    use super::{BLOCK, BLOCKS, BUS, FIRST, Ports, claim};

    use std::collections::HashSet;

    use anyhow::Result;

    /// More than the ports of two blocks.
    const MANY: u16 = 5 * BLOCK;

    #[test]
    fn no_other_process_gets_the_ports_of_one_that_lives() -> Result<()> {
        let mut ports = Ports::default();
        let port = ports.take(&[0])?;
        let block = (port - FIRST) % BUS / BLOCK;
        assert!(claim(block)?.is_none(), "another process would claim them");
        Ok(())
    }

    #[test]
    fn the_ports_of_a_process_that_has_ended_can_be_claimed() -> Result<()> {
        // No process looks for ports in this block, so nobody else claims it.
        let outside = BLOCKS + u16::try_from(std::process::id() % 10_000)?;
        let first = claim(outside)?;
        assert!(first.is_some() && claim(outside)?.is_none());
        drop(first);
        assert!(claim(outside)?.is_some());
        Ok(())
    }

    #[test]
    fn a_port_with_a_bus_port_has_both_for_itself() -> Result<()> {
        let mut ports = Ports::default();
        let mut taken = HashSet::new();
        for _ in 0..MANY {
            let port = ports.take(&[0, BUS])?;
            assert!(taken.insert(port) && taken.insert(port + BUS));
            assert!(taken.insert(ports.take(&[0])?));
        }
        Ok(())
    }
}
