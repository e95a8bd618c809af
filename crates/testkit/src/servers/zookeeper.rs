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

/// From Debian's package; it names the jars it needs by itself.
const JAR: &str = "/usr/share/java/zookeeper.jar";
/// A start takes 0.3 s; a loaded machine may need more, a broken server all of it.
const START: Duration = Duration::from_secs(30);

/// A ZooKeeper server of its own that lives as long as this value. Its tick is 100 ms, so sessions of 200 ms and up are
/// granted, and empty containers are removed within a second.
#[derive(Debug)]
pub struct ZooKeeperServer {
    port: u16,
    child: Mutex<Option<Child>>,
    ground: Ground,
    // Last, so that the directory goes after the server.
    dir: TempDir,
}

impl ZooKeeperServer {
    /// A server without data.
    ///
    /// # Errors
    /// When the package is missing, or the server does not answer.
    pub fn start() -> Result<Self> {
        Self::start_with("")
    }

    /// A server with more lines in its configuration.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(lines: &str) -> Result<Self> {
        Self::start_on(Ground::default(), lines)
    }

    /// As [`start_with`](Self::start_with), on a disk of its own.
    ///
    /// # Errors
    /// As [`start`](Self::start).
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
    /// When it has been killed.
    pub fn pid(&self) -> Result<u32> {
        let child = self.lock();
        let running = child.as_ref().map(Child::id);
        running.context("the server is not running")
    }

    /// What it runs on.
    pub fn ground(&self) -> &Ground {
        &self.ground
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

    /// Starts it again, after killing it if need be, on the same port and with its data.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn restart(&self) -> Result<()> {
        self.kill()?;
        self.run()
    }

    /// What it answers to one of its words of four letters (`mntr`, `cons`, `wchs`, `dump`).
    ///
    /// # Errors
    /// When it does not answer.
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

    /// A number of its `mntr`: `zk_watch_count`, `zk_ephemerals_count`, `zk_znode_count`.
    ///
    /// # Errors
    /// When it does not answer, or has no such number.
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
        // A small machine runs several of them: little memory, few threads, and no waiting for the disk.
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
        // The port opens before the server serves.
        let ready = wait::until("a ZooKeeper that serves", START, || {
            if let Some(child) = self.lock().as_mut()
                && let Some(ended) = child.try_wait()?
            {
                bail!("it ended with {ended}");
            }
            // What it accepts while it starts it may never answer.
            let said = self.say_within("srvr", Duration::from_millis(500))?;
            ensure!(said.contains("Mode:"), "it says {said:?}");
            Ok(())
        });
        ready
            .inspect_err(|_| {
                // The error that matters is the one that led here.
                let _ = self.kill();
            })
            .with_context(|| self.log())
    }
}

impl Drop for ZooKeeperServer {
    fn drop(&mut self) {
        // Fails only if it is gone already, which is what is wanted.
        let _ = self.kill();
    }
}
