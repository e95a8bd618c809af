//! Inspection for operators: one lock, the list of locks, and the details of the clients.

mod awaited;
mod list_cursor;
mod permits;
mod plain;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;

use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{ClientInfo, Holder, Mode, Snapshot, since_epoch};
use crate::store::redis::inspect::list_cursor::ListCursor;
use crate::store::redis::keys;
use crate::store::redis::layouts::{Layout, scripts};
use crate::store::redis::millis;
use crate::store::redis::pubsub::subscriber::PublishModes;
use crate::store::redis::topology::router::Router;
use crate::store::redis::wire::errors::unexpected;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::wire::request::Request;
use crate::store::{BootInstant, ClientId, Name, Page};
use crate::types::FencingToken;

/// The suffix of the hash field of a thread that holds a read-write lock for writing.
const WRITER: &str = ":write";

/// How many keys the server examines per page (the COUNT of SCAN).
const SCAN_COUNT: &str = "250";

/// Inspects one lock or semaphore, and adds the details of the clients that hold the lock.
pub(crate) async fn at(router: &Router, ways: PublishModes, name: &Name) -> Result<Snapshot> {
    let seen = match lock_at(router, ways, name).await {
        // A semaphore is a number. If the key is something else, the error says what.
        Err(error) if error.kind() == ErrorKind::WrongType => {
            Box::pin(permits::at(router, ways, name)).await
        }
        seen => seen,
    };
    seen.map_err(|error| error.on_lock(name))
}

async fn lock_at(router: &Router, ways: PublishModes, name: &Name) -> Result<Snapshot> {
    router.check(name)?;
    let deadline = router.deadline();
    let (token, channel) = (keys::token(name), keys::channel(name));
    let mut args = vec![&*token, &*channel];
    args.extend(ways.forms().iter().map(|form| form.counts()));
    let reply = router
        .eval(&scripts::INSPECT, &[name.as_str()], &args, deadline)
        .await?;
    let Some([fields, left, token, listeners, queue]) = reply.list() else {
        return Err(unexpected(&reply));
    };
    let mut snapshot = Snapshot::free(name.as_str());
    snapshot.holders = holders(fields);
    snapshot.expires_in = left
        .int()
        .and_then(|left| u64::try_from(left).ok())
        .map(Duration::from_millis);
    snapshot.token = token
        .int()
        .and_then(|token| u64::try_from(token).ok())
        .map(FencingToken::new);
    snapshot.waiters = listeners.int().and_then(|count| u64::try_from(count).ok());
    let queue = queue.list().unwrap_or_default().iter();
    snapshot.queue = queue
        .filter_map(|owner| Some(owner.lossy()?.into_owned()))
        .collect();
    add_clients(router, &mut snapshot.holders, deadline).await;
    Ok(snapshot)
}

/// The holders of a lock whose hash has these fields. A field `mode` marks Redisson's read-write lock: a writer's
/// field ends with `:write`, and while there is a writer, only the same thread may read too. Any other field is then
/// a holder of an exclusive lock under the same name.
pub(crate) fn holders(fields: &Reply) -> Vec<Holder> {
    let pairs = fields.list().unwrap_or_default().chunks_exact(2);
    let fields: Vec<(String, &Reply)> = pairs
        .filter_map(|pair| Some((pair[0].lossy()?.into_owned(), &pair[1])))
        .collect();
    let mode = fields.iter().find(|(field, _)| field == keys::MODE);
    let is_written = mode.is_some_and(|(_, mode)| mode.text() == Some("write"));
    let fields_of_writers = fields.iter().map(|(field, _)| field.strip_suffix(WRITER));
    let writers: HashSet<&str> = fields_of_writers.flatten().collect();
    let holders = fields.iter().filter(|(field, _)| field != keys::MODE);
    holders
        .map(|(field, count)| {
            // Any client may have written the field. A value that is not a number counts as 0 holds.
            let holds = count.int().and_then(|count| u64::try_from(count).ok());
            let (owner, side) = match (mode, field.strip_suffix(WRITER)) {
                (None, _) => (&**field, Mode::Exclusive),
                (Some(_), Some(owner)) => (owner, Mode::Write),
                (Some(_), None) if is_written && !writers.contains(&**field) => {
                    (&**field, Mode::Exclusive)
                }
                (Some(_), None) => (&**field, Mode::Read),
            };
            let mut holder = Holder::new(owner, holds.unwrap_or(0));
            holder.mode = side;
            holder
        })
        .collect()
}

pub(crate) async fn add_clients(router: &Router, holders: &mut [Holder], deadline: BootInstant) {
    // All at once: a lock may have a hundred readers.
    let asked = holders.iter_mut().map(async |holder| {
        if let Some(uuid) = keys::owner_client(&holder.owner) {
            let key = keys::client_of(uuid);
            let request = Request::new("HGETALL").arg(&key);
            // We show the lock even if its client's details are missing.
            if let Ok(reply) = router.ask(&key, &request, deadline).await {
                holder.client = client(&reply);
            }
        }
    });
    join_all(asked).await;
}

/// Ignores unknown fields: a newer version may have written them.
pub(crate) fn client(reply: &Reply) -> Option<ClientInfo> {
    let fields: HashMap<&str, &Reply> = reply
        .list()?
        .chunks_exact(2)
        .filter_map(|pair| Some((pair[0].text()?, &pair[1])))
        .collect();
    let since = fields
        .get("since")
        .and_then(|since| since.int())
        .unwrap_or(0);
    let since = since_epoch(u64::try_from(since).unwrap_or(0));
    let text = |field: &str| fields.get(field).and_then(|value| value.text());
    let info = ClientInfo::new(
        text("host")?,
        u32::try_from(fields.get("pid")?.int()?).ok()?,
        text("program").unwrap_or_default(),
        since,
    );
    Some(info.run_by(text("user")))
}

/// Writes a client's details, as one key that expires.
pub(crate) async fn announce(
    router: &Router,
    id: &ClientId,
    info: &ClientInfo,
    ttl: Duration,
) -> Result<()> {
    let key = keys::client(id);
    let since = info
        .since
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let (pid, since) = (info.pid.to_string(), since.as_millis().to_string());
    let mut details = vec![
        "host",
        &info.host,
        "pid",
        &pid,
        "program",
        &info.program,
        "since",
        &since,
    ];
    if let Some(user) = &info.user {
        details.extend(["user", user]);
    }
    // We send the script's text: it runs about once an hour, and EVALSHA might need a second round trip.
    let put = Request::new("EVAL")
        .arg(scripts::ANNOUNCE.source)
        .arg(1)
        .arg(&key)
        .arg(millis(ttl));
    let put = details.into_iter().fold(put, Request::arg);
    router.ask(&key, &put, router.deadline()).await.map(drop)
}

/// Expires the key at once instead of deleting it: a user with the right to lock may lack the right to DEL.
pub(crate) async fn retract(router: &Router, id: &ClientId) -> Result<()> {
    let key = keys::client(id);
    let end = Request::new("PEXPIRE").arg(&key).arg(0);
    router.ask(&key, &end, router.deadline()).await.map(drop)
}

/// One page of the names of the locks. The cursor goes through the servers one after the other, and on each through the
/// types of keys. If `after` is not a cursor, the list ends.
pub(crate) async fn page(
    router: &Router,
    ways: PublishModes,
    layout: Layout,
    pattern: &str,
    after: Option<&str>,
) -> Result<Page> {
    let deadline = router.deadline();
    let (map, servers) = router.whole_map();
    let Some(cursor) = ListCursor::of(after, map) else {
        return Ok(Page::default());
    };
    let types: &[&str] = match layout {
        Layout::Redisson => &["hash", permits::TYPE],
        Layout::Plain => &["string"],
    };
    let of_type = types[cursor.scan % types.len()];
    let Some(connection) = servers.get(cursor.scan / types.len()) else {
        return Ok(Page::default());
    };
    let conn = connection.get(deadline).await?;
    let glob = match of_type {
        permits::TYPE => permits::glob(pattern),
        _ => keys::glob(pattern),
    };
    let scan = scan(cursor.of_server(&conn), &glob, of_type);
    let reply = connection.settle(&conn, &scan, deadline).await;
    let (next, found) = scanned(&reply.map_err(|failure| failure.error())?)?;
    let found = found.iter().map(String::as_str);
    let candidates = found.filter(|key| !key.starts_with(keys::OURS));
    let checks = candidates.map(|key| async move {
        if of_type == permits::TYPE {
            return permits::held_at(router, ways, pattern, key).await;
        }
        let is_lock = match layout {
            Layout::Redisson => is_lock(router, key, deadline).await?,
            Layout::Plain => is_plain_lock(router, key, deadline).await?,
        };
        Ok(is_lock.then(|| key.to_owned()))
    });
    let names = join_all(checks)
        .await
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    Ok(Page {
        names: names.into_iter().flatten().collect(),
        next: match next {
            0 if cursor.scan + 1 < servers.len() * types.len() => Some(cursor.next_scan()),
            0 => None,
            next => Some(cursor.at(next, &conn)),
        }
        .map(|cursor| cursor.to_string()),
    })
}

/// Asks for keys of this type that match the glob.
fn scan(cursor: u64, glob: &str, of_type: &str) -> Request {
    Request::new("SCAN")
        .arg(cursor)
        .arg("MATCH")
        .arg(glob)
        .arg("COUNT")
        .arg(SCAN_COUNT)
        .arg("TYPE")
        .arg(of_type)
}

/// The server's next cursor, and the keys that it has found.
fn scanned(reply: &Reply) -> Result<(u64, Vec<String>)> {
    let Some([next, found]) = reply.list() else {
        return Err(unexpected(reply));
    };
    let next = next
        .text()
        .and_then(|next| next.parse().ok())
        .ok_or_else(|| unexpected(next))?;
    let found = found.list().unwrap_or_default().iter();
    let found = found.filter_map(Reply::text).map(str::to_owned);
    Ok((next, found.collect()))
}

/// In bytes. A longer value is not the owner of a plain lock: other clients of plain locks write 16 to 46 bytes.
const LONGEST_OWNER: i64 = 128;

/// Whether a string may be a lock: it has a time to live, and is as short as an owner. Nothing else distinguishes it
/// from other strings.
async fn is_plain_lock(router: &Router, key: &str, deadline: BootInstant) -> Result<bool> {
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
            Err(error) if is_passed_over(&error, command) => return Ok(false),
            other => other?,
        };
        if !reply.int().is_some_and(fits) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads only a few fields: a hash of another application may have millions.
async fn is_lock(router: &Router, key: &str, deadline: BootInstant) -> Result<bool> {
    let request = Request::new("HSCAN").arg(key).arg(0).arg("COUNT").arg(4);
    let reply = match router.ask(key, &request, deadline).await {
        Ok(reply) => reply,
        Err(error) if is_passed_over(&error, "HSCAN") => return Ok(false),
        Err(error) => return Err(error),
    };
    let fields = reply
        .list()
        .and_then(|answer| answer.get(1)?.list())
        .unwrap_or_default();
    let mut names = fields.iter().step_by(2).filter_map(Reply::text);
    Ok(names.any(|field| field == keys::MODE || keys::owner_client(field).is_some()))
}

/// Whether the key has changed meanwhile, or belongs to another application: it is not a lock we can show. If the user is not
/// allowed to run the command at all, the error counts; otherwise the list would be empty although there are locks.
fn is_passed_over(error: &Error, command: &str) -> bool {
    match error.kind() {
        ErrorKind::WrongType => true,
        // A lost login is refused too, with another code. It says nothing of one key.
        ErrorKind::Refused => is_about(error, "NOPERM") && !is_about(error, command),
        _ => false,
    }
}

/// Whether the server's error contains this word: a code, or the command that it refuses for any key.
fn is_about(error: &Error, word: &str) -> bool {
    let detail = error.detail().unwrap_or_default();
    let (detail, word) = (detail.to_ascii_lowercase(), word.to_ascii_lowercase());
    detail.contains(&word)
}

#[cfg(test)]
mod tests;
