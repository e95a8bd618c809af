use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use rustix::process::getuid;

use super::process::is_a_process;
use super::{PostgresServer, ServerProcess, port};

/// The limit of one start, which takes some milliseconds.
const START: Duration = Duration::from_secs(20);
const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// A connection pooler in front of a PostgreSQL server. It runs as long as this value lives.
#[derive(Debug)]
pub struct Pgbouncer {
    process: ServerProcess,
    port: u16,
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
        let process = ServerProcess::new("PgBouncer")?;
        let dir = process.dir();
        let (port, path) = (port::free()?, dir.display());
        let users = dir.join("users");
        fs::write(&users, "\"postgres\" \"\"\n")?;
        let conf = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {path}/users\n{mode}\n\
             max_client_conn = 500\n",
            server.port(),
        );
        fs::write(dir.join("conf"), conf)?;
        let mut command = if getuid().is_root() {
            let owner = Command::new("chown")
                .args(["-R", "postgres"])
                .arg(dir)
                .status()?;
            anyhow::ensure!(owner.success(), "chown: {owner}");
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
            command.arg(PROGRAM);
            command
        } else {
            Command::new(PROGRAM)
        };
        command.arg(dir.join("conf"));
        let bouncer = Self { process, port };
        bouncer.process.start(command, START, || {
            TcpStream::connect(bouncer.addr())?;
            Ok(())
        })?;
        Ok(bouncer)
    }

    /// The TCP address.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

is_a_process!(Pgbouncer);
