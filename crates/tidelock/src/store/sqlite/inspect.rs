//! What operators see of the rows.

use crate::snapshot::{Holder, Mode, PermitCount, Snapshot};
use crate::store::fair_waiters::show_queue;
use crate::store::glob::matches_glob;
use crate::store::sqlite::errors::unless_unreadable;
use crate::store::sqlite::permit_rows::PermitQueue;
use crate::store::sqlite::records::LockTransaction;
use crate::store::{Name, OwnerId, Page};
use crate::types::FencingToken;

/// Bounds the rows that one page of a list reads.
const PAGE_SIZE: i64 = 1000;

fn fencing(token: i64) -> FencingToken {
    FencingToken::new(token.unsigned_abs())
}

pub(crate) fn snapshot(view: &LockTransaction<'_>, name: &str) -> rusqlite::Result<Snapshot> {
    let mut snapshot = Snapshot::free(name);
    show_queue(&mut snapshot, view.queue(name)?);
    snapshot.token = view.newest_token(name)?.map(fencing);
    let queue = view.permit_queue(name)?;
    if queue.total.is_some() || !queue.waiters.is_empty() {
        show_permits(view, &queue, &mut snapshot)?;
    }
    if view.has_sides_of(name)? {
        return with_sides(view, name, snapshot);
    }
    let Some(row) = view.row(name)? else {
        return Ok(snapshot);
    };
    let left = row.left(name, view.now, view.seen);
    if !left.is_zero() {
        snapshot.expires_in = snapshot.expires_in.max(Some(left));
        snapshot
            .holders
            .push(holder(view, &row.owner, Mode::Exclusive)?);
    }
    Ok(snapshot)
}

/// A name whose read-write lock has holders or waiters. A lock without sides may have the lock meanwhile.
fn with_sides(
    view: &LockTransaction<'_>,
    name: &str,
    mut snapshot: Snapshot,
) -> rusqlite::Result<Snapshot> {
    let queue = view.side_queue(name)?;
    snapshot.waiters = Some(queue.waiters.len() as u64);
    snapshot.expires_in = queue.left();
    for side in &queue.holders {
        let one = holder(view, &side.owner, side.kind.into())?;
        snapshot.holders.push(one);
    }
    if queue.held_without_sides.is_some()
        && let Some(row) = view.row(name)?
    {
        snapshot
            .holders
            .push(holder(view, &row.owner, Mode::Exclusive)?);
    }
    Ok(snapshot)
}

/// A semaphore. An older tidelock, which knows none, may hold a lock of the same name meanwhile.
fn show_permits(
    view: &LockTransaction<'_>,
    queue: &PermitQueue,
    snapshot: &mut Snapshot,
) -> rusqlite::Result<()> {
    let available = |total| PermitCount::new(total - queue.held(), total);
    snapshot.permits = queue.total.map(available);
    snapshot.waiters = Some(queue.waiters.len() as u64);
    snapshot.expires_in = queue.holders.iter().map(|holder| holder.left).max();
    for row in &queue.holders {
        let id = OwnerId::of_text(&row.owner).permit_id(0);
        let mut one = Holder::new(id, u64::from(row.permits));
        one.mode = Mode::Permits;
        one.client = view.client(&row.client)?;
        snapshot.holders.push(one);
    }
    Ok(())
}

/// Frees a lock regardless of its holder, or only if it is held as in `seen`. Returns whether it was held.
pub(crate) fn force(
    view: &LockTransaction<'_>,
    name: &Name,
    seen: Option<&Snapshot>,
) -> rusqlite::Result<bool> {
    if let Some(seen) = seen {
        let now = snapshot(view, name.as_str())?;
        if !seen.is_of(&mut now.owners(), now.token.map(FencingToken::get)) {
            return Ok(false);
        }
    }
    view.force_release(name)
}

fn holder(view: &LockTransaction<'_>, owner: &str, mode: Mode) -> rusqlite::Result<Holder> {
    let mut holder = Holder::new(owner, 1);
    holder.mode = mode;
    holder.client = view.client(owner.split(':').next().unwrap_or_default())?;
    Ok(holder)
}

pub(crate) fn page(
    view: &LockTransaction<'_>,
    pattern: &str,
    after: Option<&str>,
) -> rusqlite::Result<Page> {
    let all = view.names(PAGE_SIZE, after.unwrap_or_default())?;
    let full = i64::try_from(all.len()).is_ok_and(|len| len == PAGE_SIZE);
    let next = all.last().filter(|_| full).cloned();
    let mut names = Vec::new();
    for name in all.into_iter().filter(|name| matches_glob(pattern, name)) {
        // A row that cannot be read must not hide all others. Nobody gets its lock, so it counts as locked.
        let locked = match unless_unreadable(view.row(&name))? {
            Some(row) => row.is_some_and(|row| !row.left(&name, view.now, view.seen).is_zero()),
            None => true,
        };
        if locked || !view.permit_queue(&name)?.holders.is_empty() {
            names.push(name);
        }
    }
    Ok(Page { names, next })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::LockKind;
    use crate::store::fair_waiters::FairPosition;
    use crate::store::sqlite::test_file::File;

    const LEASE: Duration = Duration::from_secs(30);

    #[test]
    fn a_list_with_more_names_than_a_page_has_a_second_page() {
        let file = File::new();
        let put = "INSERT INTO locks VALUES (?1, 'a:1', 1, 1, 1000000000, 'here', 1, 0)";
        let names: Vec<String> = (0..=PAGE_SIZE).map(|n| format!("{n:04}")).collect();
        for name in &names {
            file.connection.execute(put, [name]).unwrap();
        }
        let first = page(&file.at(0), "*", None).unwrap();
        assert_eq!(first.names, names[..1000]);
        assert_eq!(first.next.as_deref(), Some("0999"));
        let second = page(&file.at(0), "*", first.next.as_deref()).unwrap();
        assert_eq!(second.names, names[1000..]);
        assert_eq!(second.next, None);
    }

    #[test]
    fn a_semaphore_is_shown_as_soon_as_somebody_waits_for_its_first_permits() {
        let file = File::new();
        let lock = file.ticket(LockKind::Mutex);
        let waiter = file.ticket(LockKind::Permits(1));
        file.at(0).attempt(&lock, LEASE, 0).unwrap();
        let seen = snapshot(&file.at(0), "n").unwrap();
        assert_eq!(
            (seen.holders.len(), seen.waiters, seen.permits),
            (1, None, None)
        );
        file.at(0).release(&lock).unwrap();
        file.at(0)
            .attempt_permits(&waiter, 1, LEASE, FairPosition::Last)
            .unwrap();
        let seen = snapshot(&file.at(0), "n").unwrap();
        assert_eq!(
            (seen.holders.len(), seen.waiters, seen.permits),
            (0, Some(1), None)
        );
    }
}
