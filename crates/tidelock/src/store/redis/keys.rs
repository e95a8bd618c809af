//! The names of all keys, fields and channels. Redisson's locks have Redisson's names, byte for byte; our own names
//! begin with `tidelock:`.

pub(crate) mod turns;

use std::borrow::Cow;

use crate::store::{ClientId, CountKind, LockKind, Name, Ticket};

/// The prefix of tidelock's own keys. The functions below spell the prefix of each key in full: a test compares them with
/// the tables in `docs/wire-protocol.md`.
pub(crate) const OURS: &str = "tidelock:";

/// The field that marks a hash as a `ReadWriteLock`.
pub(crate) const MODE: &str = "mode";

pub(crate) const CHANNEL: &str = "redisson_lock__channel";

/// The channel on which a release of the lock is published.
pub(crate) fn channel(name: &Name) -> String {
    prefixed(CHANNEL, name.as_str())
}

/// The list in which Redisson's fair lock queues its threads.
pub(crate) fn fair_queue(name: &Name) -> String {
    prefixed("redisson_lock_queue", name.as_str())
}

/// The sorted set with the timeouts of the threads in [`fair_queue`].
pub(crate) fn fair_times(name: &Name) -> String {
    prefixed("redisson_lock_timeout", name.as_str())
}

/// The sorted set with the processes that have waiters for a fair lock, and until when each counts as alive.
pub(crate) fn alive(name: &Name) -> String {
    prefixed("tidelock:alive", name.as_str())
}

/// The owner that was granted a fair lock and has not confirmed the grant.
pub(crate) fn unconfirmed(name: &Name) -> String {
    prefixed("tidelock:granted", name.as_str())
}

pub(crate) const READ_WRITE_CHANNEL: &str = "redisson_rwlock";

/// The channel on which the waiters of a read-write lock are woken.
pub(crate) fn read_write_channel(name: &Name) -> String {
    prefixed(READ_WRITE_CHANNEL, name.as_str())
}

pub(crate) const PERMIT_CHANNEL: &str = "redisson_sc";

/// The channel on which the waiters of a semaphore are woken.
pub(crate) fn permit_channel(name: &Name) -> String {
    prefixed(PERMIT_CHANNEL, name.as_str())
}

pub(crate) const LATCH_CHANNEL: &str = "redisson_countdownlatch__channel__";

/// The channel on which the waiters of a latch are woken. Unlike all others it always has braces.
pub(crate) fn latch_channel(name: &Name) -> String {
    joined(&[LATCH_CHANNEL, "{", name.as_str(), "}"])
}

/// The answer to a change of a latch or a counting semaphore. A repeated or late request finds it, and has no second
/// effect.
pub(crate) fn count_answer(kind: CountKind, name: &Name, id: &str) -> String {
    let prefix = match kind {
        CountKind::Latch => "tidelock:latch",
        CountKind::Semaphore => "tidelock:semaphore",
    };
    of_request(prefix, name, id)
}

/// The sorted set with the permits of a semaphore that are out, and when the lease of each ends.
pub(crate) fn permits_out(name: &Name) -> String {
    suffixed(name.as_str(), OUT)
}

const OUT: &str = ":timeout";

/// The semaphore whose permits are in this key, if it is [`permits_out`] of one.
pub(crate) fn of_permits_out(key: &str) -> Option<&str> {
    let name = key.strip_suffix(OUT)?;
    let inner = name
        .strip_prefix('{')
        .and_then(|name| name.strip_suffix('}'));
    // A name with a brace of its own stays as it is.
    let inner = inner.filter(|inner| !inner.is_empty() && !inner.contains('{'));
    Some(inner.unwrap_or(name))
}

/// The owner of a ticket in the arguments of the scripts. For permits, what their ids have in common, and how many they
/// are.
pub(crate) fn owner_of(ticket: &Ticket) -> Cow<'_, str> {
    match ticket.kind {
        LockKind::Permits(count) => Cow::Owned(format!("{}:{count}", ticket.owner.permit_base())),
        _ => Cow::Borrowed(ticket.owner.text()),
    }
}

/// Whether a message on the channel wakes all its waiters: which of them is next, only the store knows.
pub(crate) fn wakes_all(channel: &str) -> bool {
    is_of_sides(channel)
        || channel.starts_with(PERMIT_CHANNEL)
        || channel.starts_with(LATCH_CHANNEL)
}

/// Whether it is the channel of a read-write lock.
pub(crate) fn is_of_sides(channel: &str) -> bool {
    channel.starts_with(READ_WRITE_CHANNEL)
}

/// The channel on which a waiter for this ticket is woken.
pub(crate) fn wake_channel(ticket: &Ticket) -> String {
    match ticket.kind {
        kind if kind.is_read_write() => read_write_channel(&ticket.name),
        LockKind::Permits(_) => permit_channel(&ticket.name),
        _ => channel(&ticket.name),
    }
}

/// The queue of tidelock's waiters for the sides of a read-write lock.
pub(crate) fn read_write_queue(name: &Name) -> String {
    prefixed("tidelock:rw_queue", name.as_str())
}

/// Until when each waiter in [`read_write_queue`] counts as alive.
pub(crate) fn read_write_deadlines(name: &Name) -> String {
    prefixed("tidelock:rw_deadlines", name.as_str())
}

/// The key of a read hold, which lives as long as the lease of that hold. A write hold has none: the key is then that of
/// the lock.
pub(crate) fn read_hold(ticket: &Ticket) -> Cow<'_, str> {
    let (name, owner) = (ticket.name.as_str(), ticket.owner.text());
    if !ticket.kind.is_read() {
        return Cow::Borrowed(name);
    }
    let suffix = joined(&[":", owner, ":rwlock_timeout:1"]);
    Cow::Owned(suffixed(name, &suffix))
}

/// The channel on which Redisson's fair lock wakes the first thread of its queue.
pub(crate) fn fair_channel(name: &Name, head: &str) -> String {
    joined(&[&channel(name), ":", head])
}

/// The channel of the lock, if the given channel is a [`fair_channel`]. A lock whose name ends like a fair channel is
/// taken for one.
pub(crate) fn of_fair_channel(given: &str) -> Option<&str> {
    if !given.starts_with(CHANNEL) {
        return None;
    }
    let mut colons = given.match_indices(':');
    let (at, _) = colons.find(|(at, _)| owner_client(&given[at + 1..]).is_some())?;
    Some(&given[..at])
}

/// The prefix of the channels by which tidelock's waiters are counted.
const OWN: &str = "tidelock:waiting";

/// A second channel, in the same slot, to which only tidelock's waiters subscribe. `None`: the given channel does not
/// belong to a lock.
pub(crate) fn own_channel(channel: &str) -> Option<String> {
    Some(joined(&[OWN, channel.strip_prefix(CHANNEL)?]))
}

/// The inverse of [`own_channel`].
pub(crate) fn channel_of_own(own: &str) -> Option<String> {
    Some(joined(&[CHANNEL, own.strip_prefix(OWN)?]))
}

const EVENTS: &str = "__keyspace@";

/// The channel of the keyspace events of a key.
pub(crate) fn events(db: i64, name: &Name) -> String {
    joined(&[EVENTS, &db.to_string(), "__:", name.as_str()])
}

/// The key of a keyspace-event channel; `None` for any other channel.
pub(crate) fn of_events(channel: &str) -> Option<&str> {
    Some(channel.strip_prefix(EVENTS)?.split_once("__:")?.1)
}

/// The marks of a job's slots: a hash, slot to mark.
pub(crate) fn marks(name: &Name) -> String {
    prefixed("tidelock:marks", name.as_str())
}

/// Until when each mark of [`marks`] is kept: a sorted set, in milliseconds of the server's clock.
pub(crate) fn mark_ends(name: &Name) -> String {
    prefixed("tidelock:mark_ends", name.as_str())
}

/// The counter of a fenced lock's tokens.
pub(crate) fn token(name: &Name) -> String {
    prefixed("redisson_lock_token", name.as_str())
}

/// The counter of a plain lock's tokens, used only by callers that request tokens. It is not Redisson's counter: a
/// plain lock and a Redisson lock do not exclude each other.
pub(crate) fn plain_token(name: &Name) -> String {
    let tag = hash_tag(name.as_str()).unwrap_or(name.as_str());
    joined(&["tidelock:token:{", tag, "}:", name.as_str()])
}

/// The tombstone of an owner. It stops a late acquire request of a withdrawn ticket from taking effect. It lies in
/// the slot of the lock, because one script reads both.
pub(crate) fn tombstone(name: &Name, owner: &str) -> String {
    of_request("tidelock:withdrawn", name, owner)
}

/// A key about one request, in the slot of the lock.
fn of_request(prefix: &str, name: &Name, id: &str) -> String {
    let tag = hash_tag(name.as_str()).unwrap_or(name.as_str());
    joined(&[prefix, ":{", tag, "}:", id])
}

/// The key with the details of a client.
pub(crate) fn client(client: &ClientId) -> String {
    client_of(client.as_str())
}

/// The key with the details of a client, given its UUID.
pub(crate) fn client_of(uuid: &str) -> String {
    format!("tidelock:client:{uuid}")
}

/// Redisson's brace rule: a name that contains a `{` anywhere stays as it is.
fn prefixed(prefix: &str, name: &str) -> String {
    if name.contains('{') {
        joined(&[prefix, ":", name])
    } else {
        joined(&[prefix, ":{", name, "}"])
    }
}

/// The same rule for keys that begin with the name.
fn suffixed(name: &str, suffix: &str) -> String {
    if name.contains('{') {
        joined(&[name, suffix])
    } else {
        joined(&["{", name, "}", suffix])
    }
}

/// Like `concat`, which is much slower for short strings; every request builds one.
fn joined(parts: &[&str]) -> String {
    let mut text = String::with_capacity(parts.iter().map(|part| part.len()).sum());
    for part in parts {
        text.push_str(part);
    }
    text
}

/// The part of a key that a cluster hashes: the hash tag, or else the whole key.
pub(crate) fn hashed(key: &str) -> &str {
    hash_tag(key).unwrap_or(key)
}

/// Whether all keys of a lock lie in one slot. They do not if the name has a brace but no valid hash tag; in Redisson
/// neither.
pub(crate) fn share_a_slot(name: &Name) -> bool {
    [channel(name), token(name)]
        .iter()
        .all(|key| hashed(key) == hashed(name.as_str()))
}

/// The hash tag: the text between the first `{` and the next `}`, unless that is empty.
fn hash_tag(name: &str) -> Option<&str> {
    let (_, after) = name.split_once('{')?;
    let (tag, _) = after.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// The UUID of an owner field, which Redisson and tidelock write as `uuid:n`, perhaps with a suffix. `None` for any
/// other field.
pub(crate) fn owner_client(field: &str) -> Option<&str> {
    let (uuid, rest) = field.split_at_checked(36)?;
    let looks_right = uuid::Uuid::try_parse(uuid).is_ok()
        && rest
            .strip_prefix(':')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '-'));
    looks_right.then_some(uuid)
}

/// Converts a glob of `*` and `?` for the server, where brackets and backslashes are special too.
pub(crate) fn glob(pattern: &str) -> String {
    let mut escaped = String::with_capacity(pattern.len());
    for c in pattern.chars() {
        if matches!(c, '[' | ']' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests;
