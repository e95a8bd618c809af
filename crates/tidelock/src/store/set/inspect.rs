//! Inspects, lists, force-releases and diagnoses a set.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;

use crate::error::{Error, Result};
use crate::snapshot::{ClientInfo, Finding, Holder, Mode, Snapshot};
use crate::store::set::errors::{kind_of, kind_of_change, of_part, of_parts};
use crate::store::set::shared::{Rule, Shared, Side};
use crate::store::{ClientId, Name, Page};

/// Reports a holder that holds enough of the set to block others: any part of a multi lock, or a majority.
pub(crate) async fn inspect(set: &Shared, name: &Name) -> Result<Snapshot> {
    let asked = set
        .members
        .iter()
        .map(|member| member.store.front.inspect(member.name(name)));
    let (mut seen, mut failed) = (Vec::new(), Vec::new());
    for (part, answer) in join_all(asked).await.into_iter().enumerate() {
        match answer {
            Ok(snapshot) => seen.push(snapshot),
            Err(error) => failed.push((part, error)),
        }
    }
    if seen.len() < set.needed() {
        return Err(together(set, failed));
    }
    Ok(merge(name, &seen, in_the_way(set)))
}

/// How many members one holder must hold to block everybody else.
fn in_the_way(set: &Shared) -> usize {
    match set.rule {
        Rule::All => 1,
        Rule::Majority(_) => set.needed(),
    }
}

/// An owner, and whether it writes: a writer may read as well, and counts as two holders then.
type SeenHold<'s> = (&'s str, bool);

fn merge(name: &Name, seen: &[Snapshot], enough: usize) -> Snapshot {
    let mut whole = Snapshot::free(name.as_str());
    whole.waiters = seen.iter().filter_map(|one| one.waiters).max();
    let mut found: BTreeMap<SeenHold<'_>, (Holder, Vec<Option<Duration>>)> = BTreeMap::new();
    for one in seen {
        for holder in &one.holders {
            let known = found
                .entry((&holder.owner, holder.mode == Mode::Write))
                .or_insert_with(|| (holder.clone(), Vec::new()));
            known.0.holds = known.0.holds.max(holder.holds);
            known.0.client = known.0.client.take().or_else(|| holder.client.clone());
            known.1.push(one.expires_in);
        }
    }
    for (holder, mut left) in found.into_values() {
        if left.len() < enough {
            continue;
        }
        // A holder blocks others until so many of its leases have ended that fewer than `enough` are left.
        left.sort_by_key(|left| left.unwrap_or(Duration::MAX));
        whole.expires_in = whole.expires_in.max(left[left.len() - enough]);
        whole.holders.push(holder);
    }
    whole
}

/// Frees the lock at every member. Returns whether enough members were held to block others. With `seen`, each member decides
/// by itself. A part that one of the seen holders has left behind is freed even if somebody else has the set by now.
pub(crate) async fn force_release(
    set: &Shared,
    name: &Name,
    seen: Option<&Snapshot>,
) -> Result<bool> {
    let asked = set
        .members
        .iter()
        .map(|member| member.store.front.force_release(member.name(name), seen));
    let (mut held, mut failed) = (0, Vec::new());
    for (part, answer) in join_all(asked).await.into_iter().enumerate() {
        match answer {
            Ok(one) => held += usize::from(one),
            Err(error) => failed.push((part, error)),
        }
    }
    if failed.is_empty() {
        Ok(held >= in_the_way(set))
    } else {
        let kind = kind_of_change(held, failed.iter().map(|(_, error)| error));
        Err(of_parts(set, kind, failed))
    }
}

/// The names that enough members hold. There is only one page, because the cursors of all members do not fit into
/// one.
pub(crate) async fn list(set: &Shared, pattern: &str) -> Result<Page> {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    let mut failed = Vec::new();
    for part in 0..set.members.len() {
        match list_of(set, part, pattern).await {
            Ok(names) => {
                for name in names {
                    *found.entry(name).or_default() += 1;
                }
            }
            Err(error) => failed.push((part, error)),
        }
    }
    if set.members.len() - failed.len() < set.needed() {
        return Err(together(set, failed));
    }
    let held = found
        .into_iter()
        .filter(|(_, count)| *count >= set.needed());
    let names = held.map(|(name, _)| name).collect();
    Ok(Page { names, next: None })
}

async fn list_of(
    set: &Shared,
    part: usize,
    pattern: &str,
) -> Result<std::collections::BTreeSet<String>> {
    let (mut names, mut cursor) = (std::collections::BTreeSet::new(), None::<String>);
    loop {
        let page = set
            .member(part, Side::Front)
            .list(pattern, cursor.as_deref())
            .await?;
        names.extend(page.names);
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(names),
        }
    }
}

pub(crate) async fn announce(
    set: &Shared,
    client: &ClientId,
    info: Option<&ClientInfo>,
) -> Result<()> {
    for part in 0..set.members.len() {
        let told = set.member(part, Side::Back).announce(client, info);
        told.await.map_err(|error| of_part(set, part, error))?;
    }
    Ok(())
}

/// Collects the findings of all members.
pub(crate) async fn diagnose(set: &Shared) -> Result<Vec<Finding>> {
    let mut all = Vec::new();
    for (part, member) in set.members.iter().enumerate() {
        let findings = member.store.front.diagnose().await;
        for mut finding in findings.map_err(|error| of_part(set, part, error))? {
            finding.subject = format!("{}: {}", member.label, finding.subject);
            all.push(finding);
        }
    }
    Ok(all)
}

fn together(set: &Shared, failed: Vec<(usize, Error)>) -> Error {
    let kind = kind_of(failed.iter().map(|(_, error)| error));
    of_parts(set, kind, failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "testing")]
    use crate::store::set::member::Member;
    #[cfg(feature = "testing")]
    use crate::store::set::tests::scripted::{empty, env, patient, quorum, set_of, ticket};
    #[cfg(feature = "testing")]
    use crate::store::{Attempt, LockKind, Ticket};
    #[cfg(feature = "testing")]
    use crate::types::OwnerMint;

    fn seen(mode: Mode, owner: &str, expires_in: u64) -> Snapshot {
        let mut seen = Snapshot::free("stock");
        seen.expires_in = Some(Duration::from_secs(expires_in));
        seen.holders = vec![Holder {
            mode,
            ..Holder::new(owner, 1)
        }];
        seen
    }

    /// It blocks others until so many of its leases have ended that fewer than enough are left.
    #[test]
    fn a_holder_of_too_few_members_is_none() {
        let seen = [
            seen(Mode::Write, "a", 5),
            seen(Mode::Write, "a", 3),
            seen(Mode::Write, "b", 9),
        ];
        let name = Name::new("stock").unwrap();
        let whole = merge(&name, &seen, 2);
        let owners: Vec<&str> = whole.holders.iter().map(|it| &*it.owner).collect();
        assert_eq!(owners, ["a"]);
        assert_eq!(whole.expires_in, Some(Duration::from_secs(3)));
        assert_eq!(merge(&name, &seen, 1).holders.len(), 2);
        assert!(merge(&name, &seen, 3).holders.is_empty());
    }

    #[test]
    fn a_reader_and_a_writer_of_one_owner_are_two_holders() {
        let seen = [seen(Mode::Write, "a", 5), seen(Mode::Read, "a", 5)];
        let whole = merge(&Name::new("stock").unwrap(), &seen, 1);
        assert_eq!(whole.holders.len(), 2);
    }

    /// One of three members is not enough to block anybody.
    #[cfg(feature = "testing")]
    #[tokio::test]
    async fn what_one_of_three_members_holds_is_no_lock_of_the_set() {
        let env = env();
        let members = [(); 3].map(|()| Member::new(empty(&env), None, "a".to_owned(), None));
        let set = set_of(Rule::Majority(quorum()), &env, members.into_iter());
        let ticket = ticket();
        for (held, is_lock) in [(1, false), (2, true)] {
            for part in 0..held {
                let store = set.member(part, Side::Front);
                let granted = store.attempt(&patient(&ticket)).await.outcome;
                assert!(matches!(granted, Ok(Attempt::Acquired(_))));
            }
            let seen = inspect(&set, &ticket.name).await.unwrap();
            assert_eq!(seen.is_locked(), is_lock);
            let names = list(&set, "*").await.unwrap().names;
            assert_eq!(!names.is_empty(), is_lock);
            let freed = force_release(&set, &ticket.name, None).await.unwrap();
            assert_eq!(freed, is_lock);
        }
    }

    /// All of them are asked, and each finding names the member that it is about.
    #[cfg(feature = "testing")]
    #[tokio::test]
    async fn every_member_is_told_of_the_client_and_diagnosed() {
        let env = env();
        let labels = ["first", "second"];
        let members = labels.map(|label| Member::new(empty(&env), None, label.to_owned(), None));
        let set = set_of(Rule::All, &env, members.into_iter());
        let (mint, name) = (OwnerMint::new(), Name::new("stock").unwrap());
        let info = ClientInfo::new("web-1", 7, "shop", std::time::SystemTime::now());
        let client = mint.client();
        announce(&set, client, Some(&info)).await.unwrap();
        let ticket = Ticket {
            kind: LockKind::Mutex,
            name,
            owner: mint.fresh(),
        };
        for part in 0..2 {
            let store = set.member(part, Side::Front);
            store.attempt(&patient(&ticket)).await.outcome.unwrap();
            let seen = store.inspect(&ticket.name).await.unwrap();
            let told = seen.holders[0].client.as_ref().map(|client| client.pid);
            assert_eq!(told, Some(7));
        }
        let found = diagnose(&set).await.unwrap();
        for label in labels {
            let of_it = |finding: &Finding| finding.subject.starts_with(label);
            assert!(found.iter().any(of_it), "{found:?}");
        }
    }
}
