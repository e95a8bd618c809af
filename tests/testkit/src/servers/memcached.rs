use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::process::is_a_process;
use super::{ServerProcess, port, wait};
use crate::process;

/// The limit of one start. A start takes some milliseconds, and longer on a loaded machine; only a broken server
/// reaches the limit.
const START: Duration = Duration::from_secs(20);

const NAME: &str = "memcached";

/// A user and the password.
type Login = (String, String);

/// A memcached that lives as long as this value. It keeps its data in memory only.
#[derive(Debug)]
pub struct MemcachedServer {
    process: ServerProcess,
    args: Vec<String>,
    port: u16,
    /// The only permitted user, if there is one.
    login: Mutex<Option<Login>>,
}

/// The answer to the question for a list, while the server makes another one.
const BUSY: &str = "BUSY currently processing crawler request\r\n";

impl MemcachedServer {
    /// Starts a server with 16 MiB.
    ///
    /// # Errors
    /// Fails when it is not installed or does not answer.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// Starts a server with additional arguments; they override the defaults.
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub fn start_with(args: &[&str]) -> Result<Self> {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Self::launch(ServerProcess::new(NAME)?, args, None)
    }

    /// Starts a server that accepts only this user.
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub fn start_guarded(user: &str, password: &str) -> Result<Self> {
        let process = ServerProcess::new(NAME)?;
        // The server drops its privileges, including the right to read the folder, so we open the folder to all.
        fs::set_permissions(process.dir(), Permissions::from_mode(0o755))?;
        let file = process.dir().join("users");
        fs::write(&file, format!("{user}:{password}\n"))?;
        let args = vec![format!("--auth-file={}", file.display())];
        let login = (user.to_owned(), password.to_owned());
        Self::launch(process, args, Some(login))
    }

    fn launch(process: ServerProcess, args: Vec<String>, login: Option<Login>) -> Result<Self> {
        let mut server = Self {
            process,
            args,
            port: 0,
            login: Mutex::new(login),
        };
        port::start_on(port::free, |port| {
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
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// `memcached://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("memcached://{}", self.addr())
    }

    /// Restarts it on the same port, empty; kills it first if it still runs.
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub fn restart(&self) -> Result<()> {
        self.kill()?;
        self.run()
    }

    /// The keys of all items, as the server writes them: percent-encoded.
    ///
    /// # Errors
    /// Fails when the server does not answer.
    pub fn keys(&self) -> Result<Vec<String>> {
        // The server makes one list at a time, and reads nothing that was sent together with the question for one.
        let list = wait::until("a list of the items", START, || {
            let list = self.talk("lru_crawler metadump all\r\n", &["END\r\n", BUSY])?;
            ensure!(!list.ends_with(BUSY), "it makes another list");
            Ok(list)
        })?;
        let keys = list.lines().filter_map(|line| line.strip_prefix("key="));
        Ok(keys
            .filter_map(|line| line.split(' ').next())
            .map(str::to_owned)
            .collect())
    }

    /// Sends raw commands on a new connection, followed by `mn`, and returns everything up to the reply to `mn`.
    ///
    /// # Errors
    /// Fails when the server does not answer.
    pub fn admin(&self, commands: &str) -> Result<String> {
        let said = self.talk(&format!("{commands}\r\nmn\r\n"), &["MN\r\n"])?;
        Ok(said.trim_end_matches("MN\r\n").to_owned())
    }

    /// Sends this on a new connection, and returns what comes, up to one of these ends.
    fn talk(&self, commands: &str, ends: &[&str]) -> Result<String> {
        let mut stream = TcpStream::connect(self.addr())?;
        stream.set_read_timeout(Some(START))?;
        let login = self.login.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((user, password)) = &*login {
            let words = format!("{user} {password}");
            stream.write_all(format!("set login 0 0 {}\r\n{words}\r\n", words.len()).as_bytes())?;
            let mut stored = [0; b"STORED\r\n".len()];
            stream.read_exact(&mut stored)?;
            ensure!(stored == *b"STORED\r\n", "the login is not taken");
        }
        stream.write_all(commands.as_bytes())?;
        let (mut said, mut bytes) = (Vec::new(), [0; 4096]);
        while !ends.iter().any(|end| said.ends_with(end.as_bytes())) {
            let count = stream.read(&mut bytes)?;
            ensure!(count > 0, "it ended the connection");
            said.extend_from_slice(&bytes[..count]);
        }
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    /// Changes the user's password, and waits until the server requires it. Open connections stay.
    ///
    /// # Errors
    /// Fails when the server does not reload the password.
    pub fn set_password(&self, password: &str) -> Result<()> {
        {
            let mut login = self.login.lock().unwrap_or_else(PoisonError::into_inner);
            let login = login.as_mut().context("it has no users")?;
            password.clone_into(&mut login.1);
            let line = format!("{}:{}\n", login.0, login.1);
            fs::write(self.dir().join("users"), line)?;
        }
        process::hang_up(self.pid()?)?;
        // The server checks the file within a second.
        wait::until("the new password", START, || {
            self.admin("version").map(drop)
        })
    }

    /// One number from `stats`.
    ///
    /// # Errors
    /// Fails as [`admin`](Self::admin) does, or when there is no such number.
    pub fn stat(&self, name: &str) -> Result<u64> {
        let stats = self.admin("stats")?;
        let line = format!("STAT {name} ");
        let value = stats.lines().find_map(|said| said.strip_prefix(&line));
        Ok(value.context("no such number")?.trim().parse()?)
    }

    fn run(&self) -> Result<()> {
        let mut command = Command::new("memcached");
        command
            .args(["-l", "127.0.0.1", "-U", "0", "-m", "16", "-t", "2"])
            .args(["-p", &self.port.to_string()])
            .args(&self.args);
        if rustix::process::getuid().is_root() {
            // The server refuses to run as root.
            command.args(["-u", "nobody"]);
        }
        self.process.start(command, START, || {
            TcpStream::connect(self.addr())?;
            Ok(())
        })
    }
}

is_a_process!(MemcachedServer);
