//! What operators see: one lock, the list of locks, and who the clients are.

use std::time::{Duration, SystemTime};

use super::Etcd;
use super::api::{
    ASCENDING, BY_CREATION, KeyValue, PutRequest, PutResponse, RangeRequest, RangeResponse,
};
use super::attempt::untouched;
use super::calls::{get, oldest};
use super::errors::Trouble;
use super::keys::{self, Folder};
use crate::backend::glob::matches_glob;
use crate::backend::{ClientId, Moment, Name, Page};
use crate::error::Result;
use crate::guard::FencingToken;
use crate::snapshot::{ClientInfo, Holder, Snapshot, since_epoch};

/// How many keys make a page.
const PAGE: i64 = 250;

impl Etcd {
    pub(super) async fn look(&self, name: &Name) -> Result<Snapshot> {
        let deadline = self.link.deadline();
        let folder = self.shared.keys.folder(name);
        let queue = self.link.range(first_with_marker(&folder), deadline).await;
        let queue = queue.map_err(Trouble::error)?;
        let mut snapshot = Snapshot::free(name.as_str());
        snapshot.waiters = Some(waiters(queue.count));
        let marks = queue.kvs.iter().any(is_marker);
        if marks {
            snapshot.waiters = Some(self.waiters_between_markers(&folder, deadline).await?);
        }
        let Some(first) = holder(&queue) else {
            return Ok(snapshot);
        };
        if first.lease != 0 {
            let left = self.link.left(first.lease, deadline).await;
            let Some(left) = left.map_err(Trouble::error)? else {
                return Ok(Snapshot::free(name.as_str())); // it has just ended
            };
            // Whole seconds, rounded down: there is more left than that.
            snapshot.expires_in = Some(left.max(Duration::from_millis(1)));
        }
        snapshot.token = u64::try_from(first.create_revision)
            .ok()
            .map(FencingToken::new);
        let mut holder = Holder::new(owner(first), 1);
        holder.client = self.client(&holder.owner, deadline).await;
        snapshot.holders.push(holder);
        Ok(snapshot)
    }

    /// Whether the key of that revision is the first of its queue. A range is linearizable unless it asks not to be.
    pub(super) async fn holds(&self, name: &Name, generation: FencingToken) -> Result<bool> {
        let first = first_with_marker(&self.shared.keys.folder(name));
        let first = self.link.range(first, self.link.deadline()).await;
        let first = holder(&first.map_err(untouched)?).map(|kv| kv.create_revision);
        Ok(first.and_then(|first| u64::try_from(first).ok()) == Some(generation.get()))
    }

    /// Where there are markers, keys have to be told from them.
    async fn waiters_between_markers(&self, folder: &Folder, deadline: Moment) -> Result<u64> {
        let all = RangeRequest {
            keys_only: true,
            limit: 0,
            ..oldest(folder)
        };
        let all = self.link.range(all, deadline).await;
        let all = all.map_err(Trouble::error)?;
        let keys = all.kvs.iter().filter(|kv| !is_marker(kv)).count() as u64;
        // While a delay is running nobody holds, and all of them wait.
        Ok(keys - u64::from(holder(&all).is_some()))
    }

    /// Without its details the lock is shown all the same.
    async fn client(&self, owner: &str, deadline: Moment) -> Option<ClientInfo> {
        let (uuid, _) = owner.split_once(':')?;
        let key = self.shared.keys.client_of(uuid);
        let found = self.link.range(get(&key), deadline).await.ok()?;
        read(&found.kvs.first()?.value)
    }

    pub(super) async fn leave_details(
        &self,
        client: &ClientId,
        info: &ClientInfo,
        keep: Duration,
    ) -> Result<()> {
        let deadline = self.link.deadline();
        let lease = self.side_lease(keep, deadline).await?;
        let put = PutRequest {
            key: self.shared.keys.client(client).into_bytes(),
            value: written(info).into_bytes(),
            lease: lease.id,
        };
        let path = "/etcdserverpb.KV/Put";
        let answer: Result<PutResponse, _> = self.link.ask(path, put, deadline).await;
        answer.map(drop).map_err(Trouble::error)
    }

    /// Ends the lease of a client's details, and the details with it.
    pub(super) async fn remove_details(&self, client: &ClientId) -> Result<()> {
        let deadline = self.link.deadline();
        let key = self.shared.keys.client(client);
        let found = self.link.range(get(&key), deadline).await;
        let found = found.map_err(Trouble::error)?.kvs.into_iter().next();
        let Some(lease) = found.map(|details| details.lease).filter(|id| *id != 0) else {
            return Ok(());
        };
        self.link
            .revoke(lease, deadline)
            .await
            .map_err(Trouble::error)
    }

    /// A page goes by the revisions in which keys were created.
    pub(super) async fn page(&self, pattern: &str, cursor: u64) -> Result<Page> {
        let all = self.shared.keys.all();
        let range = RangeRequest {
            key: all.first,
            range_end: all.end,
            limit: PAGE,
            sort_order: ASCENDING,
            sort_target: BY_CREATION,
            keys_only: true,
            min_create_revision: i64::try_from(cursor).unwrap_or(i64::MAX),
            ..RangeRequest::default()
        };
        let found = self.link.range(range, self.link.deadline()).await;
        let found = found.map_err(Trouble::error)?;
        // A lock's key is under a lease; others may have the same form by chance.
        let locks = found.kvs.iter().filter(|kv| kv.lease != 0);
        let names = locks
            .filter_map(|kv| self.shared.keys.name_of(&kv.key))
            .filter(|name| matches_glob(pattern, name));
        let names = names.collect();
        let next = next(&found);
        Ok(Page { names, next })
    }
}

/// The key that was created first, and its marker: both are of one revision, and come in no order.
fn first_with_marker(folder: &Folder) -> RangeRequest {
    RangeRequest {
        limit: 2,
        ..oldest(folder)
    }
}

fn is_marker(kv: &KeyValue) -> bool {
    keys::marked(&kv.key).is_some()
}

/// Who holds, of those that were created first. `None`: nobody, or there is only what the last one has left for a time.
pub(super) fn holder(queue: &RangeResponse) -> Option<&KeyValue> {
    let first = queue.kvs.first()?.create_revision;
    let mut together = queue
        .kvs
        .iter()
        .take_while(|kv| kv.create_revision == first);
    together.find(|kv| !is_marker(kv))
}

/// All that stand in a queue but the first.
pub(super) fn waiters(count: i64) -> u64 {
    u64::try_from(count.saturating_sub(1)).unwrap_or(0)
}

/// Where the next page begins, if there is one.
pub(super) fn next(found: &RangeResponse) -> Option<u64> {
    let last = found.kvs.last().filter(|_| found.more);
    last.and_then(|kv| u64::try_from(kv.create_revision.saturating_add(1)).ok())
}

/// Who holds: what we write into a key; whoever writes nothing there is named by the number of its key.
pub(super) fn owner(kv: &KeyValue) -> String {
    let value = String::from_utf8_lossy(&kv.value);
    if !value.is_empty() {
        return value.into_owned();
    }
    let key = String::from_utf8_lossy(&kv.key);
    let id = key.rsplit('/').next().unwrap_or_default();
    format!("lease {id}")
}

/// One detail a line; a name of a host or of a program has none.
pub(super) fn written(info: &ClientInfo) -> String {
    let since = info
        .since
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let (host, program) = (one_line(&info.host), one_line(&info.program));
    format!("{host}\n{}\n{program}\n{}", info.pid, since.as_millis())
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

/// Lines this version does not know are left alone: a newer one may have written them.
pub(super) fn read(value: &[u8]) -> Option<ClientInfo> {
    let mut lines = std::str::from_utf8(value).ok()?.lines();
    let (host, pid) = (lines.next()?, lines.next()?.parse().ok()?);
    let program = lines.next().unwrap_or_default();
    let since = lines
        .next()
        .and_then(|since| since.parse().ok())
        .unwrap_or(0);
    Some(ClientInfo::new(host, pid, program, since_epoch(since)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_come_back() {
        let since = since_epoch(1_700_000_000_123);
        let info = ClientInfo::new("web-1", 7, "shop\nd", since);
        let seen = read(format!("{}\nmore", written(&info)).as_bytes()).unwrap();
        assert_eq!(seen, ClientInfo::new("web-1", 7, "shop d", since));
        assert!(read(b"").is_none());
    }
}
