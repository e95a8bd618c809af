//! Takes a picture of a store.

use std::collections::{BTreeMap, HashSet};
use std::time::{Instant, SystemTime};

use futures_util::{StreamExt, TryStreamExt, stream};
use tidelock::{AwaitedLock, Client, ErrorKind, Holder, Process, Snapshot};

use crate::exit::Outcome;
use crate::inspect::{is_of_the_lock, kind_of, program_of};
use crate::top::acquire_times::LastMinute;
use crate::top::leaders;
use crate::top::picture::{HolderCell, LockRow, Picture, ProcessRow, WaiterCell};

/// Bounds how many locks of processes that are gone are looked at.
const MOST_ORPHANS: usize = 50;

/// How many of them are looked at at the same time.
const AT_ONCE: usize = 16;

/// Asks the store. What the user may not read is left out.
pub(super) async fn look(
    client: &Client,
    prefix: &str,
    times: &mut LastMinute,
) -> Outcome<Picture> {
    let begun = Instant::now();
    let processes = match client.processes().await {
        Err(error) if error.kind() == ErrorKind::Refused => Vec::new(),
        processes => processes?,
    };
    let latency = begun.elapsed();
    let acquire_times = times.note(&processes, tokio::time::Instant::now());
    let awaited = client.awaited().await?;
    let seen: HashSet<&str> = awaited.iter().map(|lock| &*lock.snapshot.name).collect();
    let mut rows: Vec<LockRow> = awaited
        .iter()
        .map(|lock| contended(lock, &processes))
        .collect();
    let mut orphans = orphans(client, prefix, &processes, &seen)
        .await?
        .into_iter();
    let mut held = BTreeMap::<&str, LockRow>::new();
    for process in &processes {
        for hold in &process.holds {
            if seen.contains(&*hold.name) {
                continue;
            }
            let mut row = LockRow {
                name: hold.name.clone(),
                kind: hold.kind.clone(),
                held_for: Some(hold.held_for),
                token: hold.token.map(tidelock::FencingToken::get),
                ..LockRow::default()
            };
            if process.is_gone() {
                match orphans.next() {
                    Some(Some(seen)) => row.expires_in = seen.expires_in,
                    _ => continue,
                }
            }
            let holder = HolderCell {
                who: who(process),
                owner: None,
                is_gone: process.is_gone(),
            };
            let of_name = held.entry(&hold.name).or_insert(row);
            of_name.holders.push(holder);
        }
    }
    let mut held: Vec<LockRow> = held.into_values().collect();
    held.sort_by_key(|row| std::cmp::Reverse(row.held_for));
    rows.extend(held);
    Ok(Picture {
        at: SystemTime::now(),
        latency,
        acquire_times,
        share: None,
        locks: rows,
        processes: processes.iter().map(process_row).collect(),
        tasks: leaders::of(&processes, who),
        scan: None,
    })
}

/// The locks of processes that are gone, in the order of their holds, as far as they are looked at. `known`: those that
/// were looked at already.
async fn orphans(
    client: &Client,
    prefix: &str,
    processes: &[Process],
    known: &HashSet<&str>,
) -> Outcome<Vec<Option<Snapshot>>> {
    let gone = processes.iter().filter(|process| process.is_gone());
    let holds = gone.flat_map(|process| process.holds.iter().map(move |hold| (process, hold)));
    let looks = holds
        .filter(|(_, hold)| !known.contains(&*hold.name))
        .take(MOST_ORPHANS)
        .map(|(process, hold)| left_behind(client, prefix, process, &hold.name));
    let looks: Vec<_> = looks.collect();
    stream::iter(looks).buffered(AT_ONCE).try_collect().await
}

/// A lock that a process held which is gone. `None`: it holds it no more, or the lock has another prefix.
async fn left_behind(
    client: &Client,
    prefix: &str,
    process: &Process,
    name: &str,
) -> Outcome<Option<Snapshot>> {
    // The names in a record include the prefix.
    let Some(own) = name.strip_prefix(prefix) else {
        return Ok(None);
    };
    let seen = match client.lock(own).inspect().await {
        // An error of this lock only: anybody may have written its name into a record.
        Err(error) if is_of_the_lock(error.kind()) => return Ok(None),
        seen => seen?,
    };
    let is_held = seen.holders.iter().any(|holder| is_of(process, holder));
    Ok(is_held.then_some(seen))
}

fn is_of(process: &Process, holder: &Holder) -> bool {
    holder.owner.split(':').next() == Some(&*process.client)
}

fn contended(lock: &AwaitedLock, processes: &[Process]) -> LockRow {
    let seen = &lock.snapshot;
    LockRow {
        name: seen.name.clone(),
        kind: kind(seen),
        holders: seen
            .holders
            .iter()
            .map(|one| holder(one, processes))
            .collect(),
        held_for: lock.held_for,
        expires_in: seen.expires_in,
        token: seen.token.map(tidelock::FencingToken::get),
        waiters: lock.waiters,
        is_lower_bound: lock.is_lower_bound,
        longest: lock.longest,
        waiting: lock
            .processes
            .iter()
            .map(|one| WaiterCell {
                who: place(&program_of(&one.info), one.info.pid, &one.info.host),
                client: one.client.clone(),
                waiters: one.waiters,
                longest: one.longest,
            })
            .collect(),
        seen_ago: None,
    }
}

/// A lock of which only the store knows.
pub(super) fn held_row(seen: &Snapshot, processes: &[ProcessRow]) -> LockRow {
    let holder = |holder: &Holder| {
        let client = holder.owner.split(':').next().unwrap_or_default();
        let process = processes.iter().find(|process| process.client == client);
        let who = match (process, &holder.client) {
            (Some(process), _) => process.who.clone(),
            (None, Some(info)) => place(&program_of(info), info.pid, &info.host),
            (None, None) => holder.owner.clone(),
        };
        HolderCell {
            who,
            owner: Some(holder.owner.clone()),
            is_gone: process.is_some_and(|process| process.is_gone),
        }
    };
    LockRow {
        name: seen.name.clone(),
        kind: kind(seen),
        holders: seen.holders.iter().map(holder).collect(),
        expires_in: seen.expires_in,
        token: seen.token.map(tidelock::FencingToken::get),
        waiters: seen.waiters.unwrap_or(0),
        ..LockRow::default()
    }
}

fn kind(seen: &Snapshot) -> String {
    let kind = kind_of(seen).unwrap_or(if seen.latch.is_some() { "latch" } else { "-" });
    match kind {
        "lock" if !seen.queue.is_empty() => "fair".to_owned(),
        kind => kind.to_owned(),
    }
}

fn holder(seen: &Holder, processes: &[Process]) -> HolderCell {
    let process = processes.iter().find(|process| is_of(process, seen));
    let who = match (process, &seen.client) {
        (Some(process), _) => who(process),
        (None, Some(info)) => place(&program_of(info), info.pid, &info.host),
        (None, None) => seen.owner.clone(),
    };
    HolderCell {
        who,
        owner: Some(seen.owner.clone()),
        is_gone: process.is_some_and(Process::is_gone),
    }
}

fn who(process: &Process) -> String {
    let program = program_of(&process.info);
    let program = match &process.version {
        Some(version) => format!("{program} {version}"),
        None => program,
    };
    place(&program, process.info.pid, &process.info.host)
}

fn place(program: &str, pid: u32, host: &str) -> String {
    format!("{program} ({pid} on {host})")
}

fn process_row(process: &Process) -> ProcessRow {
    ProcessRow {
        who: who(process),
        client: process.client.clone(),
        since: process.info.since,
        age: process.age,
        is_gone: process.is_gone(),
        latency: process.latency,
        held: process.held,
        waiting: process.waiting,
        acquired: process.acquired,
        timed_out: process.timed_out,
        failed: process.failed,
        lost: process.lost,
    }
}
