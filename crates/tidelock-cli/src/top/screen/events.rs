//! What has changed from one picture to the next.

use std::collections::{HashMap, VecDeque};
use std::time::SystemTime;

use crate::top::leaders::{Task, TaskRow};
use crate::top::picture::{HolderCell, LockRow, Picture, ProcessRow};

/// Bounds what is kept.
const MOST: usize = 1000;

const NOBODY_WAITS: &str = "nobody waits any more";

/// The changes that this viewer has seen, the newest first. What happens between two pictures and is over with the second one
/// is not seen.
#[derive(Debug, Default)]
pub(super) struct Events(VecDeque<Event>);

#[derive(Debug)]
struct Event {
    at: SystemTime,
    /// A lock, a process, an election or a job.
    what: String,
    change: String,
}

impl Events {
    pub(super) fn note(&mut self, before: &Picture, now: &Picture) {
        let mut changes = Vec::new();
        of_locks(before, now, &mut changes);
        of_processes(before, now, &mut changes);
        of_tasks(before, now, &mut changes);
        for (what, change) in changes {
            let (at, what) = (now.at, what.to_owned());
            self.0.push_front(Event { at, what, change });
        }
        self.0.truncate(MOST);
    }

    /// Those until then that contain a text, line by line. Not escaped.
    pub(super) fn lines(&self, until: SystemTime, contains: impl Fn(&str) -> bool) -> Vec<String> {
        let events = self.0.iter().filter(|event| event.at <= until);
        let lines = events.map(|event| {
            let at = humantime::format_rfc3339_seconds(event.at);
            format!("{at}  {}  {}", event.what, event.change)
        });
        lines.filter(|line| contains(line)).collect()
    }
}

type Changes<'p> = Vec<(&'p str, String)>;

fn of_locks<'p>(before: &'p Picture, now: &'p Picture, changes: &mut Changes<'p>) {
    let by_name = |picture: &'p Picture| -> HashMap<&'p str, &'p LockRow> {
        let locks = picture.locks.iter();
        locks.map(|lock| (&*lock.name, lock)).collect()
    };
    let (former, newer) = (by_name(before), by_name(now));
    for lock in &now.locks {
        let former = former.get(&*lock.name).copied();
        if lock.seen_ago.is_some() {
            // When its holder came is not known. But nobody waits for it now: else this look would have seen it.
            if former.is_some_and(|former| former.seen_ago.is_none() && former.waiters > 0) {
                changes.push((&lock.name, NOBODY_WAITS.to_owned()));
            }
            continue;
        }
        let held = former.map_or(&[][..], |former| &former.holders);
        for holder in &lock.holders {
            match held.iter().find(|one| is_same(one, holder)) {
                None => changes.push((&lock.name, format!("held by {}", holder.who))),
                Some(one) if holder.is_gone && !one.is_gone => {
                    changes.push((&lock.name, format!("its process is gone: {}", holder.who)));
                }
                Some(_) => {}
            }
        }
        if !held.is_empty() && lock.holders.is_empty() {
            changes.push((&lock.name, "free".to_owned()));
        }
        let waited = former.map_or(0, |former| former.waiters);
        if waited == 0 && lock.waiters > 0 {
            changes.push((&lock.name, format!("awaited by {}", lock.waiters)));
        } else if waited > 0 && lock.waiters == 0 {
            changes.push((&lock.name, NOBODY_WAITS.to_owned()));
        }
    }
    let ended = before
        .locks
        .iter()
        .filter(|lock| lock.seen_ago.is_none() && !newer.contains_key(&*lock.name));
    for lock in ended {
        changes.push((
            &lock.name,
            "neither held nor awaited as far as known".to_owned(),
        ));
    }
}

/// One picture may know the owner, and the next one only what the process tells.
fn is_same(one: &HolderCell, other: &HolderCell) -> bool {
    match (&one.owner, &other.owner) {
        (Some(one), Some(other)) => one == other,
        _ => one.who == other.who,
    }
}

fn of_processes<'p>(before: &'p Picture, now: &'p Picture, changes: &mut Changes<'p>) {
    let find = |picture: &'p Picture, client: &str| -> Option<&'p ProcessRow> {
        picture.processes.iter().find(|one| one.client == client)
    };
    for process in &now.processes {
        let Some(former) = find(before, &process.client) else {
            changes.push((&process.who, "uses the store".to_owned()));
            continue;
        };
        if process.is_gone && !former.is_gone {
            changes.push((&process.who, "tells nothing any more".to_owned()));
        } else if former.is_gone && !process.is_gone {
            changes.push((&process.who, "tells again".to_owned()));
        }
        if let lost @ 1.. = process.lost.saturating_sub(former.lost) {
            changes.push((&process.who, format!("has lost {lost}")));
        }
    }
    let left = before
        .processes
        .iter()
        .filter(|one| find(now, &one.client).is_none());
    for process in left {
        changes.push((&process.who, "has left, or its record has ended".to_owned()));
    }
}

/// Notes each change of a leader, and each slot that has begun or ended.
fn of_tasks<'p>(before: &'p Picture, now: &'p Picture, changes: &mut Changes<'p>) {
    let former: HashMap<String, &TaskRow> =
        before.tasks.iter().map(|row| (row.key(), row)).collect();
    for row in &now.tasks {
        let former = former.get(&row.key());
        let (was, is) = (former.map(|former| told_of(former)), told_of(row));
        if let Some(change) = is.filter(|is| was.flatten().as_ref() != Some(is)) {
            changes.push((&row.name, format!("{change}: {}", row.who)));
        }
    }
}

/// `None`: to wait is nothing new.
fn told_of(row: &TaskRow) -> Option<String> {
    match &row.task {
        Task::Candidate { term, is_over, .. } => {
            let term = term.filter(|_| !is_over)?;
            Some(format!("led in term {term}"))
        }
        Task::Job { slot, state, .. } => Some(format!("slot {slot} {state}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::sample::picture;

    fn changes(change: impl Fn(&mut Picture)) -> Vec<String> {
        let (before, mut now) = (picture(), picture());
        change(&mut now);
        let mut events = Events::default();
        events.note(&before, &now);
        let lines = events.lines(now.at, |_| true);
        let lines = lines
            .iter()
            .map(|line| line.split_once("  ").unwrap().1.to_owned());
        lines.collect()
    }

    #[test]
    fn each_change_is_an_event() {
        assert!(changes(|_| ()).is_empty());
        let said = changes(|now| now.locks[0].holders[0].owner = Some("b:1".to_owned()));
        assert_eq!(said, ["order:stock:42  held by shop 1.9 (4121 on web-3)"]);
        let said = changes(|now| now.locks[0].holders.clear());
        assert_eq!(said, ["order:stock:42  free"]);
        let said = changes(|now| now.locks[0].holders[0].is_gone = true);
        assert_eq!(
            said,
            ["order:stock:42  its process is gone: shop 1.9 (4121 on web-3)"]
        );
        let said = changes(|now| now.locks[0].waiters = 0);
        assert_eq!(said, ["order:stock:42  nobody waits any more"]);
        let said = changes(|now| now.locks[2].waiters = 2);
        assert_eq!(said, ["report  awaited by 2"]);
        let said = changes(|now| drop(now.locks.remove(0)));
        assert_eq!(
            said,
            ["order:stock:42  neither held nor awaited as far as known"]
        );
        let said = changes(|now| now.processes[1].lost += 3);
        assert_eq!(said, ["shop 1.9 (4121 on web-3)  has lost 3"]);
        let said = changes(|now| now.processes[1].is_gone = true);
        assert_eq!(said, ["shop 1.9 (4121 on web-3)  tells nothing any more"]);
        let said = changes(|now| drop(now.processes.remove(1)));
        assert_eq!(
            said,
            ["shop 1.9 (4121 on web-3)  has left, or its record has ended"]
        );
    }

    #[test]
    fn a_new_leader_and_the_end_of_a_job_are_events() {
        use crate::top::leaders::Task;

        let said = changes(|now| {
            let [leader, candidate, ..] = &mut now.tasks[..] else {
                unreachable!();
            };
            std::mem::swap(&mut leader.task, &mut candidate.task);
            if let Task::Candidate { term, .. } = &mut candidate.task {
                *term = Some(8);
            }
        });
        assert_eq!(said, ["billing  led in term 8: shop 1.9 (88 on web-1)"]);
        let said = changes(|now| {
            if let Task::Job { state, .. } = &mut now.tasks[3].task {
                "failed".clone_into(state);
            }
        });
        assert_eq!(said, ["report  slot nov failed: job (77 on job-1)"]);
    }

    #[test]
    fn what_a_scan_comes_by_is_no_event() {
        let (mut without, mut with) = (picture(), picture());
        without.locks.remove(2);
        with.locks[2].seen_ago = Some(std::time::Duration::from_secs(7));
        let mut events = Events::default();
        events.note(&without, &with);
        events.note(&with, &without);
        let lines = events.lines(with.at, |_| true);
        assert!(lines.is_empty(), "{lines:?}");
        let said = changes(|now| now.locks[0].seen_ago = with.locks[2].seen_ago);
        assert_eq!(said, ["order:stock:42  nobody waits any more"]);
    }

    #[test]
    fn a_process_that_tells_of_its_hold_is_the_same_holder() {
        let said = changes(|now| now.locks[0].holders[0].owner = None);
        assert!(said.is_empty(), "{said:?}");
    }

    #[test]
    fn only_so_many_events_are_kept() {
        let (free, held) = (
            Picture {
                locks: Vec::new(),
                ..picture()
            },
            picture(),
        );
        let mut events = Events::default();
        for _ in 0..MOST {
            events.note(&free, &held);
            events.note(&held, &free);
        }
        assert_eq!(events.lines(held.at, |_| true).len(), MOST);
    }
}
