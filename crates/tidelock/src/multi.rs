//! Multi lock: several locks acquired together, all or none.

use std::borrow::Borrow;
use std::sync::Arc;

use crate::engine::ClientInner;
use crate::engine::acquire::context::LockPart;
use crate::engine::lease::guests::SetHosts;
use crate::engine::local_queue::queued_store::QueuedStore;
use crate::engine::store_handle::SetMembers;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::Lock;
use crate::store::Name;
use crate::store::set;
use crate::store::set::{Host, Member, Rule};
use crate::types::LockKind;

/// Bounds the joined name in bytes. A lock name may have 512; the rest is room for the number of parts.
const MAX_JOINED_NAME_BYTES: usize = 480;

impl Host for ClientInner {
    fn refuse_if_closed(&self) -> Result<()> {
        Self::refuse_if_closed(self)
    }
}

/// Makes one lock that consists of several.
pub(crate) fn lock_of_all<L: Borrow<Lock>>(
    core: &Arc<ClientInner>,
    locks: impl IntoIterator<Item = L>,
) -> Result<Lock> {
    let mut parts = parts_of(locks)?;
    if parts.is_empty() {
        return Err(
            Error::new(ErrorKind::InvalidOptions).because("a multi lock needs at least one lock")
        );
    }
    // A common order avoids collisions between sets that overlap. Correctness does not depend on it: Redisson and
    // others use other orders.
    parts.sort_by(|a, b| a.name.cmp(&b.name));
    // The same lock twice counts once; otherwise the set would wait for itself.
    let mut known = std::collections::HashSet::new();
    parts.retain(|part| known.insert(identity(part)));
    let mut identities: Vec<String> = known.into_iter().collect();
    identities.sort_unstable();
    let name = name_of(parts.iter().map(|part| &part.name))?;
    let of_set = set_members(core, &parts);
    let members = parts.iter().map(|LockPart { context, name }| {
        let host: Arc<dyn Host> = Arc::clone(&context.core) as _;
        Member::new(
            context.store.sides().clone(),
            Some(name.clone()),
            name.as_str().to_owned(),
            Some(host),
        )
    });
    let store = set::open(set::Plan {
        rule: Rule::All,
        members: members.collect(),
        timers: core.timers.clone(),
        background: core.steward.background.clone(),
        response_timeout: core.settings.response_timeout.max(of_set.slowest),
    });
    let store = QueuedStore::of_set(
        store,
        &format!("all of {}", identities.join(" ")),
        of_set,
        core.timers.clock(),
    );
    Ok(Lock::in_set(Arc::clone(core), store, name, parts))
}

/// The locks in this order, and in the place of an inner multi lock its parts.
fn parts_of<L: Borrow<Lock>>(locks: impl IntoIterator<Item = L>) -> Result<Vec<LockPart>> {
    let mut parts = Vec::new();
    for lock in locks {
        let lock = lock.borrow();
        if let Some(reason) = no_part(lock.kind) {
            return Err(Error::new(ErrorKind::Unsupported)
                .on_lock(lock.name())
                .because(reason));
        }
        let name = lock.checked_name()?;
        // We take the parts of an inner multi lock, and not the inner one as a whole: otherwise a lock that is in both
        // would be acquired once and released twice, and the second release would find it lost.
        match &lock.context.parts {
            Some(inner) => parts.extend(inner.iter().cloned()),
            None => parts.push(LockPart {
                context: lock.context.copy(),
                name,
            }),
        }
    }
    Ok(parts)
}

/// What the set needs to know of its parts.
fn set_members(core: &Arc<ClientInner>, parts: &[LockPart]) -> SetMembers {
    let contexts = || parts.iter().map(|part| &part.context);
    let connect_within = contexts().map(|context| context.connect_within());
    let slowest = contexts().map(|context| context.response_timeout());
    SetMembers {
        hosts: hosts(core, parts),
        needed: parts.len(),
        connect_within: connect_within.max().unwrap_or_default(),
        slowest: slowest.max().unwrap_or_default(),
        healths: contexts()
            .map(|context| Arc::clone(context.store.health()))
            .collect(),
    }
}

/// The clients of the parts, each once, without the client of the set. A hold needs all of them. A `RedLock` belongs to its
/// first client, and needs those of its other servers too.
fn hosts(core: &Arc<ClientInner>, parts: &[LockPart]) -> SetHosts {
    let own = &core.steward.guests;
    let mut others = SetHosts::new();
    for LockPart { context, .. } in parts {
        let of_servers = context.store.hosts().into_iter().flatten();
        for host in std::iter::once(&context.core.steward.guests).chain(of_servers) {
            let is_own = Arc::ptr_eq(own, host);
            if !is_own && !others.iter().any(|known| Arc::ptr_eq(known, host)) {
                others.push(Arc::clone(host));
            }
        }
    }
    others
}

/// Why a lock of this kind cannot be part of a set.
fn no_part(kind: LockKind) -> Option<&'static str> {
    if kind.is_read_write() {
        Some("a read-write lock cannot be part of a multi lock; acquire it separately")
    } else if kind.is_fair() {
        Some("a part of a multi lock has no queue; use a lock that is not fair")
    } else if kind.is_spin() {
        Some("a multi lock waits in its own way; use `lock` for its parts")
    } else {
        None
    }
}

/// Identifies a lock across clients and stores. Two locks with the same identity are one lock.
fn identity(LockPart { context, name }: &LockPart) -> String {
    let client = context.core.mint.client();
    format!("{:?}", (client.as_str(), context.store.set(), name))
}

/// The name of the whole set in messages: the parts joined by `+`, cut to `MAX_JOINED_NAME_BYTES`.
fn name_of<'a>(names: impl ExactSizeIterator<Item = &'a Name>) -> Result<Name> {
    let count = names.len();
    let all: Vec<&str> = names.map(Name::as_str).collect();
    let mut text = all.join("+");
    if text.len() > MAX_JOINED_NAME_BYTES {
        let at = (0..=MAX_JOINED_NAME_BYTES)
            .rev()
            .find(|at| text.is_char_boundary(*at));
        text = format!("{}…({count} parts)", &text[..at.unwrap_or(0)]);
    }
    Name::new(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_locks_that_wait_as_a_set_does_are_parts() {
        for kind in LockKind::ALL {
            let why = if kind.is_read_write() {
                Some("read-write lock")
            } else if kind.is_fair() {
                Some("has no queue")
            } else if kind.is_spin() {
                Some("in its own way")
            } else {
                None
            };
            let reason = no_part(kind);
            assert_eq!(reason.is_some(), why.is_some(), "{kind:?}");
            let told = reason.unwrap_or_default();
            assert!(told.contains(why.unwrap_or_default()), "{kind:?}: {told}");
        }
    }

    #[test]
    fn the_name_of_a_set_is_cut_between_two_characters() {
        let joined = |last: &str| {
            let names = [&*"x".repeat(240), last].map(|name| Name::new(name).unwrap());
            name_of(names.iter()).unwrap().as_str().to_owned()
        };
        let whole = joined(&"y".repeat(239));
        assert_eq!((whole.len(), whole.matches('+').count()), (480, 1));
        assert!(whole.ends_with("yy"), "{whole}");
        let cut = joined(&"y".repeat(240));
        assert_eq!(
            cut,
            format!("{}+{}…(2 parts)", "x".repeat(240), "y".repeat(239))
        );
        let cut = joined(&"ü".repeat(120));
        assert_eq!(
            cut,
            format!("{}+{}…(2 parts)", "x".repeat(240), "ü".repeat(119))
        );
    }
}
