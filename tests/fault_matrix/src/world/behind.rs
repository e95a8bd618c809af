//! One server behind a proxy: the common implementation for single-server stores.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use testkit::process::is_alive;
use testkit::proxy::Proxy;
use testkit::servers::{Ground, ServerProcess};

use super::{Deed, On, World};

/// The size of a small disk: room for a new server, and a little more.
const SMALL: u64 = 160 << 20;

/// The only user of a guarded server, and its first password.
pub(super) const USER: &str = "app";
pub(super) const PASSWORD: &str = "old";

/// A server that can stand behind a proxy.
pub(super) trait Served: Deref<Target = ServerProcess> + Sized + Send {
    /// The environment for a server whose wall clock can be moved.
    fn own_clock() -> Result<Ground> {
        Ground::own_clock()
    }

    /// Starts the server, with a password if `guarded`.
    fn start(ground: Ground, guarded: bool) -> Result<Self>;

    fn addr(&self) -> SocketAddr;
    fn ground(&self) -> Option<&Ground>;

    /// Kills the server and restarts it with its data.
    fn restart(&self) -> Result<()>;

    /// As `restart`, but without its data.
    fn restart_empty(&self) -> Result<()> {
        bail!("what it knows is on its disk")
    }

    /// The address for the processes, through the proxy at `way`.
    fn url(&self, way: SocketAddr) -> String;

    fn version(&self) -> Result<String>;

    /// See [`World::wipe`].
    fn wipe(&self, name: &str) -> Result<()>;

    /// Performs the deeds that are specific to this store.
    fn operate(&self, deed: Deed) -> Result<()> {
        bail!("nobody can do this here: {deed:?}")
    }

    /// See [`Deed::SetClock`].
    fn set_clock(&self, seconds: i64) -> Result<()> {
        let ground = self.ground().context("it stands as it is")?;
        ground.clock()?.shift(seconds)
    }

    /// From now on only this password is valid.
    fn set_password(&self, _password: &str) -> Result<()> {
        bail!("it has no passwords")
    }

    /// Makes the server write to its disk, and returns its error if the disk is full.
    fn strain(&self) -> Result<()> {
        Ok(())
    }

    /// See [`World::left`].
    fn left(&self, _base: &str) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

/// The methods that are the same in every implementation of [`Served`].
macro_rules! is_a {
    ($server:ty) => {
        fn addr(&self) -> std::net::SocketAddr {
            <$server>::addr(self)
        }
        fn restart(&self) -> anyhow::Result<()> {
            <$server>::restart(self)
        }
        fn version(&self) -> anyhow::Result<String> {
            <$server>::version(self)
        }
    };
}
pub(super) use is_a;

/// A server and the proxy in front of it.
pub(super) struct Behind<S> {
    proxy: Proxy,
    server: S,
    /// The directory of the password file of a guarded server.
    secret: Option<TempDir>,
    /// The server's error when its disk was full.
    said: Mutex<String>,
}

impl<S: Served> Behind<S> {
    pub(super) fn start(on: On) -> Result<Self> {
        let ground = match on {
            On::SmallDisk => Ground::small_disk(SMALL)?,
            On::OwnClock => S::own_clock()?,
            On::Usual | On::Durable | On::Guarded => Ground::default(),
        };
        let server = S::start(ground, on == On::Guarded)?;
        let secret = (on == On::Guarded).then(|| TempDir::with_prefix("tidelock-"));
        let behind = Self {
            proxy: Proxy::start_opaque(server.addr())?,
            server,
            secret: secret.transpose()?,
            said: Mutex::default(),
        };
        if behind.secret.is_some() {
            behind.tell_password(PASSWORD)?;
        }
        Ok(behind)
    }

    fn file(&self) -> Option<PathBuf> {
        let dir = self.secret.as_ref().map(TempDir::path);
        dir.map(|dir| dir.join("password"))
    }

    /// We rename the file into place: clients read it at any moment and must never see half of it.
    fn tell_password(&self, password: &str) -> Result<()> {
        let file = self.file().context("it has no passwords")?;
        let fresh = file.with_extension("new");
        std::fs::write(&fresh, password)?;
        Ok(std::fs::rename(&fresh, &file)?)
    }

    fn ground(&self) -> Result<&Ground> {
        self.server.ground().context("it stands as it is")
    }

    fn fill_disk(&self) -> Result<()> {
        self.ground()?.disk()?.fill()?;
        let said = self.server.strain().map_err(|why| format!("{why:#}"));
        *self.said() = said.err().unwrap_or_default();
        Ok(())
    }

    fn said(&self) -> MutexGuard<'_, String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Restarts a server that exited because it could not write.
    fn make_room(&self) -> Result<()> {
        let said = format!("{}{}", self.said(), self.server.log()).to_lowercase();
        self.ground()?.disk()?.clear()?;
        let ended = !is_alive(self.server.pid()?);
        if ended {
            self.server.restart()?;
        }
        let words = ["no space left", "is full", "errcode: 28"];
        let told = words.iter().any(|word| said.contains(word));
        ensure!(
            ended || told,
            "it did not notice that its disk was full: {said}"
        );
        Ok(())
    }
}

impl<S: Served> World for Behind<S> {
    fn urls(&self) -> Vec<String> {
        vec![self.server.url(self.proxy.addr())]
    }

    fn secret(&self) -> Option<PathBuf> {
        self.file()
    }

    fn version(&self) -> Result<String> {
        self.server.version()
    }

    fn proxies(&self) -> Vec<&Proxy> {
        vec![&self.proxy]
    }

    fn freeze(&self) -> Result<()> {
        self.server.freeze()
    }

    fn thaw(&self) -> Result<()> {
        self.server.thaw()
    }

    fn restart(&self, forget: bool) -> Result<()> {
        if forget {
            self.server.restart_empty()
        } else {
            self.server.restart()
        }
    }

    fn wipe(&self, name: &str) -> Result<()> {
        self.server.wipe(name)
    }

    fn operate(&self, deed: Deed, _name: &str) -> Result<()> {
        match deed {
            Deed::FillDisk => self.fill_disk(),
            Deed::MakeRoom => self.make_room(),
            Deed::SetClock(seconds) => self.server.set_clock(seconds),
            Deed::SetPassword(password) => self.server.set_password(password),
            Deed::TellPassword(password) => self.tell_password(password),
            _ => self.server.operate(deed),
        }
    }

    fn left(&self, base: &str) -> Result<Vec<String>> {
        self.server.left(base)
    }
}

/// The rest of the first line that begins with this prefix.
pub(super) fn line<'a>(said: &'a str, begin: &str) -> Result<&'a str> {
    let mut lines = said.lines();
    let found = lines.find_map(|line| line.strip_prefix(begin));
    found.with_context(|| format!("no {begin} in {said:?}"))
}
