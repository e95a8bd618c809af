//! Inspection for operators: one lock, the list of locks, and the details of clients.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use crate::error::Result;
use crate::snapshot::{ClientInfo, Holder, Snapshot, one_line, since_epoch};
use crate::store::glob::matches_glob;
use crate::store::memcached::connection::Connection;
use crate::store::memcached::errors::unexpected;
use crate::store::memcached::wire::{Command, Reply, StoreMode};
use crate::store::memcached::{Memcached, keys, ttl};
use crate::store::percent;
use crate::store::{BootInstant, ClientId, Name, Page};

/// Bounds the items that one request of the list reads.
const BATCH_SIZE: usize = 100;

/// The pause before a list is requested again that the server had no time for.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// Upper bound of the size of a lock's item, in bytes: a name, a hashed key, an owner, and memcached's overhead.
const MAX_ITEM_BYTES: u64 = 1000;

/// Lower bound of the remaining time that is shown for a held lock.
const MIN_SHOWN_TTL: Duration = Duration::from_millis(1);

impl Memcached {
    /// Describes one lock and its holder's client. The remaining time is a lower bound.
    pub(crate) async fn show(&self, name: &Name) -> Result<Snapshot> {
        let deadline = self.connection.deadline();
        let mut snapshot = Snapshot::free(name.as_str());
        let Some(found) = self.find(&keys::lock(name), deadline).await? else {
            return Ok(snapshot);
        };
        if self.is_void(&found, deadline).await? {
            return Ok(snapshot);
        }
        let left = found.item.left;
        snapshot.expires_in = left.map(|left| ttl::sure(left).max(MIN_SHOWN_TTL));
        let mut holder = Holder::new(owner(&found.item.value), 1);
        if let Some(uuid) = keys::owner_client(&holder.owner) {
            // On an error we show the lock without the details.
            let details = self.find(&keys::client_of(uuid), deadline).await;
            let details = details.ok().flatten();
            holder.client = details.and_then(|found| client(&found.item.value));
        }
        snapshot.holders.push(holder);
        Ok(snapshot)
    }

    /// The names of all locks in one page: memcached can only list all its items.
    pub(crate) async fn page(&self, pattern: &str) -> Result<Page> {
        let deadline = self.connection.deadline();
        let lines = self.all_items(deadline).await?;
        let keys = lines.iter().filter_map(|line| key(line));
        // A hashed key does not show its name, so it always passes here; its name is matched below.
        let wanted = keys.filter(|key| {
            key.starts_with(keys::HASHED)
                || !key.starts_with(keys::OURS) && matches_glob(pattern, key)
        });
        let wanted: Vec<String> = wanted.collect();
        let mut names = Vec::new();
        for some in wanted.chunks(BATCH_SIZE) {
            names.extend(self.names(some, deadline).await?);
        }
        names.retain(|name| matches_glob(pattern, name));
        Ok(Page { names, next: None })
    }

    async fn all_items(&self, deadline: BootInstant) -> Result<Vec<String>> {
        // Use a separate connection. The list of a large cache takes a while, and answers come in order.
        let apart = Connection::new(Arc::clone(&self.connection.endpoint), &self.background);
        let timers = &self.connection.endpoint.timers;
        loop {
            let dump = Command::lines("lru_crawler metadump hash", may_be_a_lock);
            match apart.ask_one(dump, None, deadline).await? {
                (Reply::Lines(lines), _) => return Ok(lines),
                // The server makes one list at a time. It is making one for another client, or looks for items that have
                // expired.
                (Reply::Server(text), _)
                    if text.starts_with("BUSY") && timers.now() + BUSY_PAUSE < deadline =>
                {
                    timers.after(BUSY_PAUSE).await;
                }
                (reply, _) => return Err(unexpected(&reply)),
            }
        }
    }

    /// The names in the values of these keys. Skips items that are not locks.
    async fn names(&self, keys: &[String], deadline: BootInstant) -> Result<Vec<String>> {
        let looks = keys.iter().map(|key| Command::get(key)).collect();
        let (replies, _) = self.connection.ask(looks, None, deadline).await?;
        let values = replies.iter().filter_map(|reply| match reply {
            Reply::Value(item) => keys::read(&item.value),
            _ => None,
        });
        Ok(values.map(|(_, name)| name.to_owned()).collect())
    }

    /// Writes a client's details as one item, which expires after `lifetime`.
    pub(crate) async fn publish_client_info(
        &self,
        id: &ClientId,
        info: &ClientInfo,
        lifetime: Duration,
    ) -> Result<()> {
        let ttl = ttl::seconds_at_most_a_month(lifetime);
        let value = written(info);
        let put = Command::store(&keys::client(id), value.as_bytes(), ttl, StoreMode::Set);
        match self
            .connection
            .ask_one(put, None, self.connection.deadline())
            .await?
        {
            (Reply::Done(_), _) => Ok(()),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Deletes a client's details. Succeeds if there are none.
    pub(crate) async fn remove_client_info(&self, id: &ClientId) -> Result<()> {
        let delete = Command::delete_any(&keys::client(id));
        let deadline = self.connection.deadline();
        self.connection
            .ask_one(delete, None, deadline)
            .await
            .map(drop)
    }
}

/// The owner that the value of a lock's item is shown with.
pub(crate) fn owner(value: &[u8]) -> String {
    keys::read(value).map_or_else(|| foreign(value), |(owner, _)| owner.to_owned())
}

/// The start of a value that tidelock did not write, shown as the owner.
pub(crate) fn foreign(value: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(value).chars().take(64).collect();
    if text.is_empty() {
        "?".to_owned()
    } else {
        text
    }
}

/// The stored form of a client's details, one per line. A line break in the name of host, program or user becomes a space;
/// otherwise the lines behind it would be read as something else.
pub(crate) fn written(info: &ClientInfo) -> String {
    let since = info.since.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (host, program) = (one_line(&info.host), one_line(&info.program));
    let user = one_line(info.user.as_deref().unwrap_or_default());
    format!(
        "{}\n{}\n{host}\n{program}\n{user}",
        since.as_millis(),
        info.pid
    )
}

/// Reads a client's details. Ignores further lines.
pub(crate) fn client(value: &[u8]) -> Option<ClientInfo> {
    let text = std::str::from_utf8(value).ok()?;
    let mut lines = text.split('\n');
    let since = since_epoch(lines.next()?.parse().ok()?);
    let pid = lines.next()?.parse().ok()?;
    let host = lines.next()?;
    let program = lines.next().unwrap_or_default();
    // An earlier version wrote no user.
    Some(ClientInfo::new(host, pid, program, since).run_by(lines.next()))
}

/// Whether a line of the item list may be a lock: its item expires and is small enough.
pub(crate) fn may_be_a_lock(line: &str) -> bool {
    let field = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name));
    let size = field("size=").and_then(|size| size.parse().ok());
    field("exp=") != Some("-1") && size.is_none_or(|size: u64| size <= MAX_ITEM_BYTES)
}

/// The key in a line of the item list. The list writes special bytes in the form `%41`.
pub(crate) fn key(line: &str) -> Option<String> {
    percent::decode(line.split(' ').next()?.strip_prefix("key=")?)
}

#[cfg(test)]
mod tests;
