//! The lines that describe one opened lock or process. They contain texts of the store; whoever draws them escapes them.

use crate::top::leaders::{Task, TaskRow};
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

pub(super) fn of_task(key: &str, picture: &Picture) -> Vec<String> {
    match picture.tasks.iter().find(|row| row.key() == key) {
        Some(row) => lines_of_task(row, picture),
        None => vec![
            key.to_owned(),
            "its process tells of it no more, or has ended".to_owned(),
        ],
    }
}

fn lines_of_task(row: &TaskRow, picture: &Picture) -> Vec<String> {
    let lasted = brief(row.lasted);
    let about = match &row.task {
        Task::Candidate { identity, term, .. } => {
            let term = term.map_or(String::new(), |term| format!("  term {term}"));
            format!(
                "election  {} for {lasted}{term}  as {identity}",
                row.state()
            )
        }
        Task::Job {
            slot,
            attempt,
            token,
            ..
        } => {
            let token = token.map_or("-".to_owned(), |token| token.to_string());
            let state = row.state();
            format!("job  {state} for {lasted}  slot {slot}  attempt {attempt}  token {token}")
        }
    };
    let mut lines = vec![
        row.name.clone(),
        about,
        format!("process  {}  client {}", row.who, row.client),
    ];
    let others = picture.tasks.iter().filter(|other| {
        other.name == row.name && other.kind() == row.kind() && other.client != row.client
    });
    lines.extend(others.map(|other| format!("{}  {}", other.state(), other.who)));
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
    let tasks = picture.tasks.iter();
    for row in tasks.filter(|row| row.client == process.client) {
        let (kind, state) = (row.kind(), row.state());
        lines.push(format!(
            "{kind}  {}  {state} for {}",
            row.name,
            brief(row.lasted)
        ));
    }
    lines
}
