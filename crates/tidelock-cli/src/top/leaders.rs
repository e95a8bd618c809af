//! Elections and jobs that run once, as the processes tell of them. The store is not asked for more: it would have to scan
//! all its keys to list them.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::{Value, json};
use tidelock::{FencingToken, Process};

use crate::top::picture::millis;
use crate::top::text::brief;

/// The columns of [`TaskRow::cells`].
pub(crate) const TASK_COLUMNS: [&str; 8] = [
    "name", "kind", "process", "state", "slot", "term", "attempt", "for",
];

/// Those from here on hold numbers.
pub(crate) const TASK_NUMBERS: usize = 5;

/// A candidate of an election, or a job whose slot a process ran last.
#[derive(Debug, Clone)]
pub(crate) struct TaskRow {
    pub(crate) name: String,
    /// The program with its process.
    pub(crate) who: String,
    pub(crate) client: String,
    /// Its process has told nothing for three beats.
    pub(crate) is_gone: bool,
    pub(crate) task: Task,
    /// For how long it has been so.
    pub(crate) lasted: Duration,
}

#[derive(Debug, Clone)]
pub(crate) enum Task {
    Candidate {
        identity: String,
        /// The term in which it leads. `None`: it campaigns.
        term: Option<u64>,
        /// Another candidate leads in a later term: this process has not told yet that its own is over.
        is_over: bool,
    },
    Job {
        slot: String,
        state: String,
        attempt: u64,
        token: Option<u64>,
    },
}

/// What the processes tell, by name: first who leads, then the candidates with the longest wait first. `who`: a process, as
/// it is shown.
pub(super) fn of(processes: &[Process], who: impl Fn(&Process) -> String) -> Vec<TaskRow> {
    let row = |process: &Process, name: &str, task: Task, lasted: Duration| TaskRow {
        name: name.to_owned(),
        who: who(process),
        client: process.client.clone(),
        is_gone: process.is_gone(),
        task,
        lasted,
    };
    let mut terms = HashMap::<&str, u64>::new();
    for election in processes.iter().flat_map(|process| &process.elections) {
        let newest = terms.entry(&election.name).or_default();
        *newest = election.term.unwrap_or(0).max(*newest);
    }
    let mut rows = Vec::new();
    for process in processes {
        for one in &process.elections {
            let newest = terms.get(&*one.name).copied().unwrap_or_default();
            let task = Task::Candidate {
                identity: one.identity.clone(),
                term: one.term,
                is_over: one.term.is_some_and(|term| term < newest),
            };
            rows.push(row(process, &one.name, task, one.lasted));
        }
        for one in &process.jobs {
            let task = Task::Job {
                slot: one.slot.clone(),
                state: one.state.clone(),
                attempt: one.attempt,
                token: one.token.map(FencingToken::get),
            };
            rows.push(row(process, &one.name, task, one.lasted));
        }
    }
    distinct(rows)
}

/// The rows in their order, one for each key: a client that has two candidates in one election shows the one that leads, or
/// else the one that waits longest. A viewer that finds two rows with one key would take each for what the other has become.
pub(super) fn distinct(mut rows: Vec<TaskRow>) -> Vec<TaskRow> {
    rows.sort_by(|a, b| a.place().cmp(&b.place()));
    let mut known = HashSet::new();
    rows.retain(|row| known.insert(row.key()));
    rows
}

impl TaskRow {
    /// Orders the rows.
    fn place(&self) -> impl Ord + use<'_> {
        let (is_job, leads) = match &self.task {
            Task::Candidate { term, is_over, .. } => (false, term.filter(|_| !is_over)),
            Task::Job { .. } => (true, None),
        };
        // The newest run of a job first, but the longest wait.
        let lasted = if is_job {
            (Reverse(Duration::ZERO), self.lasted)
        } else {
            (Reverse(self.lasted), Duration::ZERO)
        };
        (is_job, &self.name, Reverse(leads), lasted, &self.client)
    }

    /// No other row of a picture has it.
    pub(crate) fn key(&self) -> String {
        let kind = self.kind();
        format!("{kind} {} {}", self.client, self.name)
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self.task {
            Task::Candidate { .. } => "election",
            Task::Job { .. } => "job",
        }
    }

    /// In words.
    pub(crate) fn state(&self) -> String {
        let state = match &self.task {
            Task::Candidate { is_over: true, .. } => "has led",
            Task::Candidate { term: Some(_), .. } => "leads",
            Task::Candidate { term: None, .. } => "waits",
            Task::Job { state, .. } => state,
        };
        if self.is_gone {
            format!("{state}: process gone")
        } else {
            state.to_owned()
        }
    }

    /// Whether it leads, or runs.
    #[cfg(feature = "screen")]
    pub(crate) fn is_active(&self) -> bool {
        match &self.task {
            Task::Candidate { term, is_over, .. } => term.is_some() && !is_over,
            Task::Job { state, .. } => state == "running",
        }
    }

    /// Not escaped.
    pub(crate) fn cells(&self) -> [String; 8] {
        let number = |number: Option<u64>| number.map_or("-".to_owned(), |it| it.to_string());
        let (slot, term, attempt) = match &self.task {
            Task::Candidate { term, .. } => ("-", *term, None),
            Task::Job {
                slot,
                attempt,
                token,
                ..
            } => (&**slot, *token, Some(*attempt)),
        };
        let who = match &self.task {
            Task::Candidate { identity, .. } => format!("{identity}: {}", self.who),
            Task::Job { .. } => self.who.clone(),
        };
        [
            self.name.clone(),
            self.kind().to_owned(),
            who,
            self.state(),
            slot.to_owned(),
            number(term),
            number(attempt),
            brief(self.lasted),
        ]
    }

    pub(super) fn as_json(&self) -> Value {
        let mut row = json!({
            "name": self.name,
            "who": self.who,
            "client": self.client,
            "gone": self.is_gone,
            "for_ms": millis(self.lasted),
        });
        match &self.task {
            Task::Candidate {
                identity,
                term,
                is_over,
            } => {
                row["identity"] = json!(identity);
                row["term"] = json!(term);
                row["leads"] = json!(term.is_some() && !is_over);
            }
            Task::Job {
                slot,
                state,
                attempt,
                token,
            } => {
                row["slot"] = json!(slot);
                row["state"] = json!(state);
                row["attempt"] = json!(attempt);
                row["token"] = json!(token);
            }
        }
        row
    }

    /// From a recording.
    pub(super) fn of_json(row: &Value) -> Option<Self> {
        let text = |key: &str| row[key].as_str().map(str::to_owned);
        let term = row["term"].as_u64();
        let task = match text("identity") {
            Some(identity) => Task::Candidate {
                identity,
                term,
                is_over: term.is_some() && !row["leads"].as_bool()?,
            },
            None => Task::Job {
                slot: text("slot")?,
                state: text("state")?,
                attempt: row["attempt"].as_u64()?,
                token: row["token"].as_u64(),
            },
        };
        Some(Self {
            name: text("name")?,
            who: text("who")?,
            client: text("client")?,
            is_gone: row["gone"].as_bool()?,
            task,
            lasted: Duration::from_millis(row["for_ms"].as_u64()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::sample::picture;

    /// Each call of `client.election(name)` makes a candidate of its own, and a record that was read may repeat one.
    #[test]
    fn a_client_with_two_candidates_has_one_row() {
        let tasks = picture().tasks;
        let [leader, other, job, ..] = &tasks[..] else {
            unreachable!();
        };
        let mut again = other.clone();
        again.client.clone_from(&leader.client);
        let mut former = leader.clone();
        former.task = Task::Candidate {
            identity: "web-3".to_owned(),
            term: Some(6),
            is_over: true,
        };
        let rows = [&again, job, &former, leader, job, other, &again];
        let rows = distinct(rows.into_iter().cloned().collect());
        let seen: Vec<_> = rows.iter().map(|row| (row.key(), row.state())).collect();
        let expected = [(leader, "leads"), (other, "waits"), (job, "done")];
        assert_eq!(
            seen,
            expected.map(|(row, state)| (row.key(), state.to_owned()))
        );
    }
}
