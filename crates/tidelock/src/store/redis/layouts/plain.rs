//! The plain lock: one string key, written with `SET name owner NX PX ms`, as redis-py, redsync, node-redlock, rslock
//! and bsm/redislock do. It shares connections, renewals and acknowledgement with the Redisson lock; this file has
//! the differences.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;

use crate::error::{Error, ErrorKind, Result};
use crate::guard::FencingToken;
use crate::snapshot::{Holder, Snapshot};
use crate::store::redis::keys;
use crate::store::redis::layouts::release::unnoted;
use crate::store::redis::layouts::{scripts, without_lua};
use crate::store::redis::replicas::{PendingAck, Purpose};
use crate::store::redis::topology::router::Router;
use crate::store::redis::topology::transaction::Transaction;
use crate::store::redis::wire::errors::unexpected;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::wire::request::Request;
use crate::store::redis::wire::script::Script;
use crate::store::redis::{Redis, TOMBSTONE_KEPT, inspect, millis};
use crate::store::{
    AttemptRequest, BootInstant, Capabilities, LockKind, Name, Released, Renewal, Renewed, Ticket,
};

/// In bytes. A longer value is not the owner of a lock; the clients named above write 16 to 46 bytes.
const LONGEST_OWNER: i64 = 128;

/// The form of a lock in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Redisson's: a hash, with a message at each release.
    Redisson,
    /// A string, without messages.
    Plain,
}

impl Layout {
    /// The capabilities of a store with locks of this layout.
    pub(crate) const fn capabilities(self) -> Capabilities {
        Capabilities {
            wakes: matches!(self, Self::Redisson),
            tokens: true,
            queues: false,
            shared: true,
            durable: false,
            delays: false,
            sequencers: false,
            read_write: false,
        }
    }
}

/// The error for a key of another type.
pub(crate) const STRANGER: &str = "WRONGTYPE: the key is not a plain lock, which is a string; it may be a lock of Redisson, which is a hash; it was not changed";

/// Takes `locks=plain` from the options of the URL. Returns the layout, and the URL without that option.
pub(crate) fn layout(url: &str) -> Result<(Layout, String)> {
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

pub(crate) fn tombstone_of(renewal: &Renewal) -> String {
    keys::tombstone(&renewal.ticket.name, renewal.ticket.owner.text())
}

/// The keys and the owner of a plain lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlainLockNames<'a> {
    pub(crate) name: &'a str,
    pub(crate) owner: &'a str,
    pub(crate) tombstone: &'a str,
    /// The token counter. `None`: the caller requests no token.
    pub(crate) token: Option<&'a str>,
}

impl Redis {
    pub(crate) async fn acquire_plain(
        &self,
        ask: &AttemptRequest,
        deadline: BootInstant,
    ) -> Result<(Reply, PendingAck)> {
        let (name, owner) = (&ask.ticket.name, ask.ticket.owner.text());
        let tombstone = keys::tombstone(name, owner);
        let lease = millis(ask.lease).to_string();
        let token = keys::plain_token(name);
        let keys = [name.as_str(), &*tombstone, &*token];
        let keys = match ask.ticket.kind {
            LockKind::Fenced => &keys[..],
            _ => &keys[..2],
        };
        let demand = self.demand(Purpose::Acquire, ask.wish, ask.lease);
        if self.may_script() {
            let (script, args) = (&scripts::PLAIN_ACQUIRE, [&*lease, owner]);
            let answer = self
                .router
                .eval_acknowledged(script, keys, &args, demand, deadline)
                .await;
            match answer {
                Err(error) if self.learn(&error) => {}
                answer => return answer,
            }
        }
        // Replicas can only acknowledge scripts, so a strict ack policy fails here.
        demand.give_up_if_strict(&without_scripts())?;
        let names = PlainLockNames {
            name: keys[0],
            owner,
            tombstone: keys[1],
            token: keys.get(2).copied(),
        };
        let reply = self
            .transact(
                name.as_str(),
                &without_lua::acquire(names, &lease),
                deadline,
            )
            .await?;
        Ok((reply, PendingAck::of_nobody()))
    }

    /// `false` only after the server has refused a script.
    pub(crate) fn may_script(&self) -> bool {
        !self.shared.unscripted.load(Ordering::SeqCst)
    }

    /// Returns `true` if the error says that the user is not allowed to run scripts. The script has certainly not run
    /// then.
    pub(crate) fn learn(&self, error: &Error) -> bool {
        let forbidden = without_lua::forbids_scripts(error);
        if forbidden && !self.shared.unscripted.swap(true, Ordering::SeqCst) {
            tracing::debug!(
                "the user may not run scripts; plain locks use WATCH, MULTI and EXEC instead"
            );
        }
        forbidden
    }

    async fn transact(
        &self,
        key: &str,
        transaction: &Transaction<'_>,
        deadline: BootInstant,
    ) -> Result<Reply> {
        // Boxed because few requests need it.
        Box::pin(self.router.transact(key, transaction, deadline)).await
    }

    /// Runs the script, or the equivalent transaction if the user is not allowed to run scripts.
    async fn either(
        &self,
        (script, keys, args): (&Script, &[&str], &[&str]),
        transaction: &Transaction<'_>,
        deadline: BootInstant,
    ) -> Result<Reply> {
        if self.may_script() {
            let answer = self.router.eval(script, keys, args, deadline).await;
            match answer {
                Err(error) if self.learn(&error) => {}
                answer => return answer,
            }
        }
        self.transact(keys.first().unwrap_or(&""), transaction, deadline)
            .await
    }

    pub(crate) async fn end_plain(&self, ticket: &Ticket, withdraw: bool) -> Result<Released> {
        let (name, owner) = (ticket.name.as_str(), ticket.owner.text());
        let tombstone = &*keys::tombstone(&ticket.name, owner);
        let kept = &*millis(TOMBSTONE_KEPT).to_string();
        let how = if withdraw { "withdraw" } else { "release" };
        let names = PlainLockNames {
            name,
            owner,
            tombstone,
            token: None,
        };
        let events = self.shared.events.channel(&ticket.name);
        let before = self.shared.events.releases_seen(&ticket.name);
        let channel = events.as_deref().unwrap_or_default();
        let (keys, args) = ([name, tombstone], [owner, kept, how, channel]);
        let reply = self
            .either(
                (&scripts::PLAIN_RELEASE, &keys, &args),
                &without_lua::end(names, kept, withdraw),
                self.router.deadline(),
            )
            .await?;
        let listeners = match reply {
            Reply::Int(0) => return Ok(Released::NotHeld),
            Reply::Int(1) => 0,
            Reply::Int(3) => return Err(unnoted()),
            other => match other.list() {
                Some([Reply::Int(listeners)]) => *listeners,
                _ => return Err(unexpected(&other)),
            },
        };
        let freed = self.shared.events.freed(&ticket.name, listeners, before);
        if matches!(freed, Released::Awaited(awaited) if awaited.polled) {
            self.listen_to(&ticket.name);
        }
        Ok(freed)
    }

    /// Subscribes in the background: the release is done, and its caller must not wait for a subscription.
    fn listen_to(&self, name: &Name) {
        let (shared, router, name) = (Arc::clone(&self.shared), self.router.clone(), name.clone());
        self.shared.background.spawn(async move {
            shared.events.listen(&name, &router).await;
        });
    }

    pub(crate) async fn free_plain(&self, name: &Name) -> Result<bool> {
        let name = name.as_str();
        let reply = self
            .either(
                (&scripts::PLAIN_FORCE_RELEASE, &[name], &[]),
                &without_lua::free(name),
                self.router.deadline(),
            )
            .await?;
        match reply {
            Reply::Int(0) => Ok(false),
            Reply::Int(1) => Ok(true),
            other => Err(unexpected(&other)),
        }
    }

    /// Renews a batch with transactions. `None`: scripts are allowed, so the caller uses those.
    pub(crate) async fn keep_unscripted(&self, batch: &[Renewal]) -> Option<Vec<Renewed>> {
        if self.layout == Layout::Redisson || self.may_script() {
            return None;
        }
        let deadline = self.router.deadline();
        let each = batch.iter().map(|renewal| async move {
            self.keep_one(renewal, deadline)
                .await
                .unwrap_or_else(Renewed::Failed)
        });
        Some(join_all(each).await)
    }

    async fn keep_one(&self, renewal: &Renewal, deadline: BootInstant) -> Result<Renewed> {
        let demand = self.demand(Purpose::Renew, renewal.wish, renewal.lease);
        demand.give_up_if_strict(&without_scripts())?;
        let (name, tombstone) = (renewal.ticket.name.as_str(), tombstone_of(renewal));
        let lease = millis(renewal.lease).to_string();
        let names = PlainLockNames {
            name,
            owner: renewal.ticket.owner.text(),
            tombstone: &tombstone,
            token: None,
        };
        let renewal = without_lua::renew(names, &lease);
        match self.transact(name, &renewal, deadline).await? {
            Reply::Int(1) => Ok(Renewed::Kept),
            Reply::Int(0) => Ok(Renewed::Gone),
            other => Err(unexpected(&other)),
        }
    }

    /// Inspects one plain lock. The number of its waiters is unknown.
    pub(crate) async fn show_plain(&self, name: &Name) -> Result<Snapshot> {
        let router = &self.router;
        router.check(name)?;
        let deadline = router.deadline();
        let token = &*keys::plain_token(name);
        let reply = self
            .either(
                (&scripts::PLAIN_INSPECT, &[name.as_str()], &[token]),
                &without_lua::look(name.as_str(), token),
                deadline,
            )
            .await
            .map_err(|error| error.on_lock(name))?;
        let Some([owner, left, token]) = reply.list() else {
            return Err(unexpected(&reply));
        };
        let mut snapshot = Snapshot::free(name.as_str());
        if let Reply::Text(owner) = owner {
            // Other clients may write bytes that are not UTF-8.
            snapshot.holders = vec![Holder::new(String::from_utf8_lossy(owner), 1)];
        }
        let left = left.int().and_then(|left| u64::try_from(left).ok());
        snapshot.expires_in = left.map(Duration::from_millis);
        let token = token.int().and_then(|token| u64::try_from(token).ok());
        snapshot.token = token.map(FencingToken::new);
        inspect::add_clients(router, &mut snapshot.holders, deadline).await;
        Ok(snapshot)
    }
}

fn without_scripts() -> Error {
    Error::new(ErrorKind::Refused)
        .because("replicas acknowledge only scripts, and the user may not run scripts")
}

/// Whether a string may be a lock: it has a time to live, and is as short as an owner. Nothing else distinguishes it
/// from other strings.
pub(crate) async fn is_lock(router: &Router, key: &str, deadline: BootInstant) -> Result<bool> {
    for (command, fits) in [
        (
            "STRLEN",
            (|size| (1..=LONGEST_OWNER).contains(&size)) as fn(i64) -> bool,
        ),
        ("PTTL", |left| left > 0),
    ] {
        let reply = match router
            .ask(key, &Request::new(command).arg(key), deadline)
            .await
        {
            // The key has changed meanwhile.
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
