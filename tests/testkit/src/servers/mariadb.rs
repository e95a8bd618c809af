use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::process::is_a_process;
use super::template::Template;
use super::{Certs, Ground, ServerProcess, Tls, port};

/// The limit of one start. A start takes 0.1 to 1 s, and longer on a loaded machine; only a broken server reaches the
/// limit.
const START: Duration = Duration::from_secs(60);

/// The user of [`MariaDb::url`] and the password.
const USER: &str = "tide";
const PASSWORD: &str = "pass";
/// The database of [`MariaDb::url`].
const DATABASE: &str = "locks";

/// The data of a new server.
static NEW: Template = Template::new();

/// A MariaDB server that lives as long as this value. All methods take `&self`, so tests can share one.
#[derive(Debug)]
pub struct MariaDb {
    process: ServerProcess,
    port: u16,
    args: Vec<String>,
    ground: Ground,
    certs: Option<Certs>,
}

impl MariaDb {
    /// Starts a server with an empty database `locks`, on which the user `tide` has all rights.
    ///
    /// # Errors
    /// Fails when it is not installed, or does not start.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// As [`start`](Self::start), with additional arguments.
    ///
    /// # Errors
    /// The same as `start`.
    pub fn start_with(args: &[&str]) -> Result<Self> {
        Self::make(Ground::default(), args, None)
    }

    /// As [`start_with`](Self::start_with), on its own disk or clock.
    ///
    /// # Errors
    /// The same as `start`.
    pub fn start_on(ground: Ground, args: &[&str]) -> Result<Self> {
        Self::make(ground, args, None)
    }

    /// Starts a server with TLS. Only the operator may use plain text.
    ///
    /// # Errors
    /// The same as `start`.
    pub fn start_tls(tls: Tls) -> Result<Self> {
        let args = ["--require-secure-transport=ON"];
        let server = Self::make(Ground::default(), &args, Some(tls))?;
        if tls.client_certs {
            server.query(&format!("ALTER USER {USER}@'127.0.0.1' REQUIRE X509"))?;
        }
        Ok(server)
    }

    fn make(ground: Ground, args: &[&str], tls: Option<Tls>) -> Result<Self> {
        let process = ServerProcess::new("MariaDB")?;
        if ground.disk().is_ok() {
            install(&ground, process.dir())?;
        } else {
            NEW.copy_to(&ground.data(process.dir()), || {
                let process = ServerProcess::new("MariaDB")?;
                install(&Ground::default(), process.dir())?;
                Ok(process)
            })?;
        }
        let certs = tls.map(|tls| Certs::create(process.dir(), tls.cert));
        let mut server = Self {
            process,
            port: 0,
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            ground,
            certs: certs.transpose()?,
        };
        port::start_on(port::free, |port| {
            server.port = port;
            server.run()
        })?;
        server.furnish()?;
        Ok(server)
    }

    fn furnish(&self) -> Result<()> {
        self.query(&format!("CREATE DATABASE {DATABASE}"))?;
        self.user(USER, &format!("ALL ON {DATABASE}.*"))
    }

    /// Makes a user with these rights and the password `pass`.
    ///
    /// # Errors
    /// The same as [`query`](Self::query).
    pub fn user(&self, name: &str, rights: &str) -> Result<()> {
        self.query(&format!(
            "CREATE USER {name}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'"
        ))?;
        self.grant(name, rights)
    }

    /// Grants more rights to a user.
    ///
    /// # Errors
    /// The same as [`query`](Self::query).
    pub fn grant(&self, user: &str, rights: &str) -> Result<()> {
        for right in rights.split(';').filter(|right| !right.is_empty()) {
            self.query(&format!("GRANT {right} TO {user}@'127.0.0.1'"))?;
        }
        Ok(())
    }

    /// Changes a user's password. Open sessions stay.
    ///
    /// # Errors
    /// The same as [`query`](Self::query).
    pub fn set_password(&self, user: &str, password: &str) -> Result<()> {
        let alter = format!("ALTER USER {user}@'127.0.0.1' IDENTIFIED BY '{password}'");
        self.query(&alter).map(drop)
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The TCP address.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// `mysql://tide:pass@127.0.0.1:PORT/locks`; with TLS, the host is the name in the certificate.
    pub fn url(&self) -> String {
        match self.certs {
            Some(_) => format!(
                "mysql://{USER}:{PASSWORD}@localhost:{}/{DATABASE}",
                self.port
            ),
            None => self.url_at(self.addr(), USER),
        }
    }

    /// The certificates, if the server uses TLS.
    pub fn certs(&self) -> Option<&Certs> {
        self.certs.as_ref()
    }

    /// As [`url`](Self::url), for another user or through a proxy.
    pub fn url_at(&self, addr: SocketAddr, user: &str) -> String {
        format!("mysql://{user}:{PASSWORD}@{addr}/{DATABASE}")
    }

    /// The Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir().join("socket")
    }

    /// Runs statements as the operator, each time on a new connection. It returns rows as lines, with tabs between
    /// columns.
    ///
    /// # Errors
    /// Fails when the server answers with an error, or cannot be reached.
    pub fn query(&self, sql: &str) -> Result<String> {
        let mut command = self.client();
        let output = command.arg("--execute").arg(sql).output()?;
        ensure!(output.status.success(), "{sql}: {}", said(&output));
        Ok(String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned())
    }

    /// The operator's client; it reads statements from its stdin.
    pub fn client(&self) -> Command {
        let mut command = Command::new("mariadb");
        command
            .args([
                "--no-defaults",
                "--user=root",
                "--batch",
                "--skip-column-names",
            ])
            .args(["--unbuffered", "--default-character-set=utf8mb4"])
            .arg(format!("--socket={}", self.socket().display()))
            .arg(format!(
                "--database={}",
                if self.has_database() {
                    DATABASE
                } else {
                    "mysql"
                }
            ));
        command
    }

    /// The statements that make everything that its database has.
    ///
    /// # Errors
    /// Fails when the server answers with an error, or cannot be reached.
    pub fn dump(&self) -> Result<String> {
        let mut dump = Command::new("mariadb-dump");
        dump.args(["--no-defaults", "--user=root", "--compact", "--hex-blob"]);
        dump.arg("--skip-extended-insert");
        dump.arg(format!("--socket={}", self.socket().display()));
        let output = dump.arg(DATABASE).output()?;
        ensure!(output.status.success(), "mariadb-dump: {}", said(&output));
        let text = String::from_utf8(output.stdout)?;
        let lines = text.lines().filter(|line| !line.starts_with("/*"));
        Ok(lines.flat_map(|line| [line, "\n"]).collect())
    }

    fn has_database(&self) -> bool {
        let data = self.ground.data_outside(self.dir());
        data.join(DATABASE).is_dir()
    }

    /// Its own small disk or wall clock, if it has one.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    /// Starts it again, after killing it if need be, on the same port and data.
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub fn restart(&self) -> Result<()> {
        self.kill()?;
        self.run()
    }

    fn run(&self) -> Result<()> {
        let dir = self.dir();
        let mut command = self.ground.command(daemon());
        self.ground.set_clock(&mut command);
        command.arg("--no-defaults");
        if let Some(certs) = &self.certs {
            for (option, file) in [
                ("--ssl-cert", &certs.server),
                ("--ssl-key", &certs.server_key),
                ("--ssl-ca", &certs.ca),
            ] {
                command.arg(format!("{option}={}", file.display()));
            }
        }
        command
            .arg(format!("--datadir={}", self.ground.data(dir).display()))
            .arg(format!("--socket={}", self.socket().display()))
            .arg(format!("--tmpdir={}", dir.display()))
            .arg(format!("--port={}", self.port))
            .args(["--user=root", "--bind-address=127.0.0.1", "--skip-log-bin"])
            .args([
                "--innodb-buffer-pool-size=64M",
                // On a file system in memory it is mapped, and counts as memory of the server while it fills.
                "--innodb-log-file-size=8M",
                "--innodb-flush-log-at-trx-commit=2",
            ])
            .args(["--performance-schema=off", "--max-connections=500"])
            .args(&self.args);
        self.process
            .start(command, START, || self.query("DO 1").map(drop))
    }
}

is_a_process!(MariaDb);

/// The server's program is not on the search path of users other than root.
fn daemon() -> &'static Path {
    let known = Path::new("/usr/sbin/mariadbd");
    if known.exists() {
        known
    } else {
        Path::new("mariadbd")
    }
}

/// Makes the data directory of a new server.
fn install(ground: &Ground, dir: &Path) -> Result<()> {
    let output = ground
        .command("mariadb-install-db")
        .args(["--no-defaults", "--auth-root-authentication-method=normal"])
        .args(["--skip-test-db", "--user=root", "--innodb-log-file-size=8M"])
        .arg(format!("--datadir={}", ground.data(dir).display()))
        // In the shared temporary folder, servers that are installed at the same time would remove each other's files.
        .arg(format!("--tmpdir={}", dir.display()))
        .output()
        .context("mariadb-install-db is missing: run `cargo xtask servers`")?;
    ensure!(
        output.status.success(),
        "mariadb-install-db: {}",
        said(&output)
    );
    Ok(())
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}
