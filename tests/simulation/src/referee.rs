//! Checks every step and records the first violation.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidelock::FencingToken;
use tokio::time::Instant;

use crate::Outcome;

/// One grant. Grants are numbered in the order in which their holders learn of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn(usize);

/// Longer than an operator needs to free a lock.
const LONG: Duration = Duration::from_secs(3600);

/// The state of one lock.
#[derive(Debug, Default)]
struct Known {
    /// The number of grants so far; `newest` is the number of the one that holds the lock.
    turns: usize,
    newest: usize,
    token: Option<FencingToken>,
    /// Set when an operator frees the lock: until this instant, holders may not have learned of it. That includes a
    /// client that learns only later of a grant from before.
    forced_until: Option<Instant>,
    /// The slots of a job that were marked as done.
    done: BTreeSet<String>,
    /// How many tasks of each client campaign.
    campaigns: BTreeMap<usize, usize>,
    named: Option<Successor>,
}

/// The client that a leader has named: until this instant nobody else may lead, unless it stops to campaign.
#[derive(Debug, Clone, Copy)]
struct Successor {
    client: usize,
    until: Instant,
}

impl Known {
    fn is_forced(&self) -> bool {
        self.forced_until
            .is_some_and(|until| Instant::now() < until)
    }
}

/// Checks mutual exclusion as the holders see it. All run on one clock and one thread, and each grant is reported to
/// the referee as soon as its holder learns of it. So nobody may act on an older grant once a newer one has been
/// reported.
#[derive(Debug)]
pub(crate) struct Referee {
    start: Instant,
    known: RefCell<BTreeMap<String, Known>>,
    log: RefCell<Vec<String>>,
    verdict: RefCell<Option<String>>,
    outcome: RefCell<Outcome>,
}

impl Referee {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            known: RefCell::default(),
            log: RefCell::default(),
            verdict: RefCell::default(),
            outcome: RefCell::default(),
        }
    }

    pub(crate) fn note(&self, what: impl std::fmt::Display) {
        let at = self.start.elapsed().as_secs_f64();
        self.log.borrow_mut().push(format!("{at:>10.4}  {what}"));
    }

    /// Records a violation. Only the first one is kept as the result.
    pub(crate) fn blame(&self, why: String) {
        self.note(&why);
        self.verdict.borrow_mut().get_or_insert(why);
    }

    pub(crate) fn granted(&self, lock: &str, who: &str, token: Option<FencingToken>) -> Turn {
        self.outcome.borrow_mut().grants += 1;
        let mut all = self.known.borrow_mut();
        let known = all.entry(lock.to_owned()).or_default();
        known.turns += 1;
        let turn = Turn(known.turns);
        // An operator may have freed a lock whose owner learns only now of its grant, or whose holder hands it off
        // before it learns of the forced release. Such a grant carries an old token and does not become the newest.
        let late = known.is_forced();
        let known_token = known.token;
        if !(late && token.is_some() && token <= known_token) {
            known.newest = known.turns;
        }
        known.token = token.max(known.token);
        drop(all);
        self.note(format_args!("{who} holds {lock}, turn {}", turn.0));
        if token.is_some() && token <= known_token && !late {
            self.blame(format!(
                "{who} was given token {token:?} of {lock} after {known_token:?}"
            ));
        }
        turn
    }

    /// An attempt of a job's slot begins. Nobody may begin one of a slot that has been run.
    pub(crate) fn begun(&self, job: &str, who: &str, slot: &str) {
        let all = self.known.borrow();
        let is_done = all.get(job).is_some_and(|known| known.done.contains(slot));
        drop(all);
        if is_done {
            self.blame(format!("{who} runs {slot} of {job}, which is done"));
        }
    }

    /// A task of the client begins to campaign.
    pub(crate) fn campaigns(&self, election: &str, client: usize) {
        let mut all = self.known.borrow_mut();
        let known = all.entry(election.to_owned()).or_default();
        *known.campaigns.entry(client).or_default() += 1;
    }

    /// A task of the client has been elected or has given up.
    pub(crate) fn ends_campaign(&self, election: &str, client: usize) {
        let mut all = self.known.borrow_mut();
        let known = all.entry(election.to_owned()).or_default();
        let left = known.campaigns.entry(client).or_default();
        *left = left.saturating_sub(1);
        if *left == 0 && known.named.is_some_and(|named| named.client == client) {
            known.named = None;
        }
    }

    /// A leader is about to transfer its leadership. `within`: how long nobody else may lead.
    pub(crate) fn names(&self, election: &str, client: usize, within: Duration) {
        let mut all = self.known.borrow_mut();
        let known = all.entry(election.to_owned()).or_default();
        let campaigns = known.campaigns.get(&client).is_some_and(|tasks| *tasks > 0);
        let until = Instant::now() + within;
        known.named = campaigns.then_some(Successor { client, until });
    }

    /// The transfer failed: its leader leads on.
    pub(crate) fn names_nobody(&self, election: &str) {
        let mut all = self.known.borrow_mut();
        all.entry(election.to_owned()).or_default().named = None;
    }

    /// A task of the client leads.
    pub(crate) fn elected(&self, election: &str, client: usize) {
        let mut all = self.known.borrow_mut();
        let named = all.entry(election.to_owned()).or_default().named.take();
        drop(all);
        let Some(named) = named else {
            return;
        };
        if named.client == client {
            self.outcome.borrow_mut().transfers += 1;
        } else if Instant::now() < named.until {
            let named = named.client;
            self.blame(format!(
                "{client} leads {election}, and {named} was named and waits"
            ));
        }
    }

    /// The store has confirmed that the slot has been run.
    pub(crate) fn done(&self, job: &str, slot: String) {
        let mut all = self.known.borrow_mut();
        all.entry(job.to_owned()).or_default().done.insert(slot);
    }

    /// An operator begins to free the lock. Some servers of a set may have done so long before the others.
    pub(crate) fn begins_to_force(&self, lock: &str) {
        let mut all = self.known.borrow_mut();
        all.entry(lock.to_owned()).or_default().forced_until = Some(Instant::now() + LONG);
    }

    /// An operator has freed the lock. Its holder learns of that within this time.
    pub(crate) fn forced(&self, lock: &str, within: Duration, answer: &tidelock::Result<bool>) {
        let mut all = self.known.borrow_mut();
        all.entry(lock.to_owned()).or_default().forced_until = Some(Instant::now() + within);
        drop(all);
        self.note(format_args!("an operator frees {lock}: {answer:?}"));
    }

    /// A holder does something that only a holder may do.
    pub(crate) fn act(&self, lock: &str, who: &str, turn: Turn) {
        self.outcome.borrow_mut().acts += 1;
        let (newest, not_told) = {
            let all = self.known.borrow();
            all.get(lock)
                .map_or((0, false), |known| (known.newest, known.is_forced()))
        };
        if turn.0 != newest && !not_told {
            self.blame(format!(
                "two holders at once: {who} acts on turn {} of {lock}, and turn {newest} has been given",
                turn.0
            ));
        }
    }

    pub(crate) fn lost(&self, lock: &str, who: &str, why: impl std::fmt::Debug) {
        self.outcome.borrow_mut().losses += 1;
        self.note(format_args!("{who} has lost {lock}: {why:?}"));
    }

    pub(crate) fn finish(self) -> (Outcome, Vec<String>, Option<String>) {
        (
            self.outcome.into_inner(),
            self.log.into_inner(),
            self.verdict.into_inner(),
        )
    }
}
