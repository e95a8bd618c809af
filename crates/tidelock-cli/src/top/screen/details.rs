//! The lines that describe one opened lock or process. They contain texts of the store; whoever draws them escapes them.

use crate::top::picture::{LockRow, Picture, ProcessRow};
use crate::top::text::{OTHERS, brief, known};

pub(super) fn of_lock(name: &str, picture: &Picture) -> Vec<String> {
    match picture.locks.iter().find(|lock| lock.name == name) {
        Some(lock) => lines_of_lock(lock),
        None => vec![
            name.to_owned(),
            "nobody is known to hold it or to wait for it any more".to_owned(),
        ],
    }
}

fn lines_of_lock(lock: &LockRow) -> Vec<String> {
    let token = lock.token.map_or("-".to_owned(), |token| token.to_string());
    let mut lines = vec![
        lock.name.clone(),
        format!(
            "kind {}  held {}  lease left {}  token {token}",
            lock.kind,
            known(lock.held_for),
            known(lock.expires_in),
        ),
    ];
    if lock.holders.is_empty() {
        lines.push("free".to_owned());
    }
    for holder in &lock.holders {
        let gone = if holder.is_gone { "  process gone" } else { "" };
        let owner = match &holder.owner {
            Some(owner) if *owner != holder.who => format!("  owner {owner}"),
            _ => String::new(),
        };
        lines.push(format!("holds  {}{owner}{gone}", holder.who));
    }
    for one in &lock.waiting {
        lines.push(format!(
            "waits  {}  {} for up to {}",
            one.who,
            one.waiters,
            brief(one.longest)
        ));
    }
    if lock.is_lower_bound {
        lines.push(format!("waits  {OTHERS}"));
    }
    lines
}

pub(super) fn of_process(client: &str, picture: &Picture) -> Vec<String> {
    match picture.processes.iter().find(|one| one.client == client) {
        Some(process) => lines_of_process(process, picture),
        None => vec![
            format!("client {client}"),
            "it has ended, or its record has".to_owned(),
        ],
    }
}

fn lines_of_process(process: &ProcessRow, picture: &Picture) -> Vec<String> {
    let told = brief(process.age);
    let mut lines = vec![
        process.who.clone(),
        format!(
            "client {}  connected since {}  {}",
            process.client,
            humantime::format_rfc3339_seconds(process.since),
            if process.is_gone {
                format!("gone for {told}")
            } else {
                format!("told {told} ago")
            },
        ),
        format!(
            "held {}  waiting {}  acquired {}  timed out {}  failed {}  lost {}  store answers in {}",
            process.held,
            process.waiting,
            process.acquired,
            process.timed_out,
            process.failed,
            process.lost,
            brief(process.latency),
        ),
    ];
    for lock in &picture.locks {
        if lock.holders.iter().any(|holder| holder.is_of(process)) {
            lines.push(format!("holds  {}  {}", lock.name, known(lock.held_for)));
        }
        if let Some(one) = lock.waiting.iter().find(|one| one.client == process.client) {
            lines.push(format!(
                "waits  {}  {} for up to {}",
                lock.name,
                one.waiters,
                brief(one.longest)
            ));
        }
    }
    lines
}
