//! What a process tells of itself, and the line of text in which the store keeps it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::processes::process::{
    BEAT, Process, ProcessElection, ProcessHold, ProcessJob, ProcessWait, WaitBucket,
};
use crate::snapshot::{ClientInfo, millis_since_epoch, since_epoch};
use crate::store::percent;
use crate::types::FencingToken;

/// The first word of a stored record.
const VERSION: &str = "process1";

/// Bounds the holds of a record, its waits, its elections and its jobs, each.
pub(super) const MOST_LISTED: usize = 20;

/// Bounds the text of a record that we write, in bytes: names may have 512 bytes each. Holds, waits and so on that do
/// not fit are left out.
const LONGEST: usize = 16 * 1024;

/// Bounds the text of a record that we read. Anybody may have written it.
const LONGEST_READ: usize = 64 * 1024;

/// The line that the store keeps. The client is its slot.
pub(super) fn to_line(process: &Process) -> String {
    let mut line = VERSION.to_owned();
    let info = &process.info;
    put(&mut line, "host", &info.host);
    put(&mut line, "pid", &info.pid.to_string());
    put(&mut line, "program", &info.program);
    if let Some(user) = &info.user {
        put(&mut line, "user", user);
    }
    if let Some(version) = &process.version {
        put(&mut line, "version", version);
    }
    for (key, value) in [
        ("since", millis_since_epoch(info.since)),
        ("written", millis_since_epoch(process.written)),
        ("beat", process.beat.as_millis()),
        ("latency", process.latency.as_micros()),
        ("held", process.held.into()),
        ("waiting", process.waiting.into()),
        ("acquired", process.acquired.into()),
        ("timed_out", process.timed_out.into()),
        ("failed", process.failed.into()),
        ("lost", process.lost.into()),
    ] {
        put(&mut line, key, &value.to_string());
    }
    if !process.acquire_times.is_empty() {
        put(&mut line, "acquire_times", &buckets(&process.acquire_times));
    }
    for (key, value) in listed(process) {
        let fits = line.len();
        put(&mut line, key, &value);
        if line.len() > LONGEST {
            line.truncate(fits);
        }
    }
    line
}

/// `500:12,1000:3,300000000+:1`: microseconds, and how many calls.
fn buckets(buckets: &[WaitBucket]) -> String {
    let buckets = buckets.iter().take(MOST_LISTED).map(|bucket| {
        let longer = if bucket.is_longer { "+" } else { "" };
        format!("{}{longer}:{}", bucket.bound.as_micros(), bucket.calls)
    });
    buckets.collect::<Vec<_>>().join(",")
}

/// What a record has up to twenty of.
fn listed(process: &Process) -> impl Iterator<Item = (&'static str, String)> {
    let holds = process.holds.iter().map(|hold| {
        let token = hold.token.map(|token| token.to_string());
        let (kind, token) = (&hold.kind, token.unwrap_or_default());
        let held_for = hold.held_for.as_millis();
        ("hold", format!("{kind},{token},{held_for},{}", hold.name))
    });
    let waits = process.waits.iter().map(|wait| {
        let (kind, waiters) = (&wait.kind, wait.waiters);
        let longest = wait.longest.as_millis();
        ("wait", format!("{kind},{waiters},{longest},{}", wait.name))
    });
    let elections = process.elections.iter().map(|election| {
        let state = if election.term.is_some() {
            "leads"
        } else {
            "waits"
        };
        let term = election.term.map(|term| term.to_string());
        let (term, lasted) = (term.unwrap_or_default(), election.lasted.as_millis());
        let identity = without_commas(&election.identity);
        let name = &election.name;
        (
            "election",
            format!("{state},{term},{lasted},{identity},{name}"),
        )
    });
    let jobs = process.jobs.iter().map(|job| {
        let token = job.token.map(|token| token.to_string());
        let (token, lasted) = (token.unwrap_or_default(), job.lasted.as_millis());
        let (attempt, slot) = (job.attempt, without_commas(&job.slot));
        let (state, name) = (&job.state, &job.name);
        (
            "job",
            format!("{state},{token},{lasted},{attempt},{slot},{name}"),
        )
    });
    // The elections first: they are few, and there is no other way to list them.
    elections.chain(holds).chain(waits).chain(jobs)
}

/// A text that stands before a comma. The whole value is encoded once more, as every value is.
fn without_commas(text: &str) -> String {
    text.replace('%', "%25").replace(',', "%2c")
}

fn put(line: &mut String, key: &str, value: &str) {
    line.push(' ');
    line.push_str(key);
    line.push('=');
    percent::encode_word(line, value);
}

/// Reads a line of the store. Words of later versions are passed over. `None`: it is no record.
pub(super) fn from_line(client: &str, line: &str, now: SystemTime) -> Option<Process> {
    if line.len() > LONGEST_READ {
        return None;
    }
    let mut words = line.split(' ');
    if words.next()? != VERSION {
        return None;
    }
    let mut process = Process::unknown(client);
    for word in words {
        let (key, value) = word.split_once('=')?;
        let value = percent::decode(value)?;
        let number = || value.parse::<u64>().ok();
        match key {
            "host" => process.info.host = value,
            "pid" => process.info.pid = value.parse().ok()?,
            "program" => process.info.program = value,
            "user" => process.info = process.info.run_by(Some(value)),
            "version" => process.version = Some(value),
            "since" => process.info.since = since_epoch(number()?),
            "written" => process.written = since_epoch(number()?),
            "beat" => process.beat = Duration::from_millis(number()?),
            "latency" => process.latency = Duration::from_micros(number()?),
            "held" => process.held = number()?,
            "waiting" => process.waiting = number()?,
            "acquired" => process.acquired = number()?,
            "acquire_times" => process.acquire_times = buckets_of(&value)?,
            "timed_out" => process.timed_out = number()?,
            "failed" => process.failed = number()?,
            "lost" => process.lost = number()?,
            "hold" if process.holds.len() < MOST_LISTED => process.holds.push(hold_of(&value)?),
            "wait" if process.waits.len() < MOST_LISTED => process.waits.push(wait_of(&value)?),
            "election" if process.elections.len() < MOST_LISTED => {
                process.elections.push(election_of(&value)?);
            }
            "job" if process.jobs.len() < MOST_LISTED => process.jobs.push(job_of(&value)?),
            _ => {}
        }
    }
    let age = now.duration_since(process.written).unwrap_or_default();
    process.age = age;
    for hold in &mut process.holds {
        hold.held_for = hold.held_for.saturating_add(age);
    }
    for wait in &mut process.waits {
        wait.longest = wait.longest.saturating_add(age);
    }
    for election in &mut process.elections {
        election.lasted = election.lasted.saturating_add(age);
    }
    for job in &mut process.jobs {
        job.lasted = job.lasted.saturating_add(age);
    }
    Some(process)
}

/// Kind, a number that may be missing, milliseconds, and the name, which may have commas.
fn parts(value: &str) -> Option<(String, Option<u64>, Duration, String)> {
    let mut parts = value.splitn(4, ',');
    let kind = parts.next()?.to_owned();
    let number = match parts.next()? {
        "" => None,
        number => Some(number.parse().ok()?),
    };
    let lasted = Duration::from_millis(parts.next()?.parse().ok()?);
    Some((kind, number, lasted, parts.next()?.to_owned()))
}

fn buckets_of(value: &str) -> Option<Vec<WaitBucket>> {
    let buckets = value.split(',').take(MOST_LISTED).map(|bucket| {
        let (bound, calls) = bucket.split_once(':')?;
        let longer = bound.strip_suffix('+');
        Some(WaitBucket {
            bound: Duration::from_micros(longer.unwrap_or(bound).parse().ok()?),
            is_longer: longer.is_some(),
            calls: calls.parse().ok()?,
        })
    });
    buckets.collect()
}

fn hold_of(value: &str) -> Option<ProcessHold> {
    let (kind, token, held_for, name) = parts(value)?;
    Some(ProcessHold {
        name,
        kind,
        token: token.map(FencingToken::new),
        held_for,
    })
}

fn wait_of(value: &str) -> Option<ProcessWait> {
    let (kind, waiters, longest, name) = parts(value)?;
    Some(ProcessWait {
        name,
        kind,
        waiters: waiters?,
        longest,
    })
}

fn election_of(value: &str) -> Option<ProcessElection> {
    let (_, term, lasted, rest) = parts(value)?;
    let (identity, name) = rest.split_once(',')?;
    Some(ProcessElection {
        name: name.to_owned(),
        identity: percent::decode(identity)?,
        term,
        lasted,
    })
}

fn job_of(value: &str) -> Option<ProcessJob> {
    let (state, token, lasted, rest) = parts(value)?;
    let mut parts = rest.splitn(3, ',');
    let attempt = parts.next()?.parse().ok()?;
    let slot = percent::decode(parts.next()?)?;
    Some(ProcessJob {
        name: parts.next()?.to_owned(),
        slot,
        state,
        attempt,
        token: token.map(FencingToken::new),
        lasted,
    })
}

impl Process {
    fn unknown(client: &str) -> Self {
        Self {
            client: client.to_owned(),
            info: ClientInfo::new("", 0, "", UNIX_EPOCH),
            version: None,
            written: UNIX_EPOCH,
            age: Duration::ZERO,
            beat: BEAT,
            latency: Duration::ZERO,
            held: 0,
            waiting: 0,
            acquired: 0,
            acquire_times: Vec::new(),
            timed_out: 0,
            failed: 0,
            lost: 0,
            holds: Vec::new(),
            waits: Vec::new(),
            elections: Vec::new(),
            jobs: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
