use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use super::{Certs, Ground, Tls, port, wait};
use crate::scratch::scratch;
use crate::{process, reaper};

/// A start takes 0.3 s; a loaded machine may need more, a broken server all of it.
const START: Duration = Duration::from_secs(30);

/// The user under which the tests play operator, once there are users.
const OPERATOR: &str = "root:root";

/// What a member is started with. Made by [`EtcdServer::builder`].
#[derive(Debug, Clone, Default)]
#[must_use = "nothing runs before `start`"]
pub struct EtcdBuilder {
    args: Vec<String>,
    tls: Option<Tls>,
    /// Of a cluster: the own name, the own peer port and everybody's.
    peers: Option<(String, u16, String)>,
}

impl EtcdBuilder {
    /// More arguments of the server's command line.
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Speaks TLS, and only TLS, to clients.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    /// When its program is missing, or it does not get ready; with what it said.
    pub fn start(self) -> Result<EtcdServer> {
        self.start_on(Ground::default())
    }

    /// As [`start`](Self::start), on a disk of its own.
    ///
    /// # Errors
    /// As `start`.
    pub fn start_on(self, ground: Ground) -> Result<EtcdServer> {
        let server = EtcdServer::prepare(self, ground)?;
        server.run()?;
        server.wait_ready()?;
        Ok(server)
    }
}

/// An etcd server that lives as long as this value. It elects and counts fast: its shortest lease is one second.
#[derive(Debug)]
pub struct EtcdServer {
    config: EtcdBuilder,
    port: u16,
    peer_port: u16,
    /// Where it says in plain text whether it is well, also with TLS.
    health: u16,
    certs: Option<Certs>,
    ground: Ground,
    /// Only users may come in.
    guarded: AtomicBool,
    child: Mutex<Option<Child>>,
    // Last, so that the directory goes after the server.
    dir: TempDir,
}

impl EtcdServer {
    /// One member, alone.
    ///
    /// # Errors
    /// As [`EtcdBuilder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// A server with more to say about it.
    pub fn builder() -> EtcdBuilder {
        EtcdBuilder::default()
    }

    fn prepare(config: EtcdBuilder, ground: Ground) -> Result<Self> {
        let dir = scratch()?;
        let certs = config
            .tls
            .map(|tls| Certs::create(dir.path(), tls.cert))
            .transpose()?;
        let peer_port = match &config.peers {
            Some((_, port, _)) => *port,
            None => port::free()?,
        };
        Ok(Self {
            config,
            port: port::free()?,
            peer_port,
            health: port::free()?,
            certs,
            ground,
            guarded: AtomicBool::new(false),
            child: Mutex::new(None),
            dir,
        })
    }

    /// The TCP address for clients.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// `etcd://127.0.0.1:PORT`, or `etcds://localhost:PORT` with TLS.
    pub fn url(&self) -> String {
        match self.certs {
            Some(_) => format!("etcds://localhost:{}", self.port),
            None => format!("etcd://{}", self.addr()),
        }
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
        let child = self.lock();
        child
            .as_ref()
            .map(Child::id)
            .context("the server is not running")
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
    /// As [`EtcdBuilder::start`].
    pub fn restart(&self) -> Result<()> {
        self.kill()?;
        self.run()?;
        self.wait_ready()
    }

    /// As `restart`, with nothing left of its data.
    ///
    /// # Errors
    /// As [`EtcdBuilder::start`].
    pub fn restart_empty(&self) -> Result<()> {
        self.kill()?;
        fs::remove_dir_all(self.dir.path().join("data")).context("removing old data")?;
        self.run()?;
        self.wait_ready()
    }

    /// From now on its wall clock is `seconds` ahead of the true time (behind it, if negative), until it is started again. A
    /// program in Go asks past libfaketime for the time.
    ///
    /// # Errors
    /// When it does not run, or its clock shows another time than that.
    pub fn shift_clock(&self, seconds: i64) -> Result<()> {
        process::shift_wall_clock(self.pid()?, seconds)?;
        let wanted = time::Duration::seconds(seconds);
        let earliest = OffsetDateTime::now_utc() + wanted;
        let said = self.health()?;
        let latest = OffsetDateTime::now_utc() + wanted;
        let date = said.lines().find_map(|line| line.strip_prefix("Date: "));
        let date = date.with_context(|| format!("no date: {said}"))?;
        let shown = OffsetDateTime::parse(date.trim(), &Rfc2822)?;
        // It is written in whole seconds.
        ensure!(
            shown > earliest - time::Duration::SECOND && shown <= latest,
            "its clock shows {date}"
        );
        Ok(())
    }

    /// `etcdctl` with what it needs to find this server; arguments are still to be added.
    pub fn etcdctl(&self) -> Command {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").stdin(Stdio::null());
        if self.guarded.load(Ordering::SeqCst) {
            command.env("ETCDCTL_USER", OPERATOR);
        }
        match &self.certs {
            Some(certs) => {
                command.env(
                    "ETCDCTL_ENDPOINTS",
                    format!("https://localhost:{}", self.port),
                );
                command.env("ETCDCTL_CACERT", &certs.ca);
                command
                    .env("ETCDCTL_CERT", &certs.client)
                    .env("ETCDCTL_KEY", &certs.client_key);
            }
            None => {
                command.env("ETCDCTL_ENDPOINTS", self.addr().to_string());
            }
        }
        command
    }

    /// Runs `etcdctl` as the operator and returns what it says.
    ///
    /// # Errors
    /// When it fails; with what it said.
    pub fn admin<A: AsRef<OsStr>>(&self, args: &[A]) -> Result<String> {
        let output = self
            .etcdctl()
            .args(args)
            .output()
            .context("starting etcdctl")?;
        ensure!(
            output.status.success(),
            "etcdctl: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    /// From now on only users may come in; those there are, and the operator, who may do everything.
    ///
    /// # Errors
    /// As `admin`.
    pub fn guard(&self) -> Result<()> {
        self.admin(&["user", "add", OPERATOR])?;
        self.admin(&["user", "grant-role", "root", "root"])?;
        self.admin(&["auth", "enable"])?;
        self.guarded.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Makes a user who may read and write what begins with this.
    ///
    /// # Errors
    /// As `admin`.
    pub fn user(&self, name: &str, password: &str, prefix: &str) -> Result<()> {
        self.admin(&["user", "add", &format!("{name}:{password}")])?;
        self.admin(&["role", "add", name])?;
        let all = [
            "role",
            "grant-permission",
            name,
            "--prefix=true",
            "readwrite",
        ];
        self.admin(&[&all[..], &[prefix]].concat())?;
        self.admin(&["user", "grant-role", name, name]).map(drop)
    }

    /// Gives a user another password. What was allowed by the old one is so no more.
    ///
    /// # Errors
    /// As `admin`.
    pub fn set_password(&self, user: &str, password: &str) -> Result<()> {
        let mut command = self.etcdctl();
        command.args(["user", "passwd", user, "--interactive=false"]);
        let mut child = command.stdin(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().context("its stdin")?;
        stdin.write_all(password.as_bytes())?;
        drop(stdin);
        ensure!(child.wait()?.success(), "the password was not changed");
        Ok(())
    }

    /// Every key there is, sorted.
    ///
    /// # Errors
    /// As `admin`.
    pub fn keys(&self) -> Result<Vec<String>> {
        let list = self.admin(&["get", "", "--prefix", "--keys-only"])?;
        let lines = list.lines().filter(|line| !line.is_empty());
        Ok(lines.map(str::to_owned).collect())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) -> Result<()> {
        let scheme = if self.certs.is_some() {
            "https"
        } else {
            "http"
        };
        let clients = format!("{scheme}://127.0.0.1:{}", self.port);
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let mut command = self.ground.command("etcd");
        let data = self.ground.data(self.dir.path());
        command.arg("--data-dir").arg(data);
        command.args([
            "--unsafe-no-fsync",
            "--heartbeat-interval",
            "50",
            "--election-timeout",
            "500",
        ]);
        command.args([
            "--listen-client-urls",
            &clients,
            "--advertise-client-urls",
            &clients,
        ]);
        command.args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ]);
        command
            .arg("--listen-metrics-urls")
            .arg(format!("http://127.0.0.1:{}", self.health));
        match &self.config.peers {
            Some((name, _, all)) => command.args(["--name", name, "--initial-cluster", all]),
            None => command.args(["--initial-cluster", &format!("default={peer}")]),
        };
        if let (Some(certs), Some(tls)) = (&self.certs, self.config.tls) {
            command.arg("--cert-file").arg(&certs.server);
            command.arg("--key-file").arg(&certs.server_key);
            if tls.client_certs {
                command
                    .arg("--client-cert-auth")
                    .arg("--trusted-ca-file")
                    .arg(&certs.ca);
            }
        }
        command.args(&self.config.args);
        let log = File::create(self.dir.path().join("log"))?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command.spawn().context("starting etcd")?;
        reaper::watch(child.id())?;
        *self.lock() = Some(child);
        Ok(())
    }

    fn wait_ready(&self) -> Result<()> {
        let ready = wait::until("etcd", START, || self.check_health());
        ready.with_context(|| format!("it said:\n{}", self.log()))
    }

    fn check_health(&self) -> Result<()> {
        let answer = self.health()?;
        ensure!(answer.contains("\"health\":\"true\""), "not well: {answer}");
        Ok(())
    }

    fn health(&self) -> Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.health))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        // Fails only if it is gone already, which is what is wanted.
        let _ = self.kill();
    }
}

/// Several members of one cluster.
#[derive(Debug)]
pub struct EtcdCluster(Vec<EtcdServer>);

impl EtcdCluster {
    /// That many members, and waits until all of them answer.
    ///
    /// # Errors
    /// As [`EtcdBuilder::start`].
    pub fn start(members: u16) -> Result<Self> {
        let mut peers = Vec::new();
        for n in 0..members {
            peers.push((format!("m{n}"), port::free()?));
        }
        let all: Vec<String> = peers
            .iter()
            .map(|(name, port)| format!("{name}=http://127.0.0.1:{port}"))
            .collect();
        let all = all.join(",");
        let mut servers = Vec::new();
        for (name, port) in peers {
            let config = EtcdBuilder {
                peers: Some((name, port, all.clone())),
                ..EtcdBuilder::default()
            };
            let server = EtcdServer::prepare(config, Ground::default())?;
            // None is well before most of them run.
            server.run()?;
            servers.push(server);
        }
        servers.iter().try_for_each(EtcdServer::wait_ready)?;
        Ok(Self(servers))
    }

    /// All of them.
    pub fn members(&self) -> &[EtcdServer] {
        &self.0
    }

    /// `etcd://127.0.0.1:P1,127.0.0.1:P2,…`
    pub fn url(&self) -> String {
        let addrs: Vec<String> = self
            .0
            .iter()
            .map(|server| server.addr().to_string())
            .collect();
        format!("etcd://{}", addrs.join(","))
    }

    /// The one that leads now.
    ///
    /// # Errors
    /// When nobody does.
    pub fn leader(&self) -> Result<&EtcdServer> {
        for server in self.0.iter().filter(|server| server.pid().is_ok()) {
            let said = server.admin(&["endpoint", "status", "-w", "fields"])?;
            let field = |name: &str| {
                let lines = said.lines().filter_map(|line| line.split_once(" : "));
                let mut values = lines.filter(|(key, _)| key.trim_matches('"') == name);
                values.next().map(|(_, value)| value.to_owned())
            };
            if field("MemberID").is_some() && field("MemberID") == field("Leader") {
                return Ok(server);
            }
        }
        anyhow::bail!("no member leads")
    }
}
