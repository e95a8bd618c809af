//! Inspection of a semaphore or a latch.

use std::fmt::Write;
use std::time::Duration;

use crate::error::{ErrorKind, Result};
use crate::snapshot::{Holder, Mode, PermitCount, Snapshot};
use crate::store::redis::keys;
use crate::store::redis::layouts::{answer, scripts};
use crate::store::redis::pubsub::subscriber::PublishModes;
use crate::store::redis::topology::router::Router;
use crate::store::redis::wire::errors::unexpected;
use crate::store::redis::wire::reply::Reply;
use crate::store::{Name, matches_glob};

/// The bytes of an id that all permits of one acquisition of tidelock have in common.
const SHARED_BYTES: usize = 14;

/// The bytes of an id. Redisson before 3.17 writes its 32 digits as text instead.
const ID_BYTES: usize = 16;

/// Inspects a semaphore or a latch.
pub(crate) async fn at(router: &Router, ways: PublishModes, name: &Name) -> Result<Snapshot> {
    let (out, channel) = (keys::permits_out(name), keys::permit_channel(name));
    let latch_channel = keys::latch_channel(name);
    let mut args = vec![&*channel, &*latch_channel];
    args.extend(ways.forms().iter().map(|form| form.counts()));
    let keys = [name.as_str(), &*out];
    let (script, deadline) = (&scripts::INSPECT_PERMITS, router.deadline());
    let reply = router.eval(script, &keys, &args, deadline).await?;
    let parts = reply.list().unwrap_or_default();
    let (available, total, now, out, waiters, latch_waiters) = match parts {
        [Reply::Int(7), kind] => {
            return Err(answer::not_semaphore(kind.text().unwrap_or_default()));
        }
        [available, total, now, out, waiters, latch_waiters] => {
            (available, total, now, out, waiters, latch_waiters)
        }
        _ => return Err(unexpected(&reply)),
    };
    let mut snapshot = Snapshot::free(name.as_str());
    let count = available.int().zip(total.int());
    snapshot.permits = count.map(|(available, total)| PermitCount::new(available, total));
    snapshot.waiters = waiters.int().and_then(|count| u64::try_from(count).ok());
    snapshot.holders = holders(out);
    let latch_waiters = latch_waiters
        .int()
        .and_then(|count| u64::try_from(count).ok());
    let is_semaphore = snapshot.is_locked() || snapshot.waiters > Some(0);
    let number = count.and_then(|(available, _)| u64::try_from(available).ok());
    if number > Some(0) && !is_semaphore {
        snapshot.latch = number;
        if latch_waiters > Some(0) {
            (snapshot.permits, snapshot.waiters) = (None, latch_waiters);
        }
    }
    // The last two are a pair of an id and the end of its lease, in order of these ends.
    let last = out.list().unwrap_or_default().last();
    let left = last.and_then(Reply::int).zip(now.int());
    let left = left.filter(|(end, _)| *end < NEVER);
    snapshot.expires_in = left
        .and_then(|(end, now)| u64::try_from(end.checked_sub(now)?).ok())
        .map(Duration::from_millis);
    Ok(snapshot)
}

/// The type of the key that has the permits of a semaphore that are out.
pub(crate) const TYPE: &str = "zset";

/// Finds at least the keys with the permits of the semaphores whose names match a pattern.
pub(crate) fn glob(pattern: &str) -> String {
    format!("*{}*:timeout", keys::glob(pattern))
}

/// The name of the semaphore whose permits are in this key, if it matches the pattern and permits are held.
pub(crate) async fn held_at(
    router: &Router,
    ways: PublishModes,
    pattern: &str,
    key: &str,
) -> Result<Option<String>> {
    let name = keys::of_permits_out(key).filter(|name| matches_glob(pattern, name));
    let Some(Ok(name)) = name.map(Name::new) else {
        return Ok(None);
    };
    match at(router, ways, &name).await {
        Ok(seen) => Ok(seen.is_locked().then(|| name.as_str().to_owned())),
        // The set belongs to another application, or the key has changed meanwhile.
        Err(error) if matches!(error.kind(), ErrorKind::WrongType | ErrorKind::Refused) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Redisson's end of the lease of a permit that does not expire.
const NEVER: i64 = 922_337_203_685_477;

/// The acquisitions that hold permits, from the ids of the permits and the ends of their leases.
fn holders(out: &Reply) -> Vec<Holder> {
    let ids = out.list().unwrap_or_default().iter().step_by(2);
    let mut holders: Vec<(Vec<u8>, Holder)> = Vec::new();
    for id in ids {
        let Reply::Text(id) = id else { continue };
        let shared = id.get(..SHARED_BYTES).filter(|_| id.len() == ID_BYTES);
        let shared = shared.unwrap_or(id);
        if let Some((_, known)) = holders.iter_mut().find(|(known, _)| known == shared) {
            known.holds += 1;
        } else {
            let mut holder = Holder::new(shown(id), 1);
            holder.mode = Mode::Permits;
            holders.push((shared.to_vec(), holder));
        }
    }
    holders.into_iter().map(|(_, holder)| holder).collect()
}

/// An id as Redisson shows it.
fn shown(id: &[u8]) -> String {
    match std::str::from_utf8(id) {
        Ok(text) if id.len() != ID_BYTES => text.to_owned(),
        _ => id.iter().fold(String::new(), |mut digits, byte| {
            let _ = write!(digits, "{byte:02x}"); // a String takes any text
            digits
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_acquisition_is_one_holder() {
        let ours = |n: u8| {
            let mut id = vec![0xab; 14];
            id.extend([0, n]);
            Reply::Text(id)
        };
        let text = |text: &str| Reply::Text(text.into());
        let old = "0123456789abcdef0123456789abcdef";
        let out = Reply::List(vec![
            ours(0),
            text("1700000000000"),
            ours(1),
            text("1700000000000"),
            Reply::Text(vec![0xcd; 16]),
            text("1700000000001"),
            text(old),
            text("1700000000002"),
            // Any 16 bytes are an id, also if they are a text.
            text("0123456789abcdef"),
            text("1700000000003"),
        ]);
        let seen: Vec<(String, u64)> = holders(&out)
            .into_iter()
            .map(|holder| (holder.owner, holder.holds))
            .collect();
        assert_eq!(
            seen,
            [
                ("ab".repeat(14) + "0000", 2),
                ("cd".repeat(16), 1),
                (old.to_owned(), 1),
                ("30313233343536373839616263646566".to_owned(), 1)
            ]
        );
    }
}
