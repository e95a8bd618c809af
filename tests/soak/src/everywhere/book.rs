//! The claims of one name, and the rules that they break.

use std::collections::{HashMap, VecDeque};

use crate::record::{COUNT, Kind, MARKS_STAY, MEMBERS, Mode, PERMITS, Record, What};

#[cfg(test)]
mod tests;

/// Job slots are never run again after this many others, so we forget them.
const SLOTS: usize = 1000;

/// A process: its place, and its number in that place.
pub(super) type Process = (u16, u32);

pub(super) fn process(record: &Record) -> Process {
    (record.slot, record.generation)
}

/// What a record shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// A rule is broken.
    Broken(String),
    /// Something that is counted.
    Note(&'static str),
}

pub(super) const TOKENS: &str = "tokens, each larger than all before";
pub(super) const LATE: &str = "late holders refused by their token";
pub(super) const RAN_OUT: &str = "claims that had run out when the next holder came";
pub(super) const TOO_LATE: &str = "job slots that were called so late that their mark had ended";
pub(super) const AGAIN: &str = "job slots that were run again after a failure";

#[derive(Debug)]
struct Member {
    record: Record,
    /// The other members that were there at the same time as this one.
    seen: u32,
}

#[derive(Debug)]
struct Run {
    record: Record,
    succeeded: bool,
}

#[derive(Debug, Default)]
pub(super) struct Book {
    claims: Vec<Record>,
    last_token: Option<Record>,
    members: Vec<Member>,
    /// The runs of a job by slot, and the slots in their order.
    runs: HashMap<u64, Run>,
    slots: VecDeque<u64>,
    /// How often the latch may have been counted down in this turn of its name, and how often it was set.
    turn: u64,
    counts: u64,
    sets: u64,
}

fn same(one: &Record, other: &Record) -> bool {
    process(one) == process(other) && one.claim == other.claim
}

fn shown(record: &Record) -> String {
    format!(
        "{} by process {}.{}, claim {}, token {}, from {} until {}",
        record.kind.title(),
        record.slot,
        record.generation,
        record.claim,
        record.token,
        record.from,
        record.until
    )
}

impl Book {
    /// `excused`: a process of this store was killed less than a lease ago, so that the store may count it still.
    pub(super) fn take(&mut self, record: &Record, excused: bool) -> Vec<Finding> {
        match record.what {
            What::Enters => self.enter(record, excused),
            What::Keeps | What::Downgrades | What::Upgrades => self.change(record),
            What::Leaves | What::Loses => {
                self.claims.retain(|claim| !same(claim, record));
                Vec::new()
            }
            What::Comes => {
                self.come(record);
                Vec::new()
            }
            What::Goes => {
                self.members.retain(|member| !same(&member.record, record));
                Vec::new()
            }
            What::Counts => {
                self.turn_to(record.mark);
                self.counts += u64::from(record.amount);
                Vec::new()
            }
            What::Sets => {
                self.turn_to(record.mark);
                self.set()
            }
            What::Succeeds => self.succeed(record),
            What::Fails => {
                // The library drops a job whose lock is lost, so the job itself may not have told that it left.
                self.claims.retain(|claim| !same(claim, record));
                self.runs.retain(|_, run| !same(&run.record, record));
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// The process claims nothing any more. Returns what it claimed.
    pub(super) fn void(&mut self, dead: Process) -> Vec<String> {
        let theirs = |claim: &Record| process(claim) == dead;
        let claims = self.claims.iter().filter(|claim| theirs(claim));
        let claimed = claims.map(shown).collect();
        self.claims.retain(|claim| !theirs(claim));
        self.members.retain(|member| !theirs(&member.record));
        self.runs
            .retain(|_, run| run.succeeded || !theirs(&run.record));
        claimed
    }

    fn enter(&mut self, record: &Record, excused: bool) -> Vec<Finding> {
        let mut found = self.check(record);
        self.claims.push(*record);
        if record.token > 0 {
            found.push(self.token(record));
        }
        match record.kind {
            Kind::Once => found.extend(self.run(record)),
            Kind::Barrier if !excused => found.extend(self.together(record)),
            _ => {}
        }
        found
    }

    fn change(&mut self, record: &Record) -> Vec<Finding> {
        let Some(at) = self.claims.iter().position(|claim| same(claim, record)) else {
            return Vec::new();
        };
        let mut claim = self.claims[at];
        match record.what {
            What::Downgrades if claim.kind == Kind::Write => claim.mode = Mode::Reads,
            What::Downgrades => claim.mode = Mode::ReadsUpgradeably,
            What::Upgrades => claim.mode = Mode::Alone,
            _ => {}
        }
        if record.until > 0 && record.what != What::Downgrades {
            claim.from = record.from;
            claim.until = record.until;
        }
        self.claims[at] = claim;
        self.check(&claim)
    }

    /// Compares a claim with all others that still stand.
    fn check(&self, record: &Record) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut permits = record.amount;
        for other in self.claims.iter().filter(|other| !same(other, record)) {
            if other.until <= record.from || record.until <= other.from {
                found.push(Finding::Note(RAN_OUT));
                continue;
            }
            if record.mode == Mode::Permits {
                permits += other.amount;
            } else if !shares(record.mode, other.mode) {
                found.push(Finding::Broken(format!(
                    "two at once: {}; and {}",
                    shown(record),
                    shown(other)
                )));
            }
        }
        let all = if record.kind == Kind::Barrier {
            MEMBERS
        } else {
            PERMITS
        };
        if record.mode == Mode::Permits && permits > all {
            found.push(Finding::Broken(format!(
                "{permits} of {all} permits are out: {}",
                shown(record)
            )));
        }
        found
    }

    fn token(&mut self, record: &Record) -> Finding {
        if let Some(last) = &self.last_token
            && record.token <= last.token
        {
            // A process that stood still between the grant and its entry comes late, and its guard knows.
            let late = record.until <= record.from || last.from >= record.until;
            if late && record.token < last.token {
                return Finding::Note(LATE);
            }
            return Finding::Broken(format!(
                "a token that has not grown: {}; after {}",
                shown(record),
                shown(last)
            ));
        }
        self.last_token = Some(*record);
        Finding::Note(TOKENS)
    }

    fn come(&mut self, record: &Record) {
        let others = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        for member in &mut self.members {
            member.seen += 1;
        }
        self.members.push(Member {
            record: *record,
            seen: others,
        });
    }

    /// A member may only enter if enough others have come. Those may have gone again by now.
    fn together(&self, record: &Record) -> Option<Finding> {
        let own = |member: &&Member| same(&member.record, record);
        let seen = self.members.iter().find(own).map_or(0, |own| own.seen);
        (seen + 1 < MEMBERS).then(|| {
            Finding::Broken(format!(
                "a member entered a barrier of {MEMBERS} with {seen} others: {}",
                shown(record)
            ))
        })
    }

    /// Begins at zero with a new turn. A record of an earlier turn is late: what it tells has an effect on the latch of this turn.
    fn turn_to(&mut self, turn: u64) {
        if turn > self.turn {
            (self.turn, self.counts, self.sets) = (turn, 0, 0);
        }
    }

    /// A count-down is told before its request, and a new count after its reply. So all counts but the last must have
    /// been counted down by then.
    fn set(&mut self) -> Vec<Finding> {
        let needed = self.sets * u64::from(COUNT);
        self.sets += 1;
        if self.counts >= needed {
            return Vec::new();
        }
        let told = format!(
            "a latch was open after {} of {needed} count-downs",
            self.counts
        );
        vec![Finding::Broken(told)]
    }

    fn run(&mut self, record: &Record) -> Option<Finding> {
        let run = Run {
            record: *record,
            succeeded: false,
        };
        let before = self.runs.insert(record.mark, run);
        let Some(before) = before else {
            self.slots.push_back(record.mark);
            if self.slots.len() > SLOTS
                && let Some(oldest) = self.slots.pop_front()
            {
                self.runs.remove(&oldest);
            }
            return None;
        };
        let ended = before.record.from + MARKS_STAY * 1_000_000;
        Some(if before.succeeded && record.from >= ended {
            Finding::Note(TOO_LATE)
        } else if before.succeeded {
            Finding::Broken(format!(
                "a slot was run twice: {}; after {}",
                shown(record),
                shown(&before.record)
            ))
        } else {
            Finding::Note(AGAIN)
        })
    }

    /// If another process has begun to run the slot since this run began, the slot was run twice.
    fn succeed(&mut self, record: &Record) -> Vec<Finding> {
        match self.runs.get_mut(&record.mark) {
            Some(run) if same(&run.record, record) => {
                run.succeeded = true;
                Vec::new()
            }
            Some(run) => vec![Finding::Broken(format!(
                "a slot was run twice: {}; beside {}",
                shown(&run.record),
                shown(record)
            ))],
            None => Vec::new(),
        }
    }
}

/// Whether two holders may have a name at the same time.
fn shares(one: Mode, other: Mode) -> bool {
    matches!(
        (one, other),
        (Mode::Reads, Mode::Reads | Mode::ReadsUpgradeably) | (Mode::ReadsUpgradeably, Mode::Reads)
    )
}
