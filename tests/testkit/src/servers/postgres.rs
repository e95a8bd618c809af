use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::getuid;

use super::process::is_a_process;
use super::template::Template;
use super::{Certs, Ground, ServerProcess, Tls, port};

/// Debian's directory for the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The limit of one start. A start takes a tenth of a second, and longer on a loaded machine; only a broken server
/// reaches the limit.
const START: Duration = Duration::from_secs(30);

/// The data of a new server.
static NEW: Template = Template::new();

/// A PostgreSQL server that lives as long as this value. Every loopback client may log in as `postgres`.
#[derive(Debug)]
pub struct PostgresServer {
    process: ServerProcess,
    port: u16,
    programs: PathBuf,
    ground: Ground,
    tls: Option<(Tls, Certs)>,
}

impl PostgresServer {
    /// Starts a server without data.
    ///
    /// # Errors
    /// Fails when the package is missing, or the server does not answer.
    pub fn start() -> Result<Self> {
        Self::make(Ground::default(), None)
    }

    /// As [`start`](Self::start), on its own disk or clock.
    ///
    /// # Errors
    /// The same as `start`.
    pub fn start_on(ground: Ground) -> Result<Self> {
        Self::make(ground, None)
    }

    /// Starts a server with TLS. Only the operator may use plain text.
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub fn start_tls(tls: Tls) -> Result<Self> {
        Self::make(Ground::default(), Some(tls))
    }

    /// Starts a hot standby of another server: it has that server's data, and answers reads only.
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub fn start_standby(primary: &Self) -> Result<Self> {
        let mut standby = Self::without_data(Ground::default(), None)?;
        let mut copy = standby.command("pg_basebackup");
        copy.arg("-D").arg(standby.data());
        copy.arg("-h").arg(primary.dir());
        copy.args(["-p", &primary.port.to_string(), "-U", "postgres"]);
        // `-R` lets it follow that server.
        copy.args(["-R", "-X", "stream", "-c", "fast", "--no-sync"]);
        run(&mut copy)?;
        standby.take_port()?;
        Ok(standby)
    }

    fn make(ground: Ground, tls: Option<Tls>) -> Result<Self> {
        let mut server = Self::without_data(ground, tls)?;
        if server.ground.disk().is_ok() {
            // The write-ahead log consists of files of this many MiB. Small files make the server need the next one
            // soon on a small disk.
            server.install(&["--wal-segsize=1"])?;
        } else {
            NEW.copy_to(&server.data(), || {
                let server = Self::without_data(Ground::default(), None)?;
                server.install(&[])?;
                Ok(server.process)
            })?;
        }
        if let Some((tls, _)) = &server.tls {
            let shown = if tls.client_certs {
                "clientcert=verify-ca"
            } else {
                ""
            };
            let rules =
                format!("local all all trust\nhostssl all all 127.0.0.1/32 trust {shown}\n");
            fs::write(server.data().join("pg_hba.conf"), rules)?;
        }
        server.take_port()?;
        Ok(server)
    }

    /// Makes its data directory, with more arguments for `initdb`.
    fn install(&self, more: &[&str]) -> Result<()> {
        let mut init = self.command("initdb");
        init.arg("-D").arg(self.data());
        init.args(["-A", "trust", "-U", "postgres", "--no-sync"]);
        init.args(["--encoding=UTF8", "--locale=C"]).args(more);
        run(&mut init).map(drop)
    }

    /// A server that has no data directory and does not run yet.
    fn without_data(ground: Ground, tls: Option<Tls>) -> Result<Self> {
        let process = ServerProcess::new("PostgreSQL")?.forking();
        let tls = tls.map(|tls| Certs::create(process.dir(), tls.cert).map(|certs| (tls, certs)));
        let server = Self {
            process,
            port: 0,
            programs: programs()?,
            ground,
            tls: tls.transpose()?,
        };
        if let Some((_, certs)) = &server.tls {
            // The server refuses a key that other users may read.
            fs::set_permissions(&certs.server_key, fs::Permissions::from_mode(0o600))?;
        }
        if getuid().is_root() && server.ground.disk().is_err() {
            let owner = server.dir().display().to_string();
            run(Command::new("chown").args(["-R", "postgres", &owner]))?;
        }
        Ok(server)
    }

    /// Starts it for the first time, on a free port.
    fn take_port(&mut self) -> Result<()> {
        port::start_on(port::free, |port| {
            self.port = port;
            self.run()
        })
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The TCP address.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// `postgres://postgres@127.0.0.1:PORT/postgres`; with TLS, the host is the name in the certificate.
    pub fn url(&self) -> String {
        match self.tls {
            Some(_) => format!("postgres://postgres@localhost:{}/postgres", self.port),
            None => self.url_at(self.addr()),
        }
    }

    /// The certificates, if the server uses TLS.
    pub fn certs(&self) -> Option<&Certs> {
        self.tls.as_ref().map(|(_, certs)| certs)
    }

    /// The same URL for another address.
    pub fn url_at(&self, addr: SocketAddr) -> String {
        format!("postgres://postgres@{addr}/postgres")
    }

    /// The output of `psql` for these statements: one line per row, `|` between columns.
    ///
    /// # Errors
    /// Fails when the server refuses, or does not answer.
    pub fn query(&self, statements: &str) -> Result<String> {
        self.query_as("postgres", statements)
    }

    /// As [`query`](Self::query), for another user.
    ///
    /// # Errors
    /// The same as [`query`](Self::query).
    pub fn query_as(&self, user: &str, statements: &str) -> Result<String> {
        let mut psql = Command::new(self.programs.join("psql"));
        let port = self.port.to_string();
        // We use the Unix socket, which has no TLS.
        psql.arg("-h").arg(self.dir());
        psql.args(["-p", &port, "-U", user, "-d", "postgres"]);
        psql.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            statements,
        ]);
        run(&mut psql).map(|text| text.trim_end().to_owned())
    }

    /// The statements that make everything that its database has, without the settings of `pg_dump` itself.
    ///
    /// # Errors
    /// The same as [`query`](Self::query).
    pub fn dump(&self) -> Result<String> {
        let mut dump = Command::new(self.programs.join("pg_dump"));
        dump.args(["--inserts", "--no-owner", "--no-privileges"]);
        dump.arg("-h").arg(self.dir());
        dump.args(["-p", &self.port.to_string(), "-U", "postgres", "postgres"]);
        let text = run(&mut dump)?;
        let of_dump = ["--", "\\", "SET ", "SELECT pg_catalog.set_config"];
        let kept = |line: &&str| !line.is_empty() && !of_dump.iter().any(|it| line.starts_with(it));
        let lines = text.lines().filter(kept);
        Ok(lines.flat_map(|line| [line, "\n"]).collect())
    }

    /// Restarts it on the same port and with its data; ends it first if it still runs.
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub fn restart(&self) -> Result<()> {
        self.kill()?;
        self.run()
    }

    /// Its own small disk or wall clock, if it has one.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    /// Puts a rule before all others in its `pg_hba.conf`.
    ///
    /// # Errors
    /// The same as [`query`](Self::query).
    pub fn admit_first(&self, rule: &str) -> Result<()> {
        let file = self.ground.data_outside(self.dir()).join("pg_hba.conf");
        let rules = fs::read_to_string(&file)?;
        fs::write(&file, format!("{rule}\n{rules}"))?;
        self.query("SELECT pg_reload_conf()").map(drop)
    }

    fn data(&self) -> PathBuf {
        self.ground.data(self.dir())
    }

    /// A program of the server. The programs refuse to run as root, so we change the user if needed.
    fn command(&self, program: &str) -> Command {
        let path = self.programs.join(program);
        let mut command = if self.ground.disk().is_ok() {
            // The namespace of the disk knows only root, so we map the user in a nested namespace.
            let mut command = self.ground.command("unshare");
            command.args(["--user", "--map-user=postgres", "--map-group=postgres"]);
            command.arg(path);
            command
        } else if getuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
            if let Ok(clock) = self.ground.clock() {
                // We set the clock after the change of user. The clock keeps a semaphore that belongs to the first user
                // of the clock, and another user could not open it.
                command.arg("env");
                for (key, value) in clock.settings() {
                    let mut setting = OsString::from(format!("{key}="));
                    setting.push(value);
                    command.arg(setting);
                }
            }
            command.arg(path);
            command
        } else {
            Command::new(path)
        };
        command.current_dir(self.dir());
        command
    }

    fn run(&self) -> Result<()> {
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data());
        command.args(["-p", &self.port.to_string(), "-h", "127.0.0.1", "-k"]);
        command.arg(self.dir());
        for setting in [
            "fsync=off",
            "shared_buffers=16MB",
            "max_connections=200",
            // In the data directory, which is removed. A server that is killed leaves segments of POSIX behind in `/dev/shm`.
            "dynamic_shared_memory_type=mmap",
        ] {
            command.args(["-c", setting]);
        }
        if let Some((_, certs)) = &self.tls {
            for (setting, file) in [
                ("ssl_cert_file", &certs.server),
                ("ssl_key_file", &certs.server_key),
                ("ssl_ca_file", &certs.ca),
            ] {
                command.args(["-c", &format!("{setting}={}", file.display())]);
            }
            command.args(["-c", "ssl=on"]);
        }
        if !getuid().is_root() {
            self.ground.set_clock(&mut command);
        }
        self.process
            .start(command, START, || self.query("SELECT 1").map(drop))
    }
}

is_a_process!(PostgresServer);

fn programs() -> Result<PathBuf> {
    let found = fs::read_dir(Path::new(VERSIONS))
        .with_context(|| {
            format!("{VERSIONS} is missing; `cargo xtask servers` installs PostgreSQL")
        })?
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .filter(|path| path.join("postgres").is_file());
    found.max().context("no version of PostgreSQL is installed")
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
