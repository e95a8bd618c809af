//! Shows a candidate to others: keeps its mark in the store while it campaigns or leads.
//!
//! It is one of the marks of `NAME%candidates`, in a slot that is the id of the client, so it has one writer. It is
//! written before the first attempt for the lock: a reader that finds this client as the holder finds its identity too.
//! It is written again after each lease, and expires after three leases.
//!
//! Every write runs in the background and stores the mark that is due when it runs. So writes may come in any order
//! and may be repeated: the newest mark remains, or none. A write that comes to its turn after another one has done what it
//! was asked for writes nothing, so those that queue up in an outage are few requests when the store is back.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use crate::election::mark::CandidateMark;
use crate::engine::lease::status::HoldStatus;
use crate::engine::runtime::sync::Mutex;
use crate::engine::runtime::timers::Timers;
use crate::error::{Error, ErrorKind, Result};
use crate::fenced::FencedGuard;
use crate::lock::FencedLock;
use crate::store::{LockKind, MarkChange, Marks, Name};

/// How long a mark that is not needed any more is kept. The store cannot delete a mark, but it can let it expire, and may
/// remove an empty one at once.
pub(super) const EXPIRES_NOW: Duration = Duration::from_millis(1);

/// How many leases a mark is kept for.
const LEASES_KEPT: u32 = 3;

/// Bounds the tries of a write. Another election of the same client and name may write the same mark.
pub(super) const TRIES: u32 = 4;

/// The candidate of an election in this process. The clones of the election share it.
#[derive(Debug)]
pub(super) struct Announcer {
    pub(super) lock: FencedLock,
    pub(super) identity: String,
    pub(super) priority: i32,
    due: Mutex<CandidateState>,
    /// Locked during a write: one write at a time.
    last_write: tokio::sync::Mutex<LastWrite>,
}

/// What has come of the writes so far. Writes have numbers, in the order in which they were asked for.
#[derive(Debug, Default)]
struct LastWrite {
    /// The text that the store has, as far as we know.
    text: Option<String>,
    /// All writes up to this one were asked for before the mark was made that the store has, so they are done too.
    done: u64,
    /// All writes up to this one were asked for before the write began that failed last. Each of them has waited for at least
    /// as long as that one tried.
    failed: u64,
    /// Why it failed: the store could not be reached for a lease. `None`: no write has failed since one that did not.
    failure: Option<Error>,
}

impl LastWrite {
    /// The outcome of the write with this number, if one that began later has settled it.
    fn of(&self, number: u64) -> Option<Result<()>> {
        if number <= self.done {
            return Some(Ok(()));
        }
        let failure = self.failure.as_ref().filter(|_| number <= self.failed);
        failure.map(|error| Err(error.retold()))
    }
}

/// The contents of the mark that is due.
#[derive(Debug, Default)]
struct CandidateState {
    /// The number of campaigns and leaderships under way. Zero: no mark is due.
    active: usize,
    /// How often `active` has become one.
    entries: u64,
    /// `None`: the store has not told the time yet.
    since: Option<SystemTime>,
    leading: Option<LeaderHold>,
    /// How many writes were asked for.
    asked: u64,
    /// Its number among the candidates that this process tells operators of.
    told: Option<u64>,
}

#[derive(Debug)]
struct LeaderHold {
    status: Arc<HoldStatus>,
    owner: String,
    term: u64,
}

/// A campaign or a leadership that is under way: the candidate is shown as long as one exists.
#[derive(Debug)]
pub(super) struct Candidacy(pub(super) Arc<Announcer>);

impl Drop for Candidacy {
    fn drop(&mut self) {
        let mut due = self.0.due.lock();
        due.active -= 1;
        if due.active == 0 {
            due.since = None;
            if let Some(id) = due.told.take() {
                self.0.lock.context.core.own_candidates.end(id);
            }
            drop(due);
            self.0.write_in_background();
        }
    }
}

impl Announcer {
    pub(super) fn new(lock: FencedLock, identity: String, priority: i32) -> Arc<Self> {
        Arc::new(Self {
            lock,
            identity,
            priority,
            due: Mutex::default(),
            last_write: tokio::sync::Mutex::default(),
        })
    }

    /// Refuses an election that the store cannot hold, before any traffic.
    pub(super) fn check(&self) -> Result<()> {
        let context = &self.lock.context;
        context.core.refuse_if_closed()?;
        context.store.need(LockKind::Fenced)?;
        context.store.need(self.lock.kind)?;
        self.marks().map(drop)
    }

    pub(super) fn marks(&self) -> Result<&dyn Marks> {
        let marks = self.lock.context.store.front().extensions().marks;
        marks.ok_or_else(|| {
            Error::new(ErrorKind::Unsupported)
                .because("this store keeps no marks, so it cannot show who leads")
        })
    }

    /// Begins a campaign. The candidate is shown when this returns.
    pub(super) async fn enter(self: &Arc<Self>) -> Result<Candidacy> {
        let core = &self.lock.context.core;
        // The thread that writes the mark does not exist in a forked process.
        core.refuse_after_fork()?;
        let background = &core.steward.background;
        let name = self.lock.checked_name()?;
        let candidacy = Candidacy(Arc::clone(self));
        let entry = {
            let mut due = self.due.lock();
            due.active += 1;
            due.entries += u64::from(due.active == 1);
            if due.told.is_none() {
                let now = core.timers.now();
                due.told = Some(core.own_candidates.begin(&name, &self.identity, now));
            }
            (due.active == 1).then_some(due.entries)
        };
        if let Some(entry) = entry {
            let timers = core.timers.clone();
            background.spawn(refresh(Arc::downgrade(self), entry, timers));
        }
        // In the background, because a caller that leaves would leave a write half done.
        match background.run(self.write_counted()).await {
            Some(written) => written.map(|()| candidacy),
            None => Err(Error::new(ErrorKind::Closed)),
        }
    }

    /// This process leads for as long as the lock of this guard is held.
    pub(super) fn begin_term(self: &Arc<Self>, guard: &FencedGuard) {
        let mut due = self.due.lock();
        due.since = None;
        due.leading = Some(LeaderHold {
            status: Arc::clone(&guard.hold().status),
            owner: guard.owner_id(),
            term: guard.token().get(),
        });
        if let Some(id) = due.told {
            let core = &self.lock.context.core;
            let (status, term) = (&guard.hold().status, guard.token().get());
            core.own_candidates
                .lead(id, status, term, core.timers.now());
        }
        drop(due);
        self.write_in_background();
    }

    /// The leadership whose hold had this owner is over. The term does not tell two leaderships apart: a store that has lost
    /// its data may give the same one again.
    pub(super) fn end_term(self: &Arc<Self>, owner: &str) {
        let mut due = self.due.lock();
        if due.leading.as_ref().is_none_or(|led| led.owner != owner) {
            return;
        }
        due.since = None;
        due.leading = None;
        let still_campaigns = due.active > 1;
        if let Some(id) = due.told.filter(|_| still_campaigns) {
            let core = &self.lock.context.core;
            core.own_candidates.campaign(id, core.timers.now());
        }
        drop(due);
        if still_campaigns {
            // Another task of this process waits: a mark with the old term would say that it does not.
            self.write_in_background();
        }
    }

    /// Whether this process leads, by its own knowledge and clock.
    pub(super) fn is_leading(&self) -> bool {
        let due = self.due.lock();
        let leading = due.leading.as_ref();
        leading.is_some_and(|led| led.status.refusal().is_none())
    }

    fn write_in_background(self: &Arc<Self>) {
        let write = self.write_counted();
        let background = &self.lock.context.core.steward.background;
        background.spawn(async move {
            if let Err(error) = write.await {
                tracing::debug!(%error, "the mark of a candidate was not written; it is written again, or expires");
            }
        });
    }

    /// A write that `close` waits for. It counts from this call, before its task starts. Change what is due before.
    fn write_counted(self: &Arc<Self>) -> impl Future<Output = Result<()>> + Send + use<> {
        let in_flight = self.lock.context.core.steward.owned_in_flight();
        let announcer = Arc::clone(self);
        let number = {
            let mut due = self.due.lock();
            due.asked += 1;
            due.asked
        };
        async move {
            let written = announcer.write(number).await;
            drop(in_flight);
            written
        }
    }

    /// The lease of the client. `None`: the candidate has left since that entry, or the client closes.
    fn lease_of(&self, entry: u64) -> Option<Duration> {
        let core = &self.lock.context.core;
        let is_active = {
            let due = self.due.lock();
            // A candidate that has left and entered again has another task.
            due.active > 0 && due.entries == entry
        };
        (is_active && !core.steward.closed.is_set()).then_some(core.settings.lease)
    }

    /// Stores the mark that is due, or lets the stored one expire if none is.
    async fn write(&self, number: u64) -> Result<()> {
        let core = &self.lock.context.core;
        let name = self.lock.checked_name()?.of_candidates();
        let mut last = self.last_write.lock().await;
        if let Some(settled) = last.of(number) {
            return settled;
        }
        let (text, begun) = (last.text.clone(), self.asked());
        let written =
            core.through_outage(core.settings.lease, || self.write_once(&name, text.clone()));
        match written.await {
            Ok((text, done)) => {
                (last.text, last.done) = (text, done.max(last.done));
                last.failure = None;
                Ok(())
            }
            Err(error) => {
                // Any other error comes at once, and each write may have its own.
                if error.is_retryable() {
                    (last.failed, last.failure) = (begun, Some(error.retold()));
                }
                Err(error)
            }
        }
    }

    /// How many writes were asked for by now.
    fn asked(&self) -> u64 {
        self.due.lock().asked
    }

    /// Returns the text that the store has now, and the last write that it does for. 0: the text is not the one that is due.
    async fn write_once(
        &self,
        name: &Name,
        mut before: Option<String>,
    ) -> Result<(Option<String>, u64)> {
        let core = &self.lock.context.core;
        let (marks, slot) = (self.marks()?, core.mint.client().as_str());
        // We read the number before the mark. In the other order a change between the two would never be written.
        let asked = self.asked();
        let mark = self.due_mark(name).await?;
        for _ in 0..TRIES {
            let (text, keep) = match (&mark, &before) {
                (Some(mark), _) => (mark.to_text(), core.settings.lease * LEASES_KEPT),
                // Empty, because etcd keeps any other text for seconds: others would stand aside for a candidate that has left.
                (None, Some(_)) => (String::new(), EXPIRES_NOW),
                (None, None) => return Ok((None, asked)),
            };
            let change = MarkChange::unacknowledged(slot, before.as_deref(), &text, keep);
            if marks.replace(name, change).await? {
                return Ok((mark.is_some().then_some(text), asked));
            }
            // An earlier try whose reply was lost has written it, it has expired, or another election has written it.
            before = marks.read(name, slot).await?;
        }
        Ok((before, 0))
    }

    /// The mark that is due. `None`: the candidate has left.
    async fn due_mark(&self, name: &Name) -> Result<Option<CandidateMark>> {
        let needs_time = {
            let due = self.due.lock();
            due.active > 0 && due.since.is_none()
        };
        let now = if needs_time {
            Some(self.marks()?.now(name).await?)
        } else {
            None
        };
        let mut due = self.due.lock();
        // The state may have changed while we asked. The change has its own write, which comes after this one.
        due.since = due.since.or(now);
        let mark = due.since.map(|since| CandidateMark {
            identity: self.identity.clone(),
            priority: self.priority,
            since,
            led: due
                .leading
                .as_ref()
                .map(|led| (led.owner.clone(), led.term)),
        });
        Ok(mark.filter(|_| due.active > 0))
    }
}

/// Writes the mark again after each lease, until the candidate has left. It does not keep the client alive while it
/// waits.
async fn refresh(announcer: Weak<Announcer>, entry: u64, timers: Timers) {
    while let Some(lease) = announcer.upgrade().and_then(|it| it.lease_of(entry)) {
        timers.after(lease).await;
        let Some(announcer) = announcer.upgrade() else {
            return;
        };
        if announcer.lease_of(entry).is_some() {
            announcer.write_in_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;

    #[test]
    fn a_write_that_comes_to_its_turn_late_has_been_done_or_has_failed_with_another() {
        let last = LastWrite {
            text: None,
            done: 2,
            failed: 4,
            failure: Some(Error::new(ErrorKind::OutcomeUnknown)),
        };
        for number in [1, 2] {
            assert!(matches!(last.of(number), Some(Ok(()))), "{number}");
        }
        for number in [3, 4] {
            let failed = last.of(number).unwrap().unwrap_err();
            assert_eq!(failed.kind(), ErrorKind::Unavailable, "{number}");
        }
        assert!(last.of(5).is_none());
    }

    /// A mark expires after three leases. It is written again as long as the candidate leads, and not after that.
    #[tokio::test(start_paused = true)]
    async fn a_leader_is_shown_for_as_long_as_it_leads() {
        let builder = Client::builder().simulated_time();
        let client = builder.connect("memory:").await.unwrap();
        let election = client.election("billing").identity("web-1");
        let leadership = election.campaign().await.unwrap();
        let (timers, lease) = (election.timers(), election.lease());
        timers.after(lease * 20 + lease / 2).await;
        let seen = election.leader().await.unwrap().unwrap();
        assert_eq!(seen.identity.as_deref(), Some("web-1"));
        assert_eq!(seen.term, Some(leadership.term()));
        leadership.resign().await.unwrap();
        assert!(election.leader().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_forked_process_does_not_campaign_with_the_client_of_another() {
        let client = Client::connect("memory:").await.unwrap();
        let announcer = client.election("billing").announcer;
        announcer.lock.context.core.mint.fork();
        let error = announcer.enter().await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Runtime, "{error}");
    }

    /// The store has lost its data, so the next leadership has the term of the one that was lost.
    #[tokio::test]
    async fn a_lost_leadership_does_not_end_the_next_one_of_its_term() {
        let mut terms = Vec::new();
        for _ in 0..2 {
            let client = Client::connect("memory:").await.unwrap();
            terms.push(client.lock("billing").fenced().acquire().await.unwrap());
        }
        assert_eq!(terms[0].token(), terms[1].token());
        let client = Client::connect("memory:").await.unwrap();
        let announcer = client.election("billing").announcer;
        for term in &terms {
            announcer.begin_term(term);
        }
        announcer.end_term(&terms[0].owner_id());
        assert!(announcer.is_leading());
        announcer.end_term(&terms[1].owner_id());
        assert!(!announcer.is_leading());
    }
}
