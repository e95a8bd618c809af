//! Checks every step and records the first violation.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use tidelock::testing::AnyGuard;
use tidelock::{BarrierGuard, FencingToken};
use tokio::time::Instant;

use crate::Outcome;
use crate::counter::Counted;
use crate::share::{Share, Sharers};
use crate::uses::{Uses, Verdict};

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
    /// The grants without a token since an operator has freed the lock. One of them may be a hand-off of the hold that was freed, so
    /// the first that acts when all have learned of it is the newest.
    unsure: Vec<usize>,
    token: Option<FencingToken>,
    /// Set when an operator frees the lock: until this instant, holders may not have learned of it. That includes a
    /// client that learns only later of a grant from before.
    forced_until: Option<Instant>,
    /// The slots of a job that were marked as done.
    done: BTreeSet<String>,
    /// How many tasks of each client campaign.
    campaigns: BTreeMap<usize, usize>,
    named: Option<Successor>,
    /// The holders, if several may hold it at once.
    sharers: Sharers,
    /// The newest token of a writer.
    written: Option<FencingToken>,
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
    /// The members of the barrier, if the story has one.
    uses: RefCell<Uses>,
    /// The counting semaphore and the latch, if the story has them.
    pub(crate) counted: RefCell<Counted>,
    log: RefCell<Vec<String>>,
    verdict: RefCell<Option<String>>,
    outcome: RefCell<Outcome>,
}

impl Referee {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            known: RefCell::default(),
            uses: RefCell::default(),
            counted: RefCell::default(),
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
        if !late {
            known.unsure.clear();
        } else if token.is_none() {
            known.unsure.push(known.turns);
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

    /// A holder that may not be alone has learned of its grant.
    pub(crate) fn shares(&self, lock: &str, who: &str, share: Share, guard: &Rc<AnyGuard>) {
        self.outcome.borrow_mut().grants += 1;
        let token = guard.token();
        self.note(format_args!("{who} holds {lock}: {share:?}"));
        let mut all = self.known.borrow_mut();
        let known = all.entry(lock.to_owned()).or_default();
        known.sharers.add(who, share, guard);
        // A writer's token is larger than all before it, a reader's is larger than those of the writers before it.
        let newest = match share {
            Share::Writes => known.token,
            _ => known.written,
        };
        let is_old = token.is_some() && token <= newest && !known.is_forced();
        known.token = token.max(known.token);
        if share == Share::Writes {
            known.written = token.max(known.written);
        }
        drop(all);
        if is_old {
            self.blame(format!(
                "{who} was given token {token:?} of {lock} after {newest:?}"
            ));
        }
        self.act_together(lock);
    }

    /// A holder that may not be alone does something that only a holder may do.
    pub(crate) fn act_together(&self, lock: &str) {
        self.outcome.borrow_mut().acts += 1;
        let conflict = self.known.borrow().get(lock).and_then(|known| {
            let conflict = known.sharers.conflict();
            conflict.filter(|_| !known.is_forced())
        });
        if let Some(conflict) = conflict {
            self.blame(format!("two holders at once of {lock}: {conflict}"));
        }
    }

    /// A holder that may not be alone begins to give it up, or has lost it.
    pub(crate) fn unshares(&self, lock: &str, guard: &Rc<AnyGuard>) {
        let mut all = self.known.borrow_mut();
        all.entry(lock.to_owned())
            .or_default()
            .sharers
            .remove(guard);
    }

    /// A member has entered the barrier.
    pub(crate) fn enters(&self, who: &str, size: usize, guard: &Rc<BarrierGuard>) {
        self.outcome.borrow_mut().entered += 1;
        self.note(format_args!("{who} is inside"));
        let is_forced = self.is_forced(guard.name());
        let verdict = self.uses.borrow_mut().entered(who, size, guard, is_forced);
        self.judge(verdict);
    }

    /// A number was changed.
    pub(crate) fn counts(&self) {
        self.outcome.borrow_mut().counts += 1;
    }

    /// A call of this client has ended, and its caller does not know whether it has entered the barrier.
    pub(crate) fn enters_unanswered(&self, client: &str) {
        self.uses.borrow_mut().unanswered(client);
    }

    /// A member begins to leave the barrier, or has been lost.
    pub(crate) fn leaves(&self, guard: &Rc<BarrierGuard>) {
        self.uses.borrow_mut().leaves(guard);
    }

    /// A member was told that all that entered with it have left.
    pub(crate) fn all_left(&self, barrier: &str, who: &str, together: &[String]) {
        let is_forced = self.is_forced(barrier);
        let verdict = self.uses.borrow_mut().all_left(who, together, is_forced);
        self.judge(verdict);
    }

    /// The end of the story: whoever was let into the barrier knows it.
    pub(crate) fn all_members_told(&self) {
        let verdict = self.uses.borrow().all_told();
        self.judge(verdict);
    }

    fn judge(&self, verdict: Verdict) {
        if let Err(why) = verdict {
            self.blame(why);
        }
    }

    fn is_forced(&self, lock: &str) -> bool {
        self.known.borrow().get(lock).is_some_and(Known::is_forced)
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
            let mut all = self.known.borrow_mut();
            let known = all.entry(lock.to_owned()).or_default();
            let not_told = known.is_forced();
            if !not_told && std::mem::take(&mut known.unsure).contains(&turn.0) {
                known.newest = turn.0;
            }
            (known.newest, not_told)
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
