//! The plain lock: one string key, `SET name owner NX PX ms`, as redis-py, redsync, node-redlock, rslock and
//! bsm/redislock write it. It shares connections, renewals and acknowledgement with Redisson's; what differs is here.

use std::time::Duration;

use super::ack::{Purpose, Receipt};
use super::conn::Request;
use super::errors::unexpected;
use super::reply::Reply;
use super::routes::Routes;
use super::{Redis, TOMBSTONE_KEPT, keys, look, millis, scripts, unnoted};
use crate::backend::{Ask, Kind, Moment, Name, Released, Renewal, Ticket};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::FencingToken;
use crate::snapshot::{Holder, Snapshot};

/// A longer value is no owner of a lock; those of the clients named above have 16 to 46 bytes.
const LONGEST_OWNER: i64 = 128;

/// How a lock is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// A hash, with messages: Redisson's.
    Redisson,
    /// A string, without messages.
    Plain,
}

impl Layout {
    /// What to say of a key that holds something else.
    pub(super) fn stranger(self) -> &'static str {
        match self {
            Self::Redisson => "the key is a read-write lock of Redisson; it was left as it is",
            Self::Plain => {
                "WRONGTYPE: the key is no plain lock, which is a string; it may be a lock of Redisson, a hash; it was left as it is"
            }
        }
    }
}

/// What the URL says of the layout, in `locks=plain` among its options, and the URL without it.
pub(super) fn layout(url: &str) -> Result<(Layout, String)> {
    let (before, rest) = url.split_once('?').unwrap_or((url, ""));
    let (query, fragment) = match rest.split_once('#') {
        Some((query, fragment)) => (query, format!("#{fragment}")),
        None => (rest, String::new()),
    };
    let (ours, others): (Vec<&str>, Vec<&str>) = query
        .split('&')
        .filter(|option| !option.is_empty())
        .partition(|option| option.starts_with("locks="));
    let layout = match ours[..] {
        [] | ["locks=redisson"] => Layout::Redisson,
        ["locks=plain"] => Layout::Plain,
        _ => {
            return Err(Error::new(ErrorKind::InvalidOptions)
                .because("the store's URL cannot be used: locks is redisson or plain"));
        }
    };
    let query = if others.is_empty() {
        String::new()
    } else {
        format!("?{}", others.join("&"))
    };
    Ok((layout, format!("{before}{query}{fragment}")))
}

pub(super) fn tombstone_of(renewal: &Renewal) -> String {
    keys::tombstone(&renewal.ticket.name, renewal.ticket.owner.text())
}

impl Redis {
    pub(super) async fn acquire_plain(
        &self,
        ask: &Ask,
        deadline: Moment,
    ) -> Result<(Reply, Receipt)> {
        let (name, owner) = (&ask.ticket.name, ask.ticket.owner.text());
        let tombstone = keys::tombstone(name, owner);
        let lease = millis(ask.lease).to_string();
        let token = keys::plain_token(name);
        let keys = [name.as_str(), &*tombstone, &*token];
        let keys = match ask.ticket.kind {
            Kind::Mutex => &keys[..2],
            Kind::Fenced => &keys[..],
        };
        let demand = self.demand(Purpose::Acquire, ask.wish, ask.lease);
        let (script, words) = (&scripts::PLAIN_ACQUIRE, [&*lease, owner]);
        self.routes
            .eval_acknowledged(script, keys, &words, demand, deadline)
            .await
    }

    pub(super) async fn end_plain(&self, ticket: &Ticket, withdraw: bool) -> Result<Released> {
        let (name, owner) = (ticket.name.as_str(), ticket.owner.text());
        let tombstone = keys::tombstone(&ticket.name, owner);
        let kept = millis(TOMBSTONE_KEPT).to_string();
        let how = if withdraw { "withdraw" } else { "release" };
        let reply = self
            .routes
            .eval(
                &scripts::PLAIN_RELEASE,
                &[name, &tombstone],
                &[owner, &kept, how],
                self.routes.deadline(),
            )
            .await?;
        match reply {
            Reply::Int(0) => Ok(Released::NotHeld),
            Reply::Int(1) => Ok(Released::Freed),
            Reply::Int(3) => Err(unnoted()),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn free_plain(&self, name: &Name) -> Result<bool> {
        let reply = self
            .routes
            .eval(
                &scripts::PLAIN_FORCE_RELEASE,
                &[name.as_str()],
                &[],
                self.routes.deadline(),
            )
            .await?;
        match reply {
            Reply::Int(0) => Ok(false),
            Reply::Int(1) => Ok(true),
            other => Err(unexpected(&other)),
        }
    }
}

/// One plain lock. Who waits is known to nobody.
pub(super) async fn at(routes: &Routes, name: &Name) -> Result<Snapshot> {
    routes.check(name)?;
    let deadline = routes.deadline();
    let token = keys::plain_token(name);
    let reply = routes
        .eval(
            &scripts::PLAIN_INSPECT,
            &[name.as_str()],
            &[&token],
            deadline,
        )
        .await
        .map_err(|error| error.on_lock(name))?;
    let Some([owner, left, token]) = reply.list() else {
        return Err(unexpected(&reply));
    };
    let mut snapshot = Snapshot::free(name.as_str());
    if let Reply::Text(owner) = owner {
        // Others may write bytes that are no text.
        snapshot.holders = vec![Holder::new(String::from_utf8_lossy(owner), 1)];
    }
    let left = left.int().and_then(|left| u64::try_from(left).ok());
    snapshot.expires_in = left.map(Duration::from_millis);
    let token = token.int().and_then(|token| u64::try_from(token).ok());
    snapshot.token = token.map(FencingToken::new);
    look::add_clients(routes, &mut snapshot.holders, deadline).await;
    Ok(snapshot)
}

/// Whether a string may be a lock: it ends by itself, and is as short as an owner. Nothing else tells it from others.
pub(super) async fn is_lock(routes: &Routes, key: &str, deadline: Moment) -> Result<bool> {
    for (command, fits) in [
        (
            "STRLEN",
            (|size| (1..=LONGEST_OWNER).contains(&size)) as fn(i64) -> bool,
        ),
        ("PTTL", |left| left > 0),
    ] {
        let reply = match routes
            .ask(key, &Request::new(command).arg(key), deadline)
            .await
        {
            // Changed meanwhile.
            Err(error) if error.kind() == ErrorKind::WrongType => return Ok(false),
            other => other?,
        };
        if !reply.int().is_some_and(fits) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_says_how_locks_are_written() {
        for (given, layout_of, url) in [
            ("redis://h/1", Layout::Redisson, "redis://h/1"),
            ("redis://h/1?locks=plain", Layout::Plain, "redis://h/1"),
            (
                "redis+unix:///s?db=1&locks=plain&user=a",
                Layout::Plain,
                "redis+unix:///s?db=1&user=a",
            ),
            ("redis://h?locks=redisson", Layout::Redisson, "redis://h"),
            ("redis://h?locks=plain#x", Layout::Plain, "redis://h#x"),
        ] {
            assert_eq!(layout(given).unwrap(), (layout_of, url.to_owned()));
        }
        for bad in ["redis://h?locks=x", "redis://h?locks=plain&locks=redisson"] {
            assert!(layout(bad).is_err(), "{bad}");
        }
    }
}
