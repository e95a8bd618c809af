use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::getuid;
use tempfile::TempDir;

use super::{PostgresServer, port, wait};
use crate::reaper;
use crate::scratch::scratch;

const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// A connection pooler in front of a PostgreSQL server. It runs as long as this value lives.
#[derive(Debug)]
pub struct Pgbouncer {
    port: u16,
    child: Child,
    _dir: TempDir,
}

impl Pgbouncer {
    /// Starts a pooler in transaction mode: each transaction may use another connection. All clients share two server
    /// connections.
    ///
    /// # Errors
    /// Fails when the package is missing, or it does not answer.
    pub fn start(server: &PostgresServer) -> Result<Self> {
        Self::make(server, "pool_mode = transaction\ndefault_pool_size = 2")
    }

    /// Starts a pooler in session mode: a client keeps its server connection until it disconnects.
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub fn keeping_sessions(server: &PostgresServer) -> Result<Self> {
        Self::make(server, "pool_mode = session\ndefault_pool_size = 20")
    }

    fn make(server: &PostgresServer, mode: &str) -> Result<Self> {
        let dir = scratch()?;
        let (port, path) = (port::free()?, dir.path().display());
        let users = dir.path().join("users");
        fs::write(&users, "\"postgres\" \"\"\n")?;
        let conf = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {path}/users\n{mode}\n\
             max_client_conn = 500\n",
            server.port(),
        );
        fs::write(dir.path().join("conf"), conf)?;
        let log = File::create(dir.path().join("log"))?;
        let mut command = if getuid().is_root() {
            let owner = Command::new("chown")
                .args(["-R", "postgres"])
                .arg(dir.path())
                .status()?;
            anyhow::ensure!(owner.success(), "chown: {owner}");
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
            command.arg(PROGRAM);
            command
        } else {
            Command::new(PROGRAM)
        };
        command.arg(dir.path().join("conf"));
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command.spawn().context("starting pgbouncer")?;
        reaper::watch(child.id())?;
        let bouncer = Self {
            port,
            child,
            _dir: dir,
        };
        wait::until("a pooler that accepts", Duration::from_secs(20), || {
            TcpStream::connect(bouncer.addr())
                .map(drop)
                .map_err(Into::into)
        })?;
        Ok(bouncer)
    }

    /// The TCP address.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

impl Drop for Pgbouncer {
    fn drop(&mut self) {
        // This fails only if the process has already exited, and then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
        reaper::forget(self.child.id());
    }
}
