use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use super::{port, wait};
use crate::scratch::scratch;
use crate::{process, reaper};

/// The limit of one start. A start takes some milliseconds, and longer on a loaded machine; only a broken server
/// reaches the limit.
const START: Duration = Duration::from_secs(20);

/// A user and the password.
type Login = (String, String);

/// A memcached that lives as long as this value. It keeps its data in memory only.
#[derive(Debug)]
pub struct MemcachedServer {
    args: Vec<String>,
    port: u16,
    child: Mutex<Option<Child>>,
    /// The only permitted user, if there is one.
    login: Mutex<Option<Login>>,
    // The last field: fields drop in order, and the server must stop before its directory goes.
    dir: TempDir,
}

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
        Self::launch(args, None, scratch()?)
    }

    /// Starts a server that accepts only this user.
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub fn start_guarded(user: &str, password: &str) -> Result<Self> {
        let dir = scratch()?;
        // The server drops its privileges, including the right to read the folder, so we open the folder to all.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755))?;
        let file = dir.path().join("users");
        fs::write(&file, format!("{user}:{password}\n"))?;
        let args = vec![format!("--auth-file={}", file.display())];
        let login = (user.to_owned(), password.to_owned());
        Self::launch(args, Some(login), dir)
    }

    fn launch(args: Vec<String>, login: Option<Login>, dir: TempDir) -> Result<Self> {
        let mut server = Self {
            args,
            port: 0,
            child: Mutex::new(None),
            login: Mutex::new(login),
            dir,
        };
        for _ in 0..4 {
            server.port = port::free()?;
            match server.run() {
                // Another process took the port between our check and the server's bind.
                Err(_) if server.log().contains("Address already in use") => {}
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
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// `memcached://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("memcached://{}", self.addr())
    }

    /// Its process id, while it runs.
    ///
    /// # Errors
    /// Fails when it has been killed.
    pub fn pid(&self) -> Result<u32> {
        self.lock()
            .as_ref()
            .map(Child::id)
            .context("the server is not running")
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

    /// Restarts it on the same port, empty; kills it first if it still runs.
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub fn restart(&self) -> Result<()> {
        self.kill()?;
        self.run()
    }

    /// Sends raw commands on a new connection, followed by `mn`, and returns everything up to the reply to `mn`.
    ///
    /// # Errors
    /// Fails when the server does not answer.
    pub fn admin(&self, commands: &str) -> Result<String> {
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
        stream.write_all(format!("{commands}\r\nmn\r\n").as_bytes())?;
        let (mut said, mut bytes) = (Vec::new(), [0; 4096]);
        while !said.ends_with(b"MN\r\n") {
            let count = stream.read(&mut bytes)?;
            ensure!(count > 0, "it ended the connection");
            said.extend_from_slice(&bytes[..count]);
        }
        said.truncate(said.len() - b"MN\r\n".len());
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
            fs::write(self.dir.path().join("users"), line)?;
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

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) -> Result<()> {
        let log = File::create(self.dir.path().join("log"))?;
        let mut command = Command::new("memcached");
        command
            .args(["-l", "127.0.0.1", "-U", "0", "-m", "16", "-t", "2"])
            .args(["-p", &self.port.to_string()])
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        if rustix::process::getuid().is_root() {
            // The server refuses to run as root.
            command.args(["-u", "nobody"]);
        }
        let child = command
            .spawn()
            .context("starting memcached; `cargo xtask servers` says how to get it")?;
        reaper::watch(child.id())?;
        *self.lock() = Some(child);
        wait::until("memcached answers", START, || {
            if let Some(child) = self.lock().as_mut()
                && let Some(status) = child.try_wait()?
            {
                return Ok(Err(status));
            }
            TcpStream::connect(self.addr())?;
            Ok(Ok(()))
        })?
        .map_err(|status| anyhow::anyhow!("it ended with {status}; it said:\n{}", self.log()))
    }
}

impl Drop for MemcachedServer {
    fn drop(&mut self) {
        // This fails only if the process has already exited, and then there is nothing to do.
        let _ = self.kill();
    }
}
