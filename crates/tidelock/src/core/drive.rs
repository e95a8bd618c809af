//! The one acquisition loop, for every store and every kind of lock.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::backend::{Ask, Attempt, Grant, Kind, Moment, Name, Ticket, Wait, Wake};
use crate::core::caller::{Asker, Caller};
use crate::core::chance;
use crate::core::hold::{Hold, Status};
use crate::core::site::Base;
use crate::core::steward::Chore;
use crate::core::table::Keep;
use crate::core::turn::Turn;
use crate::error::{Error, ErrorKind, Result};
use crate::options::{AcquireOptions, Term};

/// The loop's own state. It knows nothing of deadlines: whoever waits for it leaves.
pub(super) struct Loop {
    pub(super) base: Arc<Base>,
    pub(super) kind: Kind,
    pub(super) name: Name,
    pub(super) term: Term,
    pub(super) patience: Duration,
    pub(super) place: &'static Location<'static>,
    pub(super) options: AcquireOptions,
    pub(super) caller: Arc<Caller>,
}

impl Loop {
    /// Re-enters what the given owner holds, else acquires.
    pub(super) async fn enter(self) -> Result<Option<Arc<Hold>>> {
        let Some(owner) = &self.options.owner else {
            return self.drive().await;
        };
        let slot = owner.slot(
            self.base.core.mint.client(),
            &self.base.site,
            self.kind,
            &self.name,
        );
        // Two acquisitions of one owner would wait for each other: they take turns, and the second re-enters.
        let _turn = if self.patience.is_zero() {
            match slot.turn.try_lock() {
                Ok(turn) => turn,
                Err(_) => return Ok(None),
            }
        } else {
            slot.turn.lock().await
        };
        if let Some(hold) = slot.current() {
            return Ok(Some(hold));
        }
        let hold = self.drive().await?;
        if let Some(hold) = &hold {
            slot.put(hold);
        }
        Ok(hold)
    }

    async fn drive(&self) -> Result<Option<Arc<Hold>>> {
        // Kept until the claim has gone, and with it what has to be withdrawn.
        let mut _mark = None;
        let mut claim = Claim::new(self);
        let mut turn = Turn::default();
        let mut outage = Outage::default();
        loop {
            // Marked before it is checked: a close that is not seen here waits for this question and for what comes of it.
            _mark = Some(self.base.core.steward.mark());
            self.base.core.refuse_if_closed()?;
            let sent = self.base.core.timers.now();
            self.caller.in_flight.store(true, Ordering::SeqCst);
            let answer = self.base.site.front().attempt(&claim.ask).await;
            self.caller.in_flight.store(false, Ordering::SeqCst);
            if answer.is_ok() {
                turn.answered();
            }
            let doubt = self.base.site.front().in_doubt(&claim.ask.ticket);
            claim.unclear |= doubt;
            let answer = match answer {
                Ok(Attempt::Acquired(grant)) => self.grant(&mut claim, &grant, sent).map(Ok),
                Ok(Attempt::Held(wait)) => Ok(Err(wait)),
                Err(error) => Err(error),
            };
            let wait = match answer {
                Ok(Ok(hold)) => return Ok(Some(hold)),
                Ok(Err(wait)) => wait,
                Err(error) => {
                    claim.unclear |= error.outcome_unknown();
                    if self.caller.gone.load(Ordering::SeqCst) {
                        return Ok(None);
                    }
                    let pause = outage.pause(error, sent, self)?;
                    if doubt {
                        claim.begin_anew(self);
                    }
                    _mark = None;
                    self.rest(pause).await;
                    continue;
                }
            };
            outage = Outage::default();
            self.caller.set_trouble(None);
            if self.caller.gone.load(Ordering::SeqCst) || self.patience.is_zero() {
                return Ok(None);
            }
            if doubt {
                claim.begin_anew(self);
            }
            _mark = None;
            self.await_turn(&mut claim, &mut turn, wait).await;
        }
    }

    /// After a refusal: arms a wake if that is still to be done, else sleeps until there is a reason to ask again.
    async fn await_turn(&self, claim: &mut Claim<'_>, turn: &mut Turn, mut wait: Wait) {
        let Base { core, site } = &*self.base;
        let wakes = site.front().capabilities().wakes;
        let first = claim.ask.patience.is_zero();
        claim.ask.patience = self.patience;
        turn.take(&mut wait);
        claim.ask.armed = turn.armed().is_some();
        claim.ask.part = turn.armed().map_or(0, Wake::part);
        if first {
            self.explain_own_hold();
            if wakes && !claim.ask.armed {
                return; // ask again: with patience the store arms a wake before it decides
            }
        }
        let recheck = wait
            .recheck
            .unwrap_or(self.term.length)
            .min(core.settings.lease)
            .max(Duration::from_millis(1));
        let wake = if wakes {
            turn.sleep(recheck)
        } else {
            let polls = site.polls(&core.timers);
            Some(turn.poll(recheck, polls, self.name.as_str()))
        };
        match wake {
            Some(wake) => {
                tokio::select! {
                    biased;
                    () = wake.woken() => {}
                    () = core.closed.happened() => {}
                }
            }
            None => self.rest(recheck).await,
        }
    }

    async fn rest(&self, time: Duration) {
        tokio::select! {
            biased;
            () = self.base.core.timers.after(time) => {}
            () = self.base.core.closed.happened() => {}
        }
    }

    /// A classic mistake looks like a hang; the log tells it apart.
    fn explain_own_hold(&self) {
        // A look through all that is held is worth it only where somebody reads the log.
        if tracing::enabled!(tracing::Level::INFO)
            && let Some(held_at) = self.base.core.steward.table.place_of(&self.name)
        {
            tracing::info!(lock = %self.name, held_since = %held_at, waiting_at = %self.place, "waits for a lock that a guard of this same client holds");
        }
    }

    /// Arms the hold. Where it is of no use any more it is given back: the client has been closed, or the answer took
    /// so long that the lease proves nothing.
    fn grant<'a>(
        &'a self,
        claim: &mut Claim<'a>,
        grant: &Grant,
        sent: Moment,
    ) -> Result<Arc<Hold>> {
        let core = &self.base.core;
        let valid_until = sent + core.settings.drift.proved(self.term.length);
        let status = Status::new(valid_until, core.timers.clock());
        let status = Arc::new(status.bound(grant.bond.clone(), core.settings.drift));
        let keep = Keep {
            site: Arc::clone(&self.base.site),
            ticket: claim.ask.ticket.clone(),
            status: Arc::clone(&status),
            place: self.place,
            lease: self.term.length,
            wish: claim.ask.wish,
            unclear: claim.unclear,
            renew_at: if self.term.renewed {
                sent + self.term.length / 3
            } else {
                Moment::FAR
            },
            ends_at: self.options.max_hold.map_or(Moment::FAR, |cap| sent + cap),
        };
        let hold = Hold {
            entry: core.steward.table.insert(keep),
            base: Arc::clone(&self.base),
            ticket: claim.ask.ticket.clone(),
            token: grant.token,
            status,
            unclear: claim.unclear,
            lease: self.term.length,
            wish: claim.ask.wish,
            acknowledged: grant.acknowledged,
            disarmed: AtomicBool::new(false),
        };
        claim.settled = true;
        // After it is in the table: either this sees the close, or the close sees the hold.
        core.refuse_if_closed()?;
        if hold.is_held() {
            return Ok(Arc::new(hold));
        }
        drop(hold);
        *claim = Claim::new(self);
        Err(Error::new(ErrorKind::Unavailable)
            .because("the store answers more slowly than the lease lasts"))
    }
}

/// A ticket that may have left something in the store. Dropped unsettled, it is withdrawn.
struct Claim<'a> {
    base: &'a Base,
    ask: Ask,
    /// A request of this ticket brought no answer: it may hold the lock, or may still come to.
    unclear: bool,
    settled: bool,
}

impl<'a> Claim<'a> {
    fn new(one: &'a Loop) -> Self {
        let ticket = Ticket {
            kind: one.kind,
            name: one.name.clone(),
            owner: one.base.core.mint.fresh(),
        };
        let ask = Ask {
            ticket,
            lease: one.term.length,
            patience: Duration::ZERO,
            armed: false,
            wish: one
                .options
                .acknowledge
                .unwrap_or(one.base.core.settings.acknowledge),
            part: 0,
            asker: Asker::new(&one.caller),
        };
        Self {
            base: &one.base,
            ask,
            unclear: false,
            settled: false,
        }
    }

    /// Takes a fresh ticket, and with it withdraws the old one.
    fn begin_anew(&mut self, one: &'a Loop) {
        let mut fresh = Self::new(one);
        fresh.ask.patience = self.ask.patience;
        fresh.ask.armed = self.ask.armed;
        fresh.ask.part = self.ask.part;
        *self = fresh;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.settled && (self.unclear || self.base.site.front().capabilities().queues) {
            // Twice the lease: a request may still lie in the buffers of a server that is frozen now.
            let until =
                self.base.core.timers.now() + (self.ask.lease * 2).max(Duration::from_secs(60));
            self.base.core.steward.send(Chore::Release {
                site: Arc::clone(&self.base.site),
                ticket: self.ask.ticket.clone(),
                unclear: true,
                repeated: true,
                until,
                answer: None,
            });
        }
    }
}

/// How long the store has not answered.
#[derive(Default)]
struct Outage {
    since: Option<Moment>,
    tries: u32,
}

impl Outage {
    /// How long to pause before the next try. An error that no repetition can mend is given back, and so is an outage
    /// that has lasted for a whole lease: a waiter is not left without a word for ever.
    fn pause(&mut self, error: Error, sent: Moment, one: &Loop) -> Result<Duration> {
        let now = one.base.core.timers.now();
        let limit = if one.patience.is_zero() {
            one.base.core.settings.response_timeout
        } else {
            one.base.core.settings.lease
        };
        let since = *self.since.get_or_insert(sent);
        if !error.is_retryable() || now.since(since) >= limit {
            return Err(error);
        }
        tracing::debug!(lock = %one.name, %error, "no answer from the store; trying again");
        one.caller.set_trouble(Some(error));
        self.tries += 1;
        let step = Duration::from_millis(10 << self.tries.min(6));
        // So that the waiters of a fleet do not come back together.
        Ok(step.mul_f64(0.5 + chance::share() / 2.0))
    }
}
