use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use tempfile::TempDir;

use super::{Certs, Flavour, RedisBuilder, Reply, admin, builder};
use crate::process::{self, FakeClock};
use crate::reaper;
use crate::scratch::scratch;

/// A start takes 8 to 40 ms; a loaded machine may need more, a broken server all of it.
const START: Duration = Duration::from_secs(20);

/// A Redis or Valkey server that lives as long as this value. All methods take `&self`, so tests can share one.
#[derive(Debug)]
pub struct RedisServer {
    config: RedisBuilder,
    flavour: Flavour,
    port: u16,
    certs: Option<Certs>,
    clock: Option<FakeClock>,
    child: Mutex<Option<Child>>,
    // Last, so that the directory goes after the server.
    dir: TempDir,
}

impl RedisServer {
    /// A plain server of the default flavour.
    ///
    /// # Errors
    /// As [`RedisBuilder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// A server with more to say about it.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    pub(super) fn launch(config: &RedisBuilder) -> Result<Self> {
        let flavour = config.which()?;
        let dir = scratch()?;
        let certs = config.make_certs(dir.path())?;
        let clock = config.make_clock(dir.path())?;
        config.write_acl(dir.path())?;
        config.membership.write_conf(dir.path())?;
        let child = Mutex::new(None);
        let mut server = Self {
            config: config.clone(),
            flavour,
            port: 0,
            certs,
            clock,
            child,
            dir,
        };
        for _ in 0..4 {
            server.port = config.membership.port()?;
            match server.run() {
                // Another process took the port between our look and the server's.
                Err(error) if format!("{error:#}").contains("Address already in use") => {}
                outcome => return outcome.map(|()| server),
            }
        }
        bail!("four ports in a row were taken by others")
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The TCP address.
    pub fn addr(&self) -> SocketAddr {
        (self.config.host(), self.port).into()
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
        self.dir.path().join("socket")
    }

    /// `redis+unix://…` of the Unix socket.
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Which server runs.
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// The directory of its data, log (`log`), certificates and socket.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The disk of its own, as it is seen from outside while the server runs.
    ///
    /// # Errors
    /// When it has none, or does not run.
    pub fn disk(&self) -> Result<PathBuf> {
        let inside = self.dir.path().join(builder::DISK);
        ensure!(inside.is_dir(), "this server has no disk of its own");
        let inside = inside.strip_prefix("/").unwrap_or(&inside);
        Ok(Path::new("/proc")
            .join(self.pid()?.to_string())
            .join("root")
            .join(inside))
    }

    /// The certificates, if it speaks TLS.
    pub fn certs(&self) -> Option<&Certs> {
        self.certs.as_ref()
    }

    /// Its process id, while it runs.
    ///
    /// # Errors
    /// When it has been killed.
    pub fn pid(&self) -> Result<u32> {
        self.lock()
            .as_ref()
            .map(Child::id)
            .context("the server is not running")
    }

    /// What it has written to stdout and stderr.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Stops it (SIGSTOP): the kernel still accepts connections and bytes for it, and nothing answers.
    ///
    /// # Errors
    /// When it does not run.
    pub fn freeze(&self) -> Result<()> {
        process::freeze(self.pid()?)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn thaw(&self) -> Result<()> {
        process::thaw(self.pid()?)
    }

    /// Ends it at once (SIGKILL). Nothing listens on its port until `restart`.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill(&self) -> Result<()> {
        let Some(mut child) = self.lock().take() else {
            return Ok(());
        };
        child.kill().context("killing the server")?;
        child.wait().context("waiting for the server")?;
        reaper::forget(child.id());
        Ok(())
    }

    /// Starts it again, after killing it if need be, on the same port and directory. It keeps its data only with
    /// [`appendonly`](RedisBuilder::appendonly).
    ///
    /// # Errors
    /// As [`RedisBuilder::start`].
    pub fn restart(&self) -> Result<()> {
        self.kill()?;
        self.run()
    }

    /// As `restart`, with nothing left of its data.
    ///
    /// # Errors
    /// As [`RedisBuilder::start`].
    pub fn restart_empty(&self) -> Result<()> {
        self.kill()?;
        let dir = self.dir.path();
        for file in ["dump.rdb", "appendonly.aof"] {
            remove(fs::remove_file(dir.join(file)))?;
        }
        remove(fs::remove_dir_all(dir.join("appendonlydir")))?;
        self.run()
    }

    /// Sets its wall clock `seconds` ahead of the true one (behind, if negative), and returns once it counts by it.
    ///
    /// # Errors
    /// When it was not built with [`fake_clock`](RedisBuilder::fake_clock).
    pub fn shift_clock(&self, seconds: i64) -> Result<()> {
        let clock = self
            .clock
            .as_ref()
            .context("this server runs on the true clock")?;
        clock.shift(seconds)?;
        let deadline = Instant::now() + START;
        // The server keeps the time of its last turn, and may serve one more command by it.
        while self.seconds_ahead()?.abs_diff(seconds) > 1 {
            ensure!(
                Instant::now() < deadline,
                "the server does not follow its fake clock"
            );
            thread::sleep(Duration::from_millis(3));
        }
        Ok(())
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

    /// Sends one command as the operator and returns the answer. Each call has a connection of its own, through the
    /// Unix socket, so a restart or a cut does it no harm; it appears in `CLIENT LIST` while it runs.
    ///
    /// # Errors
    /// When the server answers with an error, or not within 20 s.
    pub fn admin<A: AsRef<[u8]>>(&self, args: &[A]) -> Result<Reply> {
        let args: Vec<&[u8]> = args.iter().map(AsRef::as_ref).collect();
        let mut connection = admin::connect(&self.socket(), self.config.login())?;
        admin::ask(&mut connection, &args)
    }

    /// As [`admin`](Self::admin), several commands one after the other on one connection: `WAIT` counts what its own
    /// connection has written.
    ///
    /// # Errors
    /// As `admin`, at the first error.
    pub fn admin_each(&self, commands: &[&[&str]]) -> Result<Vec<Reply>> {
        let mut connection = admin::connect(&self.socket(), self.config.login())?;
        let mut ask = |command: &&[&str]| {
            let args: Vec<&[u8]> = command.iter().map(|arg| arg.as_bytes()).collect();
            admin::ask(&mut connection, &args)
        };
        commands.iter().map(&mut ask).collect()
    }

    /// As [`admin`](Self::admin), read as text, number, list or whatever else the driver can make of it.
    ///
    /// # Errors
    /// As `admin`, and when the answer is of another kind.
    pub fn query<T: redis::FromRedisValue, A: AsRef<[u8]>>(&self, args: &[A]) -> Result<T> {
        let reply = self.admin(args)?;
        redis::from_redis_value(reply)
            .map_err(|error| anyhow!("an answer of another kind: {error}"))
    }

    /// Every key there is, sorted.
    ///
    /// # Errors
    /// As `admin`.
    pub fn keys(&self) -> Result<Vec<String>> {
        let mut keys: Vec<String> = self.query(&["KEYS", "*"])?;
        keys.sort();
        Ok(keys)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) -> Result<()> {
        let mut command = self.config.command(
            self.flavour,
            self.dir.path(),
            self.port,
            self.certs.as_ref(),
        )?;
        if let Some(clock) = &self.clock {
            clock.apply(&mut command);
        }
        // A stale socket would be found before the new server has made its own.
        remove(fs::remove_file(self.socket()))?;
        let log = File::create(self.dir.path().join("log"))?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command
            .spawn()
            .with_context(|| format!("starting {}", command.get_program().display()))?;
        reaper::watch(child.id())?;
        *self.lock() = Some(child);
        self.wait_ready().inspect_err(|_| {
            // The error that matters is the one that led here.
            let _ = self.kill();
        })
    }

    fn wait_ready(&self) -> Result<()> {
        let deadline = Instant::now() + START;
        loop {
            let Err(error) = self.ping() else {
                return Ok(());
            };
            let ended = match self.lock().as_mut() {
                Some(child) => child.try_wait()?,
                None => bail!("the server was killed while it started"),
            };
            if ended.is_some() || Instant::now() > deadline {
                let ended = ended.map_or_else(
                    || "does not answer".to_owned(),
                    |status| format!("ended with {status}"),
                );
                bail!(
                    "the {} server {ended} ({error:#}); it said:\n{}",
                    self.flavour.name(),
                    self.log()
                );
            }
            thread::sleep(Duration::from_millis(3));
        }
    }

    fn ping(&self) -> Result<()> {
        TcpStream::connect(self.addr())?;
        self.admin(&["PING"]).map(drop)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // Fails only if it is gone already, which is what is wanted.
        let _ = self.kill();
    }
}

fn remove(outcome: std::io::Result<()>) -> Result<()> {
    match outcome {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context("removing old data")
        }
        _ => Ok(()),
    }
}
