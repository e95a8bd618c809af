mod cluster;

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

pub use cluster::EtcdCluster;

use super::process::is_a_process;
use super::{Certs, Ground, ServerProcess, Tls, port};
use crate::process;

/// The limit of one start. A start takes 0.3 s, and longer on a loaded machine; only a broken server reaches the limit.
const START: Duration = Duration::from_secs(30);

/// The tests' operator user, once authentication is on.
const OPERATOR: &str = "root:root";

/// The settings of a member. Made by [`EtcdServer::builder`].
#[derive(Debug, Clone, Default)]
#[must_use = "nothing runs before `start`"]
pub struct EtcdBuilder {
    args: Vec<String>,
    tls: Option<Tls>,
    /// For a cluster: its own name, its own peer port and the addresses of all peers.
    peers: Option<(String, u16, String)>,
}

impl EtcdBuilder {
    /// Additional arguments of the server's command line.
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Accepts only TLS from clients.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    /// Fails when its program is missing or it does not become ready; the error contains its output.
    pub fn start(self) -> Result<EtcdServer> {
        self.start_on(Ground::default())
    }

    /// As [`start`](Self::start), on its own disk or clock.
    ///
    /// # Errors
    /// The same as `start`.
    pub fn start_on(self, ground: Ground) -> Result<EtcdServer> {
        let server = EtcdServer::prepare(self, ground)?;
        server.run()?;
        server.wait_ready()?;
        Ok(server)
    }
}

/// An etcd server that lives as long as this value. Its timings are short: it elects fast, and its shortest lease is
/// one second.
#[derive(Debug)]
pub struct EtcdServer {
    process: ServerProcess,
    config: EtcdBuilder,
    port: u16,
    peer_port: u16,
    /// The address of the health check, in plain text even with TLS.
    health: u16,
    certs: Option<Certs>,
    ground: Ground,
    /// Whether authentication is on.
    guarded: AtomicBool,
}

impl EtcdServer {
    /// Starts a single member.
    ///
    /// # Errors
    /// The same as [`EtcdBuilder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// A builder for a server with other settings.
    pub fn builder() -> EtcdBuilder {
        EtcdBuilder::default()
    }

    /// Starts another member, which has no vote, and waits until it runs. It tells its state and executes no request of a
    /// client. This server must be alone and use no TLS.
    ///
    /// # Errors
    /// The same as [`EtcdBuilder::start`].
    pub fn start_learner(&self) -> Result<Self> {
        let (name, peer_port) = ("learner", port::free()?);
        let addr = self.ground.addr();
        let peer = format!("http://{addr}:{peer_port}");
        self.admin(&["member", "add", name, "--learner", "--peer-urls", &peer])?;
        let all = format!("default=http://{addr}:{},{name}={peer}", self.peer_port);
        let config = EtcdBuilder {
            peers: Some((name.to_owned(), peer_port, all)),
            ..EtcdBuilder::default().args(["--initial-cluster-state", "existing"])
        };
        let learner = Self::prepare(config, Ground::default())?;
        learner.run()?;
        let is_up = || learner.health().map(drop);
        learner.process.await_ready(START, is_up)?;
        Ok(learner)
    }

    fn prepare(config: EtcdBuilder, ground: Ground) -> Result<Self> {
        let process = ServerProcess::new("etcd")?;
        let certs = config
            .tls
            .map(|tls| Certs::create(process.dir(), tls.cert))
            .transpose()?;
        let peer_port = match &config.peers {
            Some((_, port, _)) => *port,
            None => port::free()?,
        };
        Ok(Self {
            process,
            config,
            port: port::free()?,
            peer_port,
            health: port::free()?,
            certs,
            ground,
            guarded: AtomicBool::new(false),
        })
    }

    /// The TCP address for clients.
    pub fn addr(&self) -> SocketAddr {
        (self.ground.addr(), self.port).into()
    }

    /// `etcd://127.0.0.1:PORT`, or `etcds://localhost:PORT` with TLS.
    pub fn url(&self) -> String {
        match self.certs {
            Some(_) => format!("etcds://localhost:{}", self.port),
            None => format!("etcd://{}", self.addr()),
        }
    }

    /// The certificates, if the server uses TLS.
    pub fn certs(&self) -> Option<&Certs> {
        self.certs.as_ref()
    }

    /// Its own small disk or wall clock, if it has one.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    /// Restarts it on the same port and with its data; kills it first if it still runs.
    ///
    /// # Errors
    /// The same as [`EtcdBuilder::start`].
    pub fn restart(&self) -> Result<()> {
        self.kill()?;
        self.run()?;
        self.wait_ready()
    }

    /// As `restart`, but with an empty data directory.
    ///
    /// # Errors
    /// The same as [`EtcdBuilder::start`].
    pub fn restart_empty(&self) -> Result<()> {
        self.kill()?;
        fs::remove_dir_all(self.dir().join("data")).context("removing old data")?;
        self.run()?;
        self.wait_ready()
    }

    /// Keeps a copy of its data as they are now.
    ///
    /// # Errors
    /// Fails when it does not run, or the data cannot be copied.
    pub fn save(&self) -> Result<()> {
        let [data, saved] = ["data", "saved"].map(|name| self.dir().join(name));
        // It changes nothing meanwhile.
        self.freeze()?;
        let copied = Command::new("cp").arg("-a").args([data, saved]).status();
        self.thaw()?;
        ensure!(copied?.success(), "its data were not copied");
        Ok(())
    }

    /// As `restart`, but with the data that [`save`](Self::save) has kept, as after a restore from a snapshot.
    ///
    /// # Errors
    /// The same as [`EtcdBuilder::start`].
    pub fn restart_saved(&self) -> Result<()> {
        self.kill()?;
        let [data, saved] = ["data", "saved"].map(|name| self.dir().join(name));
        fs::remove_dir_all(&data).context("removing newer data")?;
        fs::rename(saved, data).context("the data that were kept")?;
        self.run()?;
        self.wait_ready()
    }

    /// Sets its wall clock `seconds` ahead of the true time (behind it, if negative), until its next start. We patch
    /// the vDSO because Go programs bypass libfaketime.
    ///
    /// # Errors
    /// Fails when it does not run, or its clock still shows another time.
    pub fn shift_clock(&self, seconds: i64) -> Result<()> {
        process::shift_wall_clock(self.pid()?, seconds)?;
        let wanted = time::Duration::seconds(seconds);
        let earliest = OffsetDateTime::now_utc() + wanted;
        let said = self.health()?;
        let latest = OffsetDateTime::now_utc() + wanted;
        let date = said.lines().find_map(|line| line.strip_prefix("Date: "));
        let date = date.with_context(|| format!("no date: {said}"))?;
        let shown = OffsetDateTime::parse(date.trim(), &Rfc2822)?;
        // The `Date` header has whole seconds.
        ensure!(
            shown > earliest - time::Duration::SECOND && shown <= latest,
            "its clock shows {date}"
        );
        Ok(())
    }

    /// An `etcdctl` command with the options for this server; the caller adds arguments.
    pub fn etcdctl(&self) -> Command {
        let mut command = match self.ground.host() {
            Some(host) => host.command("etcdctl"),
            None => Command::new("etcdctl"),
        };
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

    /// Runs `etcdctl` as the operator and returns its output.
    ///
    /// # Errors
    /// Fails when `etcdctl` fails; the error contains its output.
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

    /// Turns authentication on. From now on only existing users may log in; the operator has all rights.
    ///
    /// # Errors
    /// The same as `admin`.
    pub fn guard(&self) -> Result<()> {
        self.admin(&["user", "add", OPERATOR])?;
        self.admin(&["user", "grant-role", "root", "root"])?;
        self.admin(&["auth", "enable"])?;
        self.guarded.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Makes a user with read and write access to keys with this prefix.
    ///
    /// # Errors
    /// The same as `admin`.
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

    /// Changes a user's password. Tokens that etcd issued for the old password become invalid.
    ///
    /// # Errors
    /// The same as `admin`.
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

    /// Every key, sorted.
    ///
    /// # Errors
    /// The same as `admin`.
    pub fn keys(&self) -> Result<Vec<String>> {
        let list = self.admin(&["get", "", "--prefix", "--keys-only"])?;
        let lines = list.lines().filter(|line| !line.is_empty());
        Ok(lines.map(str::to_owned).collect())
    }

    fn command(&self) -> Command {
        let scheme = if self.certs.is_some() {
            "https"
        } else {
            "http"
        };
        let addr = self.ground.addr();
        let clients = format!("{scheme}://{addr}:{}", self.port);
        let peer = format!("http://{addr}:{}", self.peer_port);
        let mut command = self.ground.command("etcd");
        let data = self.ground.data(self.dir());
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
            .arg(format!("http://{addr}:{}", self.health));
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
        command
    }

    /// Starts it, and does not wait until it answers.
    fn run(&self) -> Result<()> {
        self.process.spawn(self.command())
    }

    fn wait_ready(&self) -> Result<()> {
        self.process.await_ready(START, || self.check_health())
    }

    /// The number of messages that it has received from all clients: requests, and what they send on their streams.
    ///
    /// # Errors
    /// Fails when it does not answer.
    pub fn requests(&self) -> Result<u64> {
        let metrics = self.get("/metrics")?;
        let mut sum = count(&metrics, "grpc_server_msg_received_total{", "")?;
        // Since 3.6 it counts the end of a stream as a message.
        if !metrics.contains("etcd_server_version{server_version=\"3.4.") {
            sum -= count(&metrics, "grpc_server_handled_total{", "bidi_stream")?;
        }
        ensure!(sum > 0.0, "it counts no messages");
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count, which etcd writes as a float"
        )]
        Ok(sum as u64)
    }

    fn check_health(&self) -> Result<()> {
        let answer = self.health()?;
        ensure!(answer.contains("\"health\":\"true\""), "not well: {answer}");
        Ok(())
    }

    fn health(&self) -> Result<String> {
        self.get("/health")
    }

    fn get(&self, path: &str) -> Result<String> {
        let mut stream = self.ground.connect(self.health)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// The sum of the metrics that begin with this name and have this word among their labels.
fn count(metrics: &str, name: &str, label: &str) -> Result<f64> {
    let lines = metrics.lines().filter(|line| line.starts_with(name));
    let counts = lines
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(labels, _)| labels.contains(label));
    let mut sum = 0.0;
    for (_, count) in counts {
        sum += count.trim().parse::<f64>()?;
    }
    Ok(sum)
}

is_a_process!(EtcdServer);
