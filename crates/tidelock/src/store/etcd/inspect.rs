//! Inspection for operators: one lock, the list of locks, and the details of clients. Also the check of a fencing
//! token.

use std::time::{Duration, SystemTime};

use futures_util::future::try_join_all;

use crate::error::Result;
use crate::snapshot::{ClientInfo, Holder, Snapshot, one_line, since_epoch};
use crate::store::etcd::Etcd;
use crate::store::etcd::api::{
    ASCENDING, BY_CREATION, KeyValue, Op, PutRequest, PutResponse, RangeRequest, RangeResponse,
    TxnRequest,
};
use crate::store::etcd::calls::{all, found, get, oldest, ops};
use crate::store::etcd::errors::{RequestError, unexpected, untouched};
use crate::store::etcd::foreign_keys;
use crate::store::etcd::keys;
use crate::store::etcd::keys::Folder;
use crate::store::etcd::queue_view::KeyQueue;
use crate::store::glob::matches_glob;
use crate::store::{BootInstant, ClientId, Name, Page};
use crate::types::FencingToken;

/// Bounds the keys that one page of the list reads.
const PAGE_SIZE: i64 = 250;

impl Etcd {
    /// Describes one lock: holder, remaining time, fencing token and number of waiters.
    pub(crate) async fn look(&self, name: &Name) -> Result<Snapshot> {
        let deadline = self.connection.deadline();
        let folder = self.shared.keys.folder(name);
        // A queue with readers or writers has keys in the folder of the readers: each writer has its place there.
        let look = [
            first_with_marker(&folder),
            oldest(&folder.readers()),
            get(&self.shared.keys.tokens(name)),
            get(&self.shared.keys.number(name)),
            oldest(&self.shared.keys.permits(name)),
        ];
        let look = TxnRequest {
            success: ops(look.map(Op::Range)),
            ..TxnRequest::default()
        };
        let seen = self.connection.txn(look, deadline).await;
        let seen = seen.map_err(RequestError::error)?;
        let range = |n: usize| found(seen.responses.get(n));
        let lacks = || unexpected("the reply lacks the keys of the lock");
        // Waiters for permits do not make a name a semaphore, so a lock of that name is shown.
        let [queued, numbered, permits] =
            [0, 3, 4].map(|n| range(n).is_some_and(|range| range.count > 0));
        if numbered || permits && !queued {
            return self.look_at_permits(name, deadline).await;
        }
        let raised = newest_token(range(2).ok_or_else(lacks)?);
        if range(1).ok_or_else(lacks)?.count > 0 {
            let sides = self.look_at_sides(name, &folder, deadline).await;
            return sides.map(|mut seen| {
                seen.token = seen.token.map(|token| token.max(raised));
                seen
            });
        }
        let queue = range(0).ok_or_else(lacks)?;
        foreign_keys::refuse(&folder, queue.kvs.first())?;
        let mut snapshot = Snapshot::free(name.as_str());
        snapshot.waiters = Some(waiters(queue.count));
        let marks = queue.kvs.iter().any(is_marker);
        if marks {
            snapshot.waiters = Some(self.waiters_between_markers(&folder, deadline).await?);
        }
        let Some(first) = holder(queue) else {
            return Ok(snapshot);
        };
        if first.lease != 0 {
            let left = self.connection.left(first.lease, deadline).await;
            let Some(left) = left.map_err(RequestError::error)? else {
                return Ok(Snapshot::free(name.as_str())); // it has just ended
            };
            // etcd rounds down to whole seconds, so even at zero some time remains.
            snapshot.expires_in = Some(left.max(Duration::from_millis(1)));
        }
        snapshot.token = token(first.create_revision).max(Some(raised));
        let mut holder = Holder::new(owner(first), 1);
        holder.client = self.client(&holder.owner, deadline).await;
        snapshot.holders.push(holder);
        Ok(snapshot)
    }

    /// Describes a read-write lock. Needs all keys, because several of them may hold the lock.
    async fn look_at_sides(
        &self,
        name: &Name,
        folder: &Folder,
        deadline: BootInstant,
    ) -> Result<Snapshot> {
        let seen = self.connection.range(all(folder), deadline).await;
        let seen = seen.map_err(RequestError::error)?;
        let queue = KeyQueue::of(folder, &seen.kvs);
        foreign_keys::refuse(folder, queue.holders().iter().copied())?;
        let mut snapshot = Snapshot::free(name.as_str());
        snapshot.waiters = Some(queue.waiters());
        let each = queue.holders().iter().map(async |kv| {
            let left = self.connection.left(kv.lease, deadline).await;
            let left = left.map_err(RequestError::error)?;
            let mut holder = Holder::new(owner(kv), 1);
            holder.mode = folder.mode(&kv.key);
            holder.client = self.client(&holder.owner, deadline).await;
            Ok((left, token(kv.create_revision), holder))
        });
        for (left, token, holder) in try_join_all(each).await? {
            let Some(left) = left else {
                continue; // it has just ended
            };
            let left = left.max(Duration::from_millis(1)); // rounded down, as above
            let least = snapshot.expires_in.map_or(left, |least| least.min(left));
            snapshot.expires_in = Some(least);
            snapshot.token = snapshot.token.max(token);
            snapshot.holders.push(holder);
        }
        Ok(snapshot)
    }

    /// Whether the grant with this token holds the lock: the creation revision of the first key in the queue, or a newer one
    /// if a downgrade has passed that key. A read is linearizable by default.
    pub(crate) async fn holds(&self, name: &Name, generation: FencingToken) -> Result<bool> {
        let keys = &self.shared.keys;
        let look = [
            first_with_marker(&keys.folder(name)),
            get(&keys.tokens(name)),
        ];
        let look = TxnRequest {
            success: ops(look.map(Op::Range)),
            ..TxnRequest::default()
        };
        let seen = self.connection.txn(look, self.connection.deadline()).await;
        let seen = seen.map_err(untouched)?;
        let first = found(seen.responses.first()).and_then(holder);
        let Some(first) = first.and_then(|first| token(first.create_revision)) else {
            return Ok(false);
        };
        // While one holder has the lock, nobody else gets a token.
        let raised = found(seen.responses.get(1)).map(newest_token);
        Ok(generation == first
            || raised.is_some_and(|raised| raised > first && raised == generation))
    }

    /// Counts the waiters of a queue with markers. Needs all keys, because the server's count includes the markers.
    async fn waiters_between_markers(&self, folder: &Folder, deadline: BootInstant) -> Result<u64> {
        let all = RangeRequest {
            keys_only: true,
            ..all(folder)
        };
        let all = self.connection.range(all, deadline).await;
        let all = all.map_err(RequestError::error)?;
        let keys = all.kvs.iter().filter(|kv| !is_marker(kv)).count() as u64;
        // During a lock-delay nobody holds the lock, so all keys belong to waiters.
        Ok(keys - u64::from(holder(&all).is_some()))
    }

    /// The details of an owner's client. On an error `None`: we show the lock without them.
    pub(crate) async fn client(&self, owner: &str, deadline: BootInstant) -> Option<ClientInfo> {
        let (uuid, _) = owner.split_once(':')?;
        let key = self.shared.keys.client_of(uuid);
        let found = self.connection.range(get(&key), deadline).await.ok()?;
        read(&found.kvs.first()?.value)
    }

    /// Writes a client's details, under a lease of their own of length `ttl`.
    pub(crate) async fn leave_details(
        &self,
        client: &ClientId,
        info: &ClientInfo,
        ttl: Duration,
    ) -> Result<()> {
        let deadline = self.connection.deadline();
        let lease = self.side_lease(ttl, deadline).await?;
        let put = PutRequest {
            key: self.shared.keys.client(client).into_bytes(),
            value: written(info).into_bytes(),
            lease: lease.id,
        };
        let path = "/etcdserverpb.KV/Put";
        let answer: Result<PutResponse, _> = self.connection.ask(path, put, deadline).await;
        if answer.as_ref().is_err_and(RequestError::is_certain) {
            self.revoke_in_background(vec![lease.id]);
        }
        answer.map(drop).map_err(RequestError::error)
    }

    /// Revokes the lease of a client's details, which deletes the details.
    pub(crate) async fn remove_details(&self, client: &ClientId) -> Result<()> {
        let deadline = self.connection.deadline();
        let key = self.shared.keys.client(client);
        let found = self.connection.range(get(&key), deadline).await;
        let found = found.map_err(RequestError::error)?.kvs.into_iter().next();
        let Some(lease) = found.map(|details| details.lease).filter(|id| *id != 0) else {
            return Ok(());
        };
        self.connection
            .revoke(lease, deadline)
            .await
            .map_err(RequestError::error)
    }

    /// One page of the names of locks. The cursor is the lowest creation revision of the page; see [`next`].
    pub(crate) async fn page(&self, pattern: &str, cursor: Option<&str>) -> Result<Page> {
        let all = self.shared.keys.all();
        let range = RangeRequest {
            key: all.first,
            range_end: all.end,
            limit: PAGE_SIZE,
            sort_order: ASCENDING,
            sort_target: BY_CREATION,
            // With the values, although nobody reads them: etcd 3.7 sends no lease if it is asked for the keys only.
            keys_only: false,
            min_create_revision: cursor.map_or(0, |cursor| cursor.parse().unwrap_or(i64::MAX)),
            ..RangeRequest::default()
        };
        let found = self
            .connection
            .range(range, self.connection.deadline())
            .await;
        let found = found.map_err(RequestError::error)?;
        // A lock's key always has a lease. A key without one only has the same form by chance.
        let locks = found.kvs.iter().filter(|kv| kv.lease != 0);
        let names = locks
            .filter_map(|kv| self.shared.keys.name_of(&kv.key))
            .filter(|name| matches_glob(pattern, name));
        let names = names.collect();
        let next = next(&found).map(|revision| revision.to_string());
        Ok(Page { names, next })
    }
}

/// Reads the oldest key and its marker. Both have the same revision, so their order is undefined.
pub(crate) fn first_with_marker(folder: &Folder) -> RangeRequest {
    RangeRequest {
        limit: 2,
        ..oldest(folder)
    }
}

fn is_marker(kv: &KeyValue) -> bool {
    keys::stands_beside(&kv.key)
}

fn token(revision: i64) -> Option<FencingToken> {
    u64::try_from(revision).ok().map(FencingToken::new)
}

/// The newest token that is not the creation revision of a key in the queue. 0: there is none.
fn newest_token(tokens: &RangeResponse) -> FencingToken {
    token(newest_revision(tokens)).unwrap_or(FencingToken::new(0))
}

/// The same as a revision.
pub(crate) fn newest_revision(tokens: &RangeResponse) -> i64 {
    tokens.kvs.first().map_or(0, |kv| kv.mod_revision)
}

/// The holder's key: the oldest key that is not a marker. `None`: nobody holds the lock, or only a lock-delay is left
/// of the last hold.
pub(crate) fn holder(queue: &RangeResponse) -> Option<&KeyValue> {
    let first = queue.kvs.first()?.create_revision;
    let mut together = queue
        .kvs
        .iter()
        .take_while(|kv| kv.create_revision == first);
    together.find(|kv| !is_marker(kv))
}

/// The number of waiters in a queue without markers: all keys but the first.
pub(crate) fn waiters(count: i64) -> u64 {
    u64::try_from(count.saturating_sub(1)).unwrap_or(0)
}

/// The cursor of the next page. `None`: this was the last page.
///
/// The keys of one transaction have the same revision, and a page may end between them. So the next page begins at the
/// last revision of this one; otherwise the list would leave out a lock whose key is behind the end.
pub(crate) fn next(found: &RangeResponse) -> Option<u64> {
    let last = found.kvs.last().filter(|_| found.more)?.create_revision;
    let first = found.kvs.first()?.create_revision;
    // A page of one revision, which only a foreign client can have written, would be the next one again without end.
    let next = last.saturating_add(i64::from(first == last));
    u64::try_from(next).ok()
}

/// The holder's name: the value of its key. For an empty value, the lease id at the end of the key.
pub(crate) fn owner(kv: &KeyValue) -> String {
    let value = String::from_utf8_lossy(&kv.value);
    if !value.is_empty() {
        return value.into_owned();
    }
    let key = String::from_utf8_lossy(&kv.key);
    let id = key.rsplit('/').next().unwrap_or_default();
    format!("lease {id}")
}

/// The stored form of a client's details, one per line. A line break in the name of host, program or user becomes a space.
pub(crate) fn written(info: &ClientInfo) -> String {
    let since = info
        .since
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let (host, program) = (one_line(&info.host), one_line(&info.program));
    let user = one_line(info.user.as_deref().unwrap_or_default());
    format!(
        "{host}\n{}\n{program}\n{}\n{user}",
        info.pid,
        since.as_millis()
    )
}

/// Reads a client's details. Ignores further lines: a newer version may have written them.
pub(crate) fn read(value: &[u8]) -> Option<ClientInfo> {
    let mut lines = std::str::from_utf8(value).ok()?.lines();
    let (host, pid) = (lines.next()?, lines.next()?.parse().ok()?);
    let program = lines.next().unwrap_or_default();
    let since = lines
        .next()
        .and_then(|since| since.parse().ok())
        .unwrap_or(0);
    let info = ClientInfo::new(host, pid, program, since_epoch(since));
    // An earlier version wrote no user.
    Some(info.run_by(lines.next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_come_back() {
        let since = since_epoch(1_700_000_000_123);
        let info = ClientInfo::new("web-1", 7, "shop\nd", since);
        let plain = ClientInfo::new("web-1", 7, "shop d", since);
        for (given, user) in [(None, None), (Some("dep\nloy"), Some("dep loy"))] {
            let info = info.clone().run_by(given);
            let seen = read(format!("{}\nmore", written(&info)).as_bytes()).unwrap();
            assert_eq!(seen, plain.clone().run_by(user));
        }
        assert_eq!(read(b"web-1\n7\nshop d\n1700000000123"), Some(plain));
        assert!(read(b"").is_none());
    }

    #[test]
    fn the_next_page_begins_at_the_last_revision_of_a_page() {
        let page = |revisions: &[i64], more| {
            let kv = |&revision: &i64| KeyValue {
                create_revision: revision,
                ..KeyValue::default()
            };
            RangeResponse {
                kvs: revisions.iter().map(kv).collect(),
                more,
                ..RangeResponse::default()
            }
        };
        for (revisions, more, cursor) in [
            (&[3, 4, 4][..], true, Some(4)),
            (&[3, 4], true, Some(4)),
            (&[4, 4], true, Some(5)),
            (&[3, 4, 4], false, None),
            (&[], true, None),
        ] {
            assert_eq!(next(&page(revisions, more)), cursor, "{revisions:?}");
        }
    }

    #[test]
    fn an_owner_without_a_value_is_shown_by_its_lease() {
        let kv = |key: &str, value: &str| KeyValue {
            key: key.as_bytes().to_vec(),
            value: value.as_bytes().to_vec(),
            ..KeyValue::default()
        };
        assert_eq!(owner(&kv("shop/stock/1f", "me:1")), "me:1");
        assert_eq!(owner(&kv("shop/stock/1f", "")), "lease 1f");
    }

    #[test]
    fn the_first_key_is_no_waiter() {
        for (count, waiting) in [(-1, 0), (0, 0), (1, 0), (2, 1), (9, 8)] {
            assert_eq!(waiters(count), waiting, "{count}");
        }
    }
}
