use anyhow::{Result, bail};
use testkit::proxy::Proxy;
use testkit::servers::{RedisBuilder, RedisServer};

use super::{Deed, World};

/// The arguments of every server here.
pub(super) fn builder() -> RedisBuilder {
    RedisServer::builder().debug_commands(true)
}

/// One server and the proxy in front of it.
pub(super) struct Single {
    proxy: Proxy,
    server: RedisServer,
    options: &'static str,
    durable: bool,
}

impl Single {
    pub(super) fn start(options: &'static str, durable: bool) -> Result<Self> {
        let server = if durable {
            builder().appendonly(true)
        } else {
            builder()
        };
        let server = server.start()?;
        Ok(Self {
            proxy: Proxy::start(server.addr())?,
            server,
            options,
            durable,
        })
    }
}

/// Restarts all these servers without their data. All are down before the first of them is back: on a busy machine the
/// others could bring it the locks again, by a renewal or as its primary, and nothing would be forgotten.
pub(super) fn empty(servers: &[RedisServer]) -> Result<()> {
    servers.iter().try_for_each(|server| server.kill())?;
    servers.iter().try_for_each(RedisServer::restart_empty)
}

/// The operator's actions that any Redis server supports.
pub(super) fn operate(server: &RedisServer, deed: Deed) -> Result<()> {
    let words: &[&str] = match deed {
        Deed::CutAll => &["CLIENT", "KILL", "TYPE", "normal"],
        Deed::CutListeners => &["CLIENT", "KILL", "TYPE", "pubsub"],
        Deed::Pause(time) => {
            let time = time.as_millis().to_string();
            return server.admin(&["CLIENT", "PAUSE", &time, "ALL"]).map(drop);
        }
        Deed::Sleep => &["DEBUG", "SLEEP", "1.2"],
        Deed::ForgetScripts => &["SCRIPT", "FLUSH"],
        Deed::Flush => &["FLUSHALL"],
        _ => bail!("nobody can do this here: {deed:?}"),
    };
    server.admin(words).map(drop)
}

/// Keys and channels of these locks, except the fencing counters, which stay, and keys with a time to live.
pub(super) fn left(server: &RedisServer, base: &str) -> Result<Vec<String>> {
    let mut left: Vec<String> = server.query(&["PUBSUB", "CHANNELS"])?;
    left.retain(|channel| channel.contains(base));
    for key in server.keys()? {
        let counter = key.starts_with("redisson_lock_token:") || key.starts_with("tidelock:token:");
        if counter || !key.contains(base) {
            continue;
        }
        let ttl: i64 = server.query(&["PTTL", &key])?;
        // -2: the key has gone since we listed it.
        if ttl != -2 && (ttl == -1 || !key.starts_with("tidelock:")) {
            left.push(key);
        }
    }
    Ok(left)
}

impl World for Single {
    fn urls(&self) -> Vec<String> {
        vec![format!("{}{}", self.proxy.url(), self.options)]
    }

    fn version(&self) -> Result<String> {
        let disk = if self.durable {
            ", every write on disk"
        } else {
            ""
        };
        Ok(format!("{}{disk}", self.server.version()?))
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
        self.server.admin(&["DEL", name]).map(drop)
    }

    fn operate(&self, deed: Deed, _name: &str) -> Result<()> {
        operate(&self.server, deed)
    }

    fn left(&self, base: &str) -> Result<Vec<String>> {
        left(&self.server, base)
    }
}
