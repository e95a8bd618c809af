mod ensemble;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

pub use ensemble::ZooKeeperEnsemble;

use super::process::is_a_process;
use super::{Ground, ServerProcess, port};

/// The script of Debian's package; it sets the class path itself.
const JAR: &str = "/usr/share/java/zookeeper.jar";
/// The limit of one start. A start takes 0.3 s, and longer on a loaded machine; only a broken server reaches the limit.
const START: Duration = Duration::from_secs(30);

/// A ZooKeeper server that lives as long as this value. Its tick is 100 ms, so it grants sessions of 200 ms and more,
/// and removes empty containers within a second.
#[derive(Debug)]
pub struct ZooKeeperServer {
    process: ServerProcess,
    port: u16,
    ground: Ground,
    /// Additional configuration lines.
    lines: String,
    /// Its number, if it is one of several.
    member: Option<usize>,
    /// How often it removes empty containers, in milliseconds.
    container_check: u32,
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
        Self::prepare(ground, lines)?.start_on_a_free_port()
    }

    /// As [`start`](Self::start), but it keeps empty containers for ten minutes. For tests that count requests: a lock whose
    /// container was removed between a release and the next acquire costs an attempt more.
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub fn start_with_lasting_containers() -> Result<Self> {
        let mut server = Self::prepare(Ground::default(), "")?;
        server.container_check = 600_000;
        server.start_on_a_free_port()
    }

    fn start_on_a_free_port(mut self) -> Result<Self> {
        port::start_on(port::free, |port| {
            self.port = port;
            self.configure()?;
            self.run()
        })?;
        Ok(self)
    }

    fn prepare(ground: Ground, lines: &str) -> Result<Self> {
        ensure!(
            Path::new(JAR).is_file(),
            "{JAR} is missing; `cargo xtask servers` says how to get it"
        );
        Ok(Self {
            process: ServerProcess::new("ZooKeeper")?,
            port: 0,
            ground,
            lines: lines.to_owned(),
            member: None,
            container_check: 300,
        })
    }

    fn configure(&self) -> Result<()> {
        let conf = format!(
            "tickTime=100\ndataDir={}\nclientPort={}\nclientPortAddress={}\nmaxClientCnxns=0\n\
             maxSessionTimeout=120000\nadmin.enableServer=false\n4lw.commands.whitelist=*\n\
             extendedTypesEnabled=true\n{}\n",
            self.ground.data(self.dir()).display(),
            self.port,
            self.ground.addr(),
            self.lines,
        );
        if let Some(number) = self.member {
            let data = self.ground.data(self.dir());
            fs::create_dir_all(&data)?;
            fs::write(data.join("myid"), number.to_string())?;
        }
        fs::write(self.dir().join("zoo.cfg"), conf).context("its configuration")
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The TCP address.
    pub fn addr(&self) -> SocketAddr {
        (self.ground.addr(), self.port).into()
    }

    /// `zookeeper://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("zookeeper://{}", self.addr())
    }

    /// Its own small disk or wall clock, if it has one.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    /// Restarts it on the same port and with its data; kills it first if it still runs.
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub fn restart(&self) -> Result<()> {
        self.kill()?;
        self.run()
    }

    /// As `restart`, but without its data: no node and no session is left, and its numbers begin again.
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub fn restart_empty(&self) -> Result<()> {
        self.kill()?;
        // Its snapshots and its log. The number of a member is beside them.
        let data = self.ground.data_outside(self.dir()).join("version-2");
        fs::remove_dir_all(data).context("removing old data")?;
        self.run()
    }

    /// Restarts it, and makes it give this number to the next sequential node under the path. Nobody can wait for billions of nodes.
    ///
    /// # Errors
    /// Fails if the path does not exist, and as [`start`](Self::start).
    pub fn restart_counting_from(&self, path: &str, number: i32) -> Result<()> {
        // At its start the server writes a snapshot of all that it has.
        self.restart()?;
        self.kill()?;
        let source = self.dir().join("CountTo.java");
        fs::write(&source, include_str!("zookeeper/CountTo.java"))?;
        let data = self.ground.data_outside(self.dir()).join("version-2");
        let mut program = self.ground.command("java");
        program.args(["-cp", JAR]).arg(source);
        program.arg(data).args([path, &number.to_string()]);
        let output = program.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the snapshot stays: {said}");
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
        let mut stream = self.ground.connect(self.port)?;
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

    /// Runs lines of the server's own command-line client, in one session. Returns what it prints. It prints errors too,
    /// and goes on.
    ///
    /// # Errors
    /// Fails when the client does not start.
    pub fn admin(&self, lines: &str) -> Result<String> {
        let mut client = self.ground.command("java");
        client.args(["-cp", JAR, "org.apache.zookeeper.ZooKeeperMain"]);
        client.args(["-server", &self.addr().to_string()]);
        client.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = client.stderr(Stdio::piped()).spawn()?;
        let mut stdin = client.stdin.take().context("no stdin")?;
        stdin.write_all(format!("{lines}\nquit\n").as_bytes())?;
        drop(stdin);
        let output = client.wait_with_output()?;
        let said = [output.stdout, output.stderr].concat();
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    fn run(&self) -> Result<()> {
        self.process.spawn(self.command())?;
        self.wait_ready()
    }

    fn wait_ready(&self) -> Result<()> {
        self.process.await_ready(START, || {
            // The port opens before the server is ready, and it may never answer a connection that it accepts during
            // its start. So we try new ones.
            let said = self.say_within("srvr", Duration::from_millis(500))?;
            ensure!(said.contains("Mode:"), "it says {said:?}");
            Ok(())
        })
    }

    fn command(&self) -> Command {
        let mut command = self.ground.command("java");
        // A small machine runs several of these servers: little memory, few threads, and no fsync.
        command.args([
            "-Xmx192m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
        ]);
        let check = self.container_check;
        command.arg(format!("-Dznode.container.checkIntervalMs={check}"));
        command.args([
            "-Dzookeeper.forceSync=no",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        ]);
        let main = if self.member.is_none() {
            "org.apache.zookeeper.server.ZooKeeperServerMain"
        } else {
            // By default a member waits five seconds for another that is cut off before it asks the next, and up to a
            // minute before it asks all of them again.
            command.args([
                "-Dzookeeper.cnxTimeout=500",
                "-Dzookeeper.fastleader.maxNotificationInterval=1000",
            ]);
            "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        };
        command.args(["-cp", JAR, main]);
        command.arg(self.dir().join("zoo.cfg"));
        command
    }
}

is_a_process!(ZooKeeperServer);
