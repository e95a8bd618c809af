//! One server behind a proxy: what all stores have in common that have nothing else to show.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use testkit::process::is_alive;
use testkit::proxy::Proxy;
use testkit::servers::Ground;

use super::{Deed, On, World};

/// What a small disk has room for before it is filled: a new server, and a little more.
const SMALL: u64 = 160 << 20;

/// The only user of a guarded server, and the password it has at first.
pub(super) const USER: &str = "app";
pub(super) const PASSWORD: &str = "old";

/// A server that can stand behind a proxy.
pub(super) trait Served: Sized + Send {
    /// What it runs on when its wall clock is to be moved.
    fn own_clock() -> Result<Ground> {
        Ground::own_clock()
    }

    /// Starts it, guarded or not.
    fn start(ground: Ground, guarded: bool) -> Result<Self>;

    fn addr(&self) -> SocketAddr;
    fn pid(&self) -> Result<u32>;
    fn log(&self) -> String;
    fn ground(&self) -> Option<&Ground>;
    fn freeze(&self) -> Result<()>;
    fn thaw(&self) -> Result<()>;

    /// It is killed and started again with its data.
    fn restart(&self) -> Result<()>;

    /// As `restart`, with nothing of its data.
    fn restart_empty(&self) -> Result<()> {
        bail!("what it knows is on its disk")
    }

    /// Whom the processes connect to by this way to it.
    fn url(&self, way: SocketAddr) -> String;

    fn version(&self) -> Result<String>;

    /// See [`World::wipe`].
    fn wipe(&self, name: &str) -> Result<()>;

    /// What an operator does to this store, besides what is the same for all.
    fn operate(&self, deed: Deed) -> Result<()> {
        bail!("nobody can do this here: {deed:?}")
    }

    /// See [`Deed::SetClock`].
    fn set_clock(&self, seconds: i64) -> Result<()> {
        let ground = self.ground().context("it stands as it is")?;
        ground.clock()?.shift(seconds)
    }

    /// Lets only this password in from now on.
    fn set_password(&self, _password: &str) -> Result<()> {
        bail!("it has no passwords")
    }

    /// Makes it write to its disk, whether there is room or not. What it says to that.
    fn strain(&self) -> Result<()> {
        Ok(())
    }

    /// See [`World::left`].
    fn left(&self, _base: &str) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

/// What stands in all implementations of [`Served`].
macro_rules! is_a {
    ($server:ty) => {
        fn addr(&self) -> std::net::SocketAddr {
            <$server>::addr(self)
        }
        fn pid(&self) -> anyhow::Result<u32> {
            <$server>::pid(self)
        }
        fn log(&self) -> String {
            <$server>::log(self)
        }
        fn freeze(&self) -> anyhow::Result<()> {
            <$server>::freeze(self)
        }
        fn thaw(&self) -> anyhow::Result<()> {
            <$server>::thaw(self)
        }
        fn restart(&self) -> anyhow::Result<()> {
            <$server>::restart(self)
        }
    };
}
pub(super) use is_a;

/// A server, and a proxy before it.
pub(super) struct Behind<S> {
    proxy: Proxy,
    server: S,
    /// Where its clients find the password of a guarded server.
    secret: Option<TempDir>,
    /// What it said when its disk was full.
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

    /// Renamed into place: clients read the file at any moment, and must never see half of it.
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

    /// Whoever ended itself when it could not write is started again.
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

/// The first line that begins like this, without its beginning.
pub(super) fn line<'a>(said: &'a str, begin: &str) -> Result<&'a str> {
    let mut lines = said.lines();
    let found = lines.find_map(|line| line.strip_prefix(begin));
    found.with_context(|| format!("no {begin} in {said:?}"))
}
