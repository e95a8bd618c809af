//! The one acquisition loop, for every store and every kind of lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::backend::{Attempt, Grant, Moment, Wait, Wake};
use crate::core::caller::Caller;
use crate::core::claim::Claim;
use crate::core::entering::{Entering, Outcome};
use crate::core::hold::{Hold, Status};
use crate::core::lead::Lead;
use crate::core::line::{Joined, Lines};
use crate::core::outage::Outage;
use crate::core::seat::{Call, Place};
use crate::core::site::Base;
use crate::core::table::Keep;
use crate::core::turn::Turn;
use crate::error::{Error, ErrorKind, Result};
use crate::owner::Owner;

/// Asks for one caller. It knows nothing of deadlines: whoever waits for it leaves.
pub(super) struct Loop {
    pub(super) caller: Arc<Caller>,
}

/// What came of one question.
struct Asked {
    sent: Moment,
    /// The ticket is done for, whatever the answer is: an earlier request of it may still take effect.
    doubt: bool,
    answer: Result<Attempt>,
}

impl Loop {
    pub(super) fn of(place: &Place) -> Self {
        let caller = Arc::clone(place.caller());
        Self { caller }
    }

    /// Re-enters what the given owner holds, else acquires.
    pub(super) fn enter(self) -> Entering {
        match self.caller.options.owner.clone() {
            Some(owner) => Entering::Asks(Box::pin(self.enter_as(owner))),
            None => self.queue_up(),
        }
    }

    async fn enter_as(self, owner: Owner) -> Outcome {
        let slot = owner.slot(
            self.caller.base.core.mint.client(),
            &self.caller.base.site,
            self.caller.terms.kind,
            &self.caller.name,
        );
        // Two acquisitions of one owner would wait for each other: they take turns, and the second re-enters.
        let _turn = if self.caller.only_asks() {
            match slot.turn.try_lock() {
                Ok(turn) => turn,
                Err(_) => return Ok(None),
            }
        } else {
            slot.turn.lock().await
        };
        if let Some(hold) = slot.current() {
            return hold.shared_with(self.caller.terms.kind).map(Some);
        }
        let hold = self.queue_up().await?;
        if let Some(hold) = &hold {
            slot.put(hold);
        }
        Ok(hold)
    }

    /// Takes a place behind those of this process who wait for the same name. Who only asks, asks the store.
    ///
    /// The place is taken before a future is made: what asks the store is large, and of many who wait one asks.
    fn queue_up(self) -> Entering {
        // A store with a queue has one place for each that waits; only that one's own asking keeps it.
        let Caller { base, terms, .. } = &*self.caller;
        let stands = !self.caller.only_asks() && !base.site.queues(terms.kind);
        match base.site.lines().filter(|_| stands) {
            None => Entering::ask(self, None),
            Some(lines) => match lines.join(&self.caller, None) {
                Joined::Leads(lead) => Entering::ask(self, Some(lead)),
                Joined::Waits(place) => Entering::stand(place),
            },
        }
    }

    /// Was called. Perhaps not for the last time.
    pub(super) async fn come(self, mut call: Call, number: u64) -> Outcome {
        let Some(lines) = self.caller.base.site.lines() else {
            return self.drive(None).await;
        };
        loop {
            match call {
                Call::Lead(lead) => return Box::pin(self.drive(Some(*lead))).await,
                Call::Hold(hold) => {
                    self.caller.base.core.refuse_if_closed()?;
                    if hold.is_held() {
                        return Ok(Some(hold));
                    }
                }
                Call::Failed(error) => return Err(error),
                Call::Scout => {
                    let granted = Box::pin(self.scout(lines)).await?;
                    if granted.is_some() || self.caller.gone.load(Ordering::SeqCst) {
                        return Ok(granted);
                    }
                }
                Call::Again => {}
            }
            let place = match lines.join(&self.caller, Some(number)) {
                Joined::Leads(lead) => return Box::pin(self.drive(Some(lead))).await,
                Joined::Waits(place) => place,
            };
            self.caller.wait_in_line()?;
            call = place.await;
        }
    }

    /// Asks the store once, past whoever leads. Granted the lock, it leads.
    async fn scout(&self, lines: &Arc<Lines>) -> Outcome {
        // As in `drive`: first, so that it goes last.
        let _mark = self.caller.base.core.steward.mark();
        self.caller.base.core.refuse_if_closed()?;
        let mut claim = Claim::new(self);
        let asked = self.ask(&mut claim).await;
        match asked.answer {
            Ok(Attempt::Acquired(grant)) => {
                let (mut lead, mut turn) = (Some(lines.usurp(&self.caller.name)), Turn::default());
                self.grant(&mut claim, &grant, asked.sent, &mut lead, &mut turn)
                    .map(Some)
            }
            Ok(Attempt::Held(_)) => {
                self.caller.set_trouble(None);
                Ok(None)
            }
            Err(error) if error.is_retryable() => {
                self.caller.set_trouble(Some(error));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// One question. What it may have left in the store is noted in the claim.
    async fn ask(&self, claim: &mut Claim<'_>) -> Asked {
        let front = self.caller.base.site.front();
        let sent = self.caller.base.core.timers.now();
        self.caller.in_flight.store(true, Ordering::SeqCst);
        let answer = front.attempt(&claim.ask).await;
        self.caller.in_flight.store(false, Ordering::SeqCst);
        let doubt = front.in_doubt(&claim.ask.ticket);
        claim.unclear |= doubt || answer.as_ref().is_err_and(Error::outcome_unknown);
        Asked {
            sent,
            doubt,
            answer,
        }
    }

    /// Asks the store until it has an answer.
    pub(super) async fn drive(&self, mut lead: Option<Lead>) -> Outcome {
        // Kept until the claim has gone, and with it what has to be withdrawn.
        let mut _mark = None;
        let mut claim = Claim::new(self);
        let mut turn = Turn::default();
        if let Some(lead) = &mut lead {
            self.take_over(lead, &mut claim, &mut turn);
        }
        self.hold_back().await;
        let mut outage = Outage::default();
        // No trouble has been told that may be over. Whoever led before may have, but nobody of a line that has just begun.
        let mut settled = lead.as_ref().is_none_or(Lead::is_alone);
        loop {
            // Marked before it is checked: a close that is not seen here waits for this question and for what comes of it.
            _mark = Some(self.caller.base.core.steward.mark());
            self.caller.base.core.refuse_if_closed()?;
            claim.ask.spare = lead.as_mut().map_or(0, Lead::followers);
            turn.asking();
            let Asked {
                sent,
                doubt,
                answer,
            } = self.ask(&mut claim).await;
            let heard = answer.is_ok();
            if heard {
                turn.answered();
                if !std::mem::replace(&mut settled, true) {
                    self.caller.set_trouble(None);
                    if let Some(lead) = &lead {
                        lead.trouble(None);
                    }
                }
            }
            let answer = match answer {
                Ok(Attempt::Acquired(grant)) => self
                    .grant(&mut claim, &grant, sent, &mut lead, &mut turn)
                    .map(Ok),
                Ok(Attempt::Held(wait)) => Ok(Err(wait)),
                Err(error) => Err(error),
            };
            let wait = match answer {
                Ok(Ok(hold)) => return Ok(Some(hold)),
                Ok(Err(wait)) => wait,
                Err(error) => {
                    if self.caller.gone.load(Ordering::SeqCst) {
                        return Ok(None);
                    }
                    // A grant that came too late is an answer: after a freeze the store is asked anew.
                    let since = if heard {
                        self.caller.base.core.timers.now()
                    } else {
                        sent
                    };
                    let pause = outage.pause(error, since, self, lead.as_ref())?;
                    settled = false;
                    if doubt {
                        self.begin_anew(&mut claim).await;
                    }
                    _mark = None;
                    self.rest(pause).await;
                    continue;
                }
            };
            outage = Outage::default();
            if self.caller.gone.load(Ordering::SeqCst) || self.caller.only_asks() {
                return Ok(None);
            }
            if doubt {
                self.begin_anew(&mut claim).await;
            }
            _mark = None;
            self.await_turn(&mut claim, &mut turn, wait).await;
        }
    }

    /// Asks with another ticket from now on. Who waits is woken when the old one has gone; who only asks would be told
    /// that the lock is not free, when it is our own old ticket that has it.
    async fn begin_anew<'a>(&'a self, claim: &mut Claim<'a>) {
        let gone = claim.begin_anew(self);
        if self.caller.only_asks() {
            let core = &self.caller.base.core;
            let wait = core.timers.limit(core.settings.response_timeout, gone);
            // Few ever do: behind a pointer, because it would lie in every future.
            drop(Box::pin(wait).await);
        }
    }

    /// Goes on where the one before has stopped.
    fn take_over(&self, lead: &mut Lead, claim: &mut Claim<'_>, turn: &mut Turn) {
        turn.inherit(lead.take_wake());
        if let Some(wake) = turn.armed() {
            claim.ask.armed = true;
            claim.ask.part = wake.part();
            claim.ask.patience = self.caller.patience();
        }
    }

    /// Lets waiters elsewhere ask first. We look again after each pause: they may have had a turn meanwhile, and the next one
    /// may be theirs too.
    async fn hold_back(&self) {
        while let Some(pause) = self.due_to_others() {
            // Boxed: few ever pause, and the timer would make every future larger.
            Box::pin(self.rest(pause)).await;
        }
    }

    fn due_to_others(&self) -> Option<Duration> {
        let Base { core, site } = &*self.caller.base;
        let name = &self.caller.name;
        let pause = site.lines()?.pause(name, || site.front().heard(name));
        (!pause.is_zero() && !core.closed.is_set()).then_some(pause)
    }

    /// After a refusal: arms a wake if that is still to be done, else sleeps until there is a reason to ask again.
    async fn await_turn(&self, claim: &mut Claim<'_>, turn: &mut Turn, mut wait: Wait) {
        let Base { core, site } = &*self.caller.base;
        let wakes = site.front().capabilities().wakes;
        let first = claim.ask.patience.is_zero();
        claim.ask.patience = self.caller.patience();
        turn.take(&mut wait);
        claim.ask.armed = turn.armed().is_some();
        claim.ask.part = turn.armed().map_or(0, Wake::part);
        if first {
            self.caller.explain_own_hold();
            if wakes && !claim.ask.armed {
                return; // ask again: with patience the store arms a wake before it decides
            }
        }
        let recheck = wait
            .recheck
            .unwrap_or(self.caller.terms.lease)
            .min(core.settings.lease)
            .max(Duration::from_millis(1));
        let wake = if wakes {
            turn.sleep(recheck)
        } else {
            let polls = site.polls(&core.timers);
            let pause = site.front().pause(&self.caller.name);
            Some(turn.poll(recheck, pause, polls, self.caller.name.as_str()))
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
        self.hold_back().await;
    }

    async fn rest(&self, time: Duration) {
        tokio::select! {
            biased;
            () = self.caller.base.core.timers.after(time) => {}
            () = self.caller.base.core.closed.happened() => {}
        }
    }

    /// Arms the hold. Where it is of no use any more it is given back: the client has been closed, or the answer took
    /// so long that the lease proves nothing.
    fn grant<'a>(
        &'a self,
        claim: &mut Claim<'a>,
        grant: &Grant,
        sent: Moment,
        lead: &mut Option<Lead>,
        turn: &mut Turn,
    ) -> Result<Arc<Hold>> {
        let core = &self.caller.base.core;
        let valid_until = sent + core.settings.drift.proved(self.caller.terms.lease);
        let mut status = Status::new(valid_until, core.timers.clock());
        if self.caller.terms.renewed {
            status = status.renewed_since(sent, self.caller.terms.lease);
        }
        let status = status.bound(grant.bond.clone(), core.settings.drift);
        if !status.is_proved() {
            claim.unclear = true; // it is granted, and to be given back
            *claim = Claim::new(self);
            return Err(Error::new(ErrorKind::Unavailable)
                .because("the store answers more slowly than the lease lasts"));
        }
        let site = &self.caller.base.site;
        if let Some(lines) = site.lines() {
            let name = &self.caller.name;
            lines.granted(name, || site.front().heard(name));
        }
        let tenure = lead
            .take()
            .and_then(|lead| lead.begin(self.caller.terms, grant, turn.bequeath()));
        let status = Arc::new(status.leading(tenure.as_ref()));
        let keep = Keep {
            site: Arc::clone(&self.caller.base.site),
            ticket: claim.ask.ticket.clone(),
            status: Arc::clone(&status),
            place: self.caller.place,
            lease: self.caller.terms.lease,
            wish: claim.ask.wish,
            unclear: claim.unclear,
            renew_at: if self.caller.terms.renewed {
                sent + self.caller.terms.lease / 3
            } else {
                Moment::FAR
            },
            asked: false,
            ends_at: self
                .caller
                .options
                .max_hold
                .map_or(Moment::FAR, |cap| sent + cap),
        };
        let hold = Hold {
            entry: core.steward.table.insert(keep),
            base: Arc::clone(&self.caller.base),
            ticket: claim.ask.ticket.clone(),
            token: grant.token,
            generation: grant.token,
            is_written: AtomicBool::new(false),
            status,
            unclear: claim.unclear,
            lease: self.caller.terms.lease,
            wish: claim.ask.wish,
            acknowledged: grant.acknowledged,
            extension: AtomicU64::new(0),
            disarmed: AtomicBool::new(false),
            tenure,
        };
        claim.settled = true;
        // After it is in the table: either this sees the close, or the close sees the hold.
        core.refuse_if_closed()?;
        Ok(Arc::new(hold))
    }
}
