use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use super::{Ground, port, wait};
use crate::scratch::scratch;
use crate::{process, reaper};

/// The script of Debian's package; it sets the class path itself.
const JAR: &str = "/usr/share/java/zookeeper.jar";
/// The limit of one start. A start takes 0.3 s, and longer on a loaded machine; only a broken server reaches the limit.
const START: Duration = Duration::from_secs(30);

/// A ZooKeeper server that lives as long as this value. Its tick is 100 ms, so it grants sessions of 200 ms and more,
/// and removes empty containers within a second.
#[derive(Debug)]
pub struct ZooKeeperServer {
    port: u16,
    child: Mutex<Option<Child>>,
    ground: Ground,
    // The last field: fields drop in order, and the server must stop before its directory goes.
    dir: TempDir,
}

impl ZooKeeperServer {
    /// Starts a server without data.
    ///
    /// # Errors
    /// Fails when the package is missing, or the server does not answer.
    pub fn start() -> Result<Self> {
        Self::start_with("")
    }

    /// Starts a server with additional configuration lines.
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub fn start_with(lines: &str) -> Result<Self> {
        Self::start_on(Ground::default(), lines)
    }

    /// As [`start_with`](Self::start_with), on its own disk.
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub fn start_on(ground: Ground, lines: &str) -> Result<Self> {
        ensure!(
            Path::new(JAR).is_file(),
            "{JAR} is missing; `cargo xtask servers` says how to get it"
        );
        let server = Self {
            port: port::free()?,
            child: Mutex::new(None),
            ground,
            dir: scratch()?,
        };
        let data = server.ground.data(server.dir.path());
        let conf = format!(
            "tickTime=100\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n\
             maxSessionTimeout=120000\nadmin.enableServer=false\n4lw.commands.whitelist=*\n\
             extendedTypesEnabled=true\n{lines}\n",
            data.display(),
            server.port,
        );
        fs::write(server.dir.path().join("zoo.cfg"), conf)?;
        server.run()?;
        Ok(server)
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The TCP address.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// `zookeeper://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("zookeeper://{}", self.addr())
    }

    /// Its process id, while it runs.
    ///
    /// # Errors
    /// Fails when it has been killed.
    pub fn pid(&self) -> Result<u32> {
        let child = self.lock();
        let running = child.as_ref().map(Child::id);
        running.context("the server is not running")
    }

    /// Its own small disk or wall clock, if it has one.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    /// Everything it has written to stdout and stderr.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Freezes it (SIGSTOP): the kernel still accepts connections and bytes for it, but nothing answers.
    ///
    /// # Errors
    /// Fails when it does not run.
    pub fn freeze(&self) -> Result<()> {
        process::freeze(self.pid()?)
    }

    /// Continues it after a freeze (SIGCONT).
    ///
    /// # Errors
    /// Fails when it does not run.
    pub fn thaw(&self) -> Result<()> {
        process::thaw(self.pid()?)
    }

    /// Kills it (SIGKILL). Nothing listens on its port until `restart`.
    ///
    /// # Errors
    /// Fails when it cannot be waited for.
    pub fn kill(&self) -> Result<()> {
        let Some(mut child) = self.lock().take() else {
            return Ok(());
        };
        child.kill().context("killing the server")?;
        child.wait().context("waiting for the server")?;
        reaper::forget(child.id());
        Ok(())
    }

    /// Restarts it on the same port and with its data; kills it first if it still runs.
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub fn restart(&self) -> Result<()> {
        self.kill()?;
        self.run()
    }

    /// The reply to one of its four-letter words (`mntr`, `cons`, `wchs`, `dump`).
    ///
    /// # Errors
    /// Fails when it does not answer.
    pub fn say(&self, word: &str) -> Result<String> {
        self.say_within(word, Duration::from_secs(20))
    }

    fn say_within(&self, word: &str, patience: Duration) -> Result<String> {
        let mut stream = TcpStream::connect(self.addr())?;
        stream.set_read_timeout(Some(patience))?;
        stream.write_all(word.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    /// A number from `mntr`: `zk_watch_count`, `zk_ephemerals_count`, `zk_znode_count`.
    ///
    /// # Errors
    /// Fails when it does not answer, or has no such number.
    pub fn number(&self, key: &str) -> Result<u64> {
        let text = self.say("mntr")?;
        let lines = text.lines().filter_map(|line| line.split_once('\t'));
        let found = lines
            .filter(|(name, _)| *name == key)
            .map(|(_, value)| value)
            .next();
        let value = found.with_context(|| format!("no {key} in mntr"))?;
        value.parse().with_context(|| format!("{key}: {value}"))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) -> Result<()> {
        let log = File::create(self.dir.path().join("log"))?;
        let mut command = self.ground.command("java");
        // A small machine runs several of these servers: little memory, few threads, and no fsync.
        command.args([
            "-Xmx192m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
        ]);
        command.args([
            "-Dzookeeper.forceSync=no",
            "-Dznode.container.checkIntervalMs=300",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        ]);
        command.args([
            "-cp",
            JAR,
            "org.apache.zookeeper.server.ZooKeeperServerMain",
        ]);
        command.arg(self.dir.path().join("zoo.cfg"));
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command.spawn().context("starting java")?;
        reaper::watch(child.id())?;
        *self.lock() = Some(child);
        // The port opens before the server is ready.
        let ready = wait::until("a ZooKeeper that serves", START, || {
            if let Some(child) = self.lock().as_mut()
                && let Some(ended) = child.try_wait()?
            {
                bail!("it ended with {ended}");
            }
            // The server may never answer a connection that it accepts during its start, so we try new ones.
            let said = self.say_within("srvr", Duration::from_millis(500))?;
            ensure!(said.contains("Mode:"), "it says {said:?}");
            Ok(())
        });
        ready
            .inspect_err(|_| {
                // We ignore this error: the caller needs the one that led here.
                let _ = self.kill();
            })
            .with_context(|| self.log())
    }
}

impl Drop for ZooKeeperServer {
    fn drop(&mut self) {
        // This fails only if the process has already exited, and then there is nothing to do.
        let _ = self.kill();
    }
}
