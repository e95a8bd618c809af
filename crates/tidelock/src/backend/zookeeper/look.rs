//! What can be seen from outside.

use super::matches_glob;
use super::names;
use super::turn::{look, some};
use super::{Shared, delay, note, trouble};
use crate::backend::{Name, Page};
use crate::error::{ErrorKind, Result};
use crate::guard::FencingToken;
use crate::snapshot::Snapshot;

/// How many names one page of a list looks at.
const PAGE: usize = 500;

pub(super) async fn inspect(shared: &Shared, name: &Name) -> Result<Snapshot> {
    let deadline = shared.link.deadline();
    let session = shared.link.session(deadline).await?;
    let parent = shared.path(name);
    loop {
        let (nodes, mark) = delay::look(shared, &session, name, deadline).await?;
        let queue = names::in_order(nodes);
        let mut snapshot = Snapshot::free(name.as_str());
        snapshot.waiters = Some(queue.len().saturating_sub(1) as u64);
        let Some(first) = queue.first() else {
            return Ok(snapshot);
        };
        let path = format!("{parent}/{first}");
        let data = shared
            .timers
            .until(deadline, session.client.get_data(&path))
            .await;
        let data = data.ok_or_else(|| trouble::late(ErrorKind::Unavailable))?;
        let Some((data, stat)) = some(data)? else {
            continue; // it has just gone
        };
        let holder = note::read(first, &data);
        // A delay is running, and the first of ours waits for its end. Others know of no delays: they hold.
        if mark.is_some_and(|mark| mark.generation != stat.czxid) && holder.owner != *first {
            snapshot.waiters = Some(queue.len() as u64);
            return Ok(snapshot);
        }
        snapshot.token = Some(FencingToken::new(stat.czxid.unsigned_abs()));
        let ends = shared.books.ends(&parent, first);
        snapshot.expires_in = ends.map(|ends| ends.since(shared.timers.now()));
        snapshot.holders.push(holder);
        return Ok(snapshot);
    }
}

/// Whether the node of that transaction is the first of its queue, as the leader knows it.
pub(super) async fn check(shared: &Shared, name: &Name, generation: FencingToken) -> Result<bool> {
    let deadline = shared.link.deadline();
    let session = shared.link.session(deadline).await?;
    let parent = shared.path(name);
    loop {
        let nodes = look(shared, &session, &parent, deadline).await?;
        let queue = names::in_order(nodes.unwrap_or_default());
        let Some(first) = queue.first() else {
            return Ok(false);
        };
        let path = format!("{parent}/{first}");
        let stat = session.client.check_stat(&path);
        let stat = shared.timers.until(deadline, stat).await;
        let stat = stat.ok_or_else(|| trouble::late(ErrorKind::Unavailable))?;
        // Gone meanwhile: what it says now may be about another holder.
        if let Some(stat) = stat.map_err(trouble::unread)? {
            return Ok(stat.czxid.unsigned_abs() == generation.get());
        }
    }
}

/// A page of the names under the base path that have somebody in their queue.
pub(super) async fn list(shared: &Shared, pattern: &str, cursor: u64) -> Result<Page> {
    let deadline = shared.link.deadline();
    let session = shared.link.session(deadline).await?;
    let base = &shared.link.place().base;
    let mut all = look(shared, &session, base, deadline)
        .await?
        .unwrap_or_default();
    all.sort_unstable();
    let skip = usize::try_from(cursor).unwrap_or(usize::MAX);
    let asked: Vec<_> = all
        .iter()
        .skip(skip)
        .take(PAGE)
        .filter_map(|segment| Some((names::name_of(segment)?, segment)))
        .filter(|(name, _)| matches_glob(pattern, name))
        .map(|(name, segment)| {
            let path = shared.link.place().path(segment);
            (name, session.client.list_children(&path), path)
        })
        .collect();
    let mut names = Vec::new();
    for (name, children, _) in asked {
        let children = shared.timers.until(deadline, children).await;
        let children = children.ok_or_else(|| trouble::late(ErrorKind::Unavailable))?;
        let queue = names::in_order(some(children)?.unwrap_or_default());
        if !queue.is_empty() {
            names.push(name);
        }
    }
    let end = skip.saturating_add(PAGE);
    let next = (end < all.len()).then_some(end as u64);
    Ok(Page { names, next })
}
