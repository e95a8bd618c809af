use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, ensure};

use super::process::is_a_process;
use super::{Certs, Flavour, RedisBuilder, Reply, ServerProcess, admin, builder, port};
use crate::hosts::Host;
use crate::process::FakeClock;

/// The limit of one start. A start takes 8 to 40 ms, and longer on a loaded machine; only a broken server reaches the
/// limit.
const START: Duration = Duration::from_secs(20);

/// A Redis or Valkey server that lives as long as this value. All methods take `&self`, so tests can share one.
#[derive(Debug)]
pub struct RedisServer {
    process: ServerProcess,
    config: RedisBuilder,
    flavour: Flavour,
    port: u16,
    certs: Option<Certs>,
    clock: Option<FakeClock>,
}

impl RedisServer {
    /// Starts a plain server of the default flavour.
    ///
    /// # Errors
    /// The same as [`RedisBuilder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// A builder for a server with other settings.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    pub(super) fn launch(config: &RedisBuilder) -> Result<Self> {
        let flavour = config.which()?;
        let process = ServerProcess::new(flavour.name())?;
        let certs = config.make_certs(process.dir())?;
        let clock = config.make_clock(process.dir())?;
        config.write_acl(process.dir())?;
        config.membership.write_conf(process.dir())?;
        let mut server = Self {
            process,
            config: config.clone(),
            flavour,
            port: 0,
            certs,
            clock,
        };
        let find = || config.membership.port();
        port::start_on(find, |port| {
            server.port = port;
            server.run()
        })?;
        Ok(server)
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The TCP address.
    pub fn addr(&self) -> SocketAddr {
        (self.config.addr(), self.port).into()
    }

    /// `redis://127.0.0.1:PORT`, `redis://[::1]:PORT`, or `rediss://localhost:PORT` with TLS.
    pub fn url(&self) -> String {
        if self.config.has_tls() {
            format!("rediss://localhost:{}", self.port)
        } else {
            format!("redis://{}", self.addr())
        }
    }

    /// The Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir().join("socket")
    }

    /// `redis+unix://…` of the Unix socket.
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// The host that it runs on, if it is not this machine.
    pub fn host(&self) -> Option<&Host> {
        self.config.host()
    }

    /// The server's flavour.
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// The path of its own disk, as seen from outside while the server runs.
    ///
    /// # Errors
    /// Fails when it has none, or does not run.
    pub fn disk(&self) -> Result<PathBuf> {
        let inside = self.dir().join(builder::DISK);
        ensure!(inside.is_dir(), "this server has no disk of its own");
        let inside = inside.strip_prefix("/").unwrap_or(&inside);
        Ok(Path::new("/proc")
            .join(self.pid()?.to_string())
            .join("root")
            .join(inside))
    }

    /// The certificates, if the server uses TLS.
    pub fn certs(&self) -> Option<&Certs> {
        self.certs.as_ref()
    }

    /// Restarts it on the same port and directory; kills it first if it still runs. It keeps its data only with
    /// [`appendonly`](RedisBuilder::appendonly).
    ///
    /// # Errors
    /// The same as [`RedisBuilder::start`].
    pub fn restart(&self) -> Result<()> {
        self.kill()?;
        self.run()
    }

    /// As `restart`, but with an empty data directory.
    ///
    /// # Errors
    /// The same as [`RedisBuilder::start`].
    pub fn restart_empty(&self) -> Result<()> {
        self.kill()?;
        let dir = self.dir();
        for file in ["dump.rdb", "appendonly.aof"] {
            remove(fs::remove_file(dir.join(file)))?;
        }
        remove(fs::remove_dir_all(dir.join("appendonlydir")))?;
        self.run()
    }

    /// Sets its wall clock `seconds` ahead of the true time (behind, if negative), and returns once the server uses the
    /// new time.
    ///
    /// # Errors
    /// Fails when it was not built with [`fake_clock`](RedisBuilder::fake_clock).
    pub fn shift_clock(&self, seconds: i64) -> Result<()> {
        let clock = self
            .clock
            .as_ref()
            .context("this server runs on the true clock")?;
        clock.shift(seconds)?;
        let deadline = Instant::now() + START;
        // The server caches the time of its last event loop turn, and may run one more command with it.
        while self.seconds_ahead()?.abs_diff(seconds) > 1 {
            ensure!(
                Instant::now() < deadline,
                "the server does not follow its fake clock"
            );
            thread::sleep(Duration::from_millis(3));
        }
        Ok(())
    }

    /// As [`shift_clock`](Self::shift_clock), in milliseconds. A clock that is slewed moves by few of them at a time.
    ///
    /// # Errors
    /// The same as `shift_clock`.
    pub fn slew_clock(&self, millis: i64) -> Result<()> {
        let clock = self
            .clock
            .as_ref()
            .context("this server runs on the true clock")?;
        clock.shift_millis(millis)?;
        let now = || -> Result<i64> {
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
            Ok(i64::try_from(now.as_micros())? + millis * 1000)
        };
        let deadline = Instant::now() + START;
        loop {
            let before = now()?;
            let (seconds, micros): (String, String) = self.query(&["TIME"])?;
            let told = seconds.parse::<i64>()? * 1_000_000 + micros.parse::<i64>()?;
            if before <= told && told <= now()? {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "the server does not follow its fake clock"
            );
        }
    }

    fn seconds_ahead(&self) -> Result<i64> {
        let info: String = self.query(&["INFO", "server"])?;
        let told = info
            .lines()
            .find_map(|line| line.strip_prefix("server_time_usec:"));
        let told: i64 = told.context("no time in INFO")?.trim().parse()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        Ok(told / 1_000_000 - i64::try_from(now.as_secs())?)
    }

    /// Sends one command as the operator and returns the reply. Each call uses a new connection through the Unix
    /// socket, so a restart or a cut does not affect it. The connection appears in `CLIENT LIST` while the call runs.
    ///
    /// # Errors
    /// Fails when the server answers with an error, or not within 20 s.
    pub fn admin<A: AsRef<[u8]>>(&self, args: &[A]) -> Result<Reply> {
        let args: Vec<&[u8]> = args.iter().map(AsRef::as_ref).collect();
        let mut connection = admin::connect(&self.socket(), self.config.login())?;
        admin::ask(&mut connection, &args)
    }

    /// As [`admin`](Self::admin), for several commands in sequence on one connection. `WAIT` needs this, because it
    /// counts only the writes of its own connection.
    ///
    /// # Errors
    /// As `admin`; stops at the first error.
    pub fn admin_each(&self, commands: &[&[&str]]) -> Result<Vec<Reply>> {
        let mut connection = admin::connect(&self.socket(), self.config.login())?;
        let mut ask = |command: &&[&str]| {
            let args: Vec<&[u8]> = command.iter().map(|arg| arg.as_bytes()).collect();
            admin::ask(&mut connection, &args)
        };
        commands.iter().map(&mut ask).collect()
    }

    /// As [`admin`](Self::admin), with the reply converted to text, number, list or any type of the driver.
    ///
    /// # Errors
    /// Fails as `admin` does, or when the reply has another type.
    pub fn query<T: redis::FromRedisValue, A: AsRef<[u8]>>(&self, args: &[A]) -> Result<T> {
        let reply = self.admin(args)?;
        redis::from_redis_value(reply)
            .map_err(|error| anyhow!("an answer of another kind: {error}"))
    }

    /// Every key, sorted.
    ///
    /// # Errors
    /// The same as `admin`.
    pub fn keys(&self) -> Result<Vec<String>> {
        let mut keys: Vec<String> = self.query(&["KEYS", "*"])?;
        keys.sort();
        Ok(keys)
    }

    fn run(&self) -> Result<()> {
        let mut command =
            self.config
                .command(self.flavour, self.dir(), self.port, self.certs.as_ref())?;
        if let Some(clock) = &self.clock {
            clock.apply(&mut command);
        }
        // We remove a stale socket. Otherwise we would find it before the new server has made its own.
        remove(fs::remove_file(self.socket()))?;
        self.process.start(command, START, || self.ping())
    }

    fn ping(&self) -> Result<()> {
        match self.host() {
            Some(host) => host.connect(self.addr())?,
            None => TcpStream::connect(self.addr())?,
        };
        self.admin(&["PING"]).map(drop)
    }
}

is_a_process!(RedisServer);

fn remove(outcome: std::io::Result<()>) -> Result<()> {
    match outcome {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context("removing old data")
        }
        _ => Ok(()),
    }
}
