use std::net::SocketAddr;

use anyhow::{Result, bail};
use testkit::servers::{Ground, MemcachedServer};

use super::Deed;
use super::behind::{PASSWORD, Served, USER, is_a};

impl Served for MemcachedServer {
    is_a!(MemcachedServer);

    fn start(_ground: Ground, guarded: bool) -> Result<Self> {
        if guarded {
            Self::start_guarded(USER, PASSWORD)
        } else {
            Self::start()
        }
    }

    fn ground(&self) -> Option<&Ground> {
        None
    }

    fn restart_empty(&self) -> Result<()> {
        Self::restart(self)
    }

    fn url(&self, way: SocketAddr) -> String {
        format!("memcached://{way}")
    }

    fn wipe(&self, name: &str) -> Result<()> {
        self.admin(&format!("md {name}")).map(drop)
    }

    fn operate(&self, deed: Deed) -> Result<()> {
        if deed != Deed::Flush {
            bail!("nobody can do this here: {deed:?}");
        }
        self.admin("flush_all").map(drop)
    }

    fn set_password(&self, password: &str) -> Result<()> {
        Self::set_password(self, password)
    }
}
