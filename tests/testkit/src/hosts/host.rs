use std::ffi::OsStr;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, anyhow};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::namespace::Namespace;

/// One host of a [`Network`](super::Network). Clones are the same host; it ends with the last of them.
#[derive(Debug, Clone)]
pub struct Host {
    inside: Arc<Namespace>,
    addr: Ipv4Addr,
    port: String,
}

impl Host {
    pub(super) fn new(inside: Namespace, addr: Ipv4Addr, port: String) -> Self {
        Self {
            inside: Arc::new(inside),
            addr,
            port,
        }
    }

    /// Its address. The other hosts reach it there, and the machine itself does not.
    pub fn addr(&self) -> Ipv4Addr {
        self.addr
    }

    /// Its port at the switch.
    pub(super) fn port(&self) -> &str {
        &self.port
    }

    /// A program on this host.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.inside.command(program)
    }

    /// Runs this on the host: its sockets are those of the host, also after it has returned, and so are those of the
    /// threads that it starts.
    ///
    /// # Errors
    /// Fails when the host has gone, or `work` panicked.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let link = File::open(self.inside.path()).context("the namespace of the host")?;
        // A thread changes its own namespace only, and this one ends here. So no other code runs on the wrong host.
        thread::scope(|scope| {
            let there = scope.spawn(|| {
                move_into_link_name_space(link.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok(work())
            });
            there.join().map_err(|_| anyhow!("a call panicked"))?
        })
    }

    /// Connects from this host.
    ///
    /// # Errors
    /// Fails when nothing listens there, or nothing answers.
    pub fn connect(&self, to: SocketAddr) -> Result<TcpStream> {
        Ok(self.within(|| TcpStream::connect(to))??)
    }
}

impl PartialEq for Host {
    fn eq(&self, other: &Self) -> bool {
        self.inside.name() == other.inside.name()
    }
}

impl Eq for Host {}
