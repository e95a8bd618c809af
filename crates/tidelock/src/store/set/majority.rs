//! A lock on more than half of several independent servers.
//!
//! 1. Ask all servers at the same time, each with a short time limit.
//! 2. A majority of grants is a grant.
//! 3. Otherwise release every grant. A request without an answer leaves the ticket in doubt; the acquire loop then
//!    withdraws the ticket.
//! 4. If the votes were split, start over after a random pause, so that one of several callers succeeds. After a while
//!    the acquire loop makes the pause.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::engine::runtime::backoff::with_jitter;
use crate::error::{Error, ErrorKind, Result};
use crate::store::set::errors::{kind_of, of_parts};
use crate::store::set::quorum::Quorum;
use crate::store::set::release::{doubt, give_back};
use crate::store::set::shared::{Shared, Side};
use crate::store::set::wake_number;
use crate::store::{Attempt, AttemptRequest, Bond, Incarnation, NotYet, Wait};
use crate::types::Escaped;

pub(crate) async fn attempt(
    set: &Shared,
    quorum: &Quorum,
    ask: &AttemptRequest,
) -> Result<Attempt> {
    set.refuse_if_one_is_closed()?;
    quorum.note_lease(ask.lease);
    let begun = set.timers.now();
    let mut rounds = 0;
    loop {
        let round = set.timers.now();
        let mut votes = Votes::count(set, quorum, ask).await;
        if votes.for_us.len() >= set.needed() {
            // Others that asked at the same moment have the other servers, and give them back now. The first renewal takes
            // the lock there too. Until then, one server more that loses its memory would end the hold.
            let is_contested = !votes.against.is_empty();
            return Ok(set.granted(votes.bonds, is_contested));
        }
        give_back(set, &ask.ticket, &votes.taken()).await;
        if let Some(error) = votes.failure(set, quorum, ask) {
            return Err(error);
        }
        let now = set.timers.now();
        // With votes for us, perhaps nobody has the lock. Then no release will wake us, so we must retry ourselves.
        if votes.for_us.is_empty() {
            return Ok(Attempt::Held(votes.wait(set, ask.lease / 10)));
        }
        let pause = set.collision_pause(now.since(round), rounds);
        let spent = now.since(begun);
        let over = if ask.patience.is_zero() {
            rounds >= 2 || spent > set.response_timeout / 2
        } else {
            spent + pause > set.longest_rounds()
        };
        if over || set.in_doubt_log.in_doubt(&ask.ticket) {
            // A random time: callers that split the votes now would otherwise come back together.
            let recheck = pause.max(with_jitter(ask.lease / 60, 1.0));
            return Ok(Attempt::Held(votes.wait(set, recheck)));
        }
        set.timers.after(pause).await;
        rounds += 1;
    }
}

/// The result of one round.
struct Votes {
    /// Members whose grant counts.
    for_us: Vec<usize>,
    /// The bonds of those grants.
    bonds: Vec<Option<Bond>>,
    /// Members that granted, but have not been up long enough to vote.
    young: Vec<(usize, Duration)>,
    /// Members that granted, but are, or may be, another address of a server that has its vote already.
    twins: Vec<usize>,
    against: Vec<(usize, Wait)>,
    failed: Vec<(usize, Error)>,
}

enum Vote {
    Granted(Option<Bond>),
    Young(Duration),
    /// A grant of a server that has not told its run.
    WithoutRun(Error),
    Held(Wait),
}

impl Votes {
    async fn count(set: &Shared, quorum: &Quorum, ask: &AttemptRequest) -> Self {
        let asked = (0..set.members.len())
            .map(|part| async move { (part, vote(set, quorum, ask, part).await) });
        let mut votes = Self {
            for_us: Vec::with_capacity(set.members.len()),
            bonds: Vec::with_capacity(set.members.len()),
            young: Vec::new(),
            twins: Vec::new(),
            against: Vec::new(),
            failed: Vec::new(),
        };
        let mut runs: HashMap<Arc<str>, usize> = HashMap::new();
        for (part, answer) in join_all(asked).await {
            match answer {
                Ok(Vote::Granted(bond)) => {
                    let run = set.members[part].last_run();
                    if let Some(first) = run.as_ref().and_then(|run| runs.get(run)) {
                        votes.twins.push(part);
                        let error = counted_already(set, part, *first);
                        votes.failed.push((part, error));
                        continue;
                    }
                    runs.extend(run.map(|run| (run, part)));
                    votes.for_us.push(part);
                    votes.bonds.push(bond);
                }
                Ok(Vote::Young(up)) => votes.young.push((part, up)),
                Ok(Vote::WithoutRun(error)) => {
                    votes.twins.push(part);
                    votes.failed.push((part, error));
                }
                Ok(Vote::Held(wait)) => votes.against.push((part, wait)),
                Err(error) => {
                    if error.outcome_unknown() {
                        doubt(set, &ask.ticket, part);
                    }
                    votes.failed.push((part, error));
                }
            }
        }
        votes
    }

    /// All members that granted, also the twins: one that is wrongly taken for a twin would keep the lock for a lease.
    fn taken(&self) -> Vec<usize> {
        let mut taken = self.granted();
        taken.extend(&self.twins);
        taken
    }

    /// The servers that granted, also those whose grant does not count yet.
    fn granted(&self) -> Vec<usize> {
        let young = self.young.iter().map(|(part, _)| *part);
        self.for_us.iter().copied().chain(young).collect()
    }

    /// Why no majority is possible. `None`: enough servers refused, so somebody else may hold the lock.
    fn failure(&mut self, set: &Shared, quorum: &Quorum, ask: &AttemptRequest) -> Option<Error> {
        // These refusals alone rule out a majority, whatever the other servers would have answered.
        if self.against.len() + set.needed() > set.members.len() {
            return None;
        }
        if self.are_split(set) {
            // A try that is in doubt can make no further round. It gets the error and asks again, if that can help: the
            // refusal may come from a ticket that is released right now, and the try would report a free lock as held.
            let repeats = self.failed.iter().all(|(_, error)| error.is_retryable());
            let is_unsure = ask.patience.is_zero() && set.in_doubt_log.in_doubt(&ask.ticket);
            if !(repeats && is_unsure) {
                return None;
            }
        }
        if self.failed.is_empty() || self.granted().len() >= set.needed() {
            let need = quorum.longest_lease();
            let young = self.young.iter().map(|(part, up)| {
                format!(
                    "{} may have been up for only {up:?}",
                    set.members[*part].label
                )
            });
            let young: Vec<String> = young.collect();
            let error = Error::new(ErrorKind::Unavailable).because(format!(
                "{}: a server votes only after it has been up for {need:?}, the longest lease, because a restart may have lost a lock; \
                 wait, or set restart_guard(false) for a new deployment",
                young.join(", ")
            ));
            let youngest = self.young.iter().map(|(_, up)| *up).min();
            return Some(match youngest {
                Some(up) => error.caused_by(NotYet {
                    // Servers report their uptime in whole seconds, rounded down.
                    within: need.saturating_sub(up) + Duration::from_secs(1),
                }),
                None => error,
            });
        }
        let failed = std::mem::take(&mut self.failed);
        // An error that no retry can fix ends the wait, unless the other servers are a majority once all of them answer. A wrong
        // setup ends it in any case: a second address of a server has no vote at any time.
        let errors = || failed.iter().map(|(_, error)| error);
        let lasting = errors().filter(|error| !error.is_retryable());
        let may_pass = lasting.count() + set.needed() <= set.members.len()
            && errors().all(|error| error.kind() != ErrorKind::InvalidOptions);
        let kind = kind_of(errors().filter(|error| error.is_retryable() || !may_pass));
        Some(of_parts(set, kind, failed))
    }

    /// Whether the servers that refused are all that is missing for a majority. Then other callers are the obstacle, and no
    /// failed server. Otherwise the error of one server would end the wait of a caller that only has to wait.
    fn are_split(&self, set: &Shared) -> bool {
        !self.against.is_empty() && self.for_us.len() + self.against.len() >= set.needed()
    }

    /// A wake of one server that refused, and a recheck in case that server dies before it sends the wake.
    fn wait(self, set: &Shared, most: Duration) -> Wait {
        let mut rechecks: Vec<Duration> = Vec::new();
        let mut wake = None;
        for (part, wait) in self.against {
            rechecks.extend(wait.recheck);
            let members = set.members.len();
            wake = wake.or_else(|| Some(wake_number::armed(wait.wake?, part, members)));
        }
        let recheck = rechecks.into_iter().min().unwrap_or(most).min(most);
        Wait {
            wake,
            recheck: Some(recheck),
            ahead: None,
        }
    }
}

async fn vote(set: &Shared, quorum: &Quorum, ask: &AttemptRequest, part: usize) -> Result<Vote> {
    let armed = ask
        .armed_by
        .map(|number| wake_number::read(number, set.members.len()));
    let own = AttemptRequest {
        patience: if armed.is_some_and(|(_, own)| own.is_some()) {
            Duration::ZERO
        } else {
            ask.patience
        },
        armed_by: armed.and_then(|(member, own)| own.filter(|_| member == part)),
        // The request itself needs the rest. Otherwise a server that answers, but takes no subscription, would count as
        // silent.
        arms_within: Some(ask.time_to_arm(quorum.node_timeout / 2)),
        liveness: ask.liveness.clone(),
        ..AttemptRequest::once(set.members[part].ticket(&ask.ticket), ask.lease, ask.wish)
    };
    let store = Arc::clone(set.member(part, Side::Front));
    let call = Box::pin(async move {
        let reply = store.attempt(&own).await;
        // We ask for the server run after the grant, so it is the run that granted, or a later one. A connection asks
        // only once, if nothing else can have granted it.
        let life = match store.extensions().server_runs {
            Some(runs) if matches!(reply.outcome, Ok(Attempt::Acquired(_))) => {
                runs.server_run().await
            }
            _ => Ok(None),
        };
        Ok((reply, life))
    });
    let (reply, life) = set.bounded(call).await?;
    if reply.in_doubt {
        doubt(set, &ask.ticket, part);
    }
    let grant = match reply.outcome? {
        Attempt::Held(wait) => return Ok(Vote::Held(wait)),
        Attempt::Acquired(grant) => grant,
    };
    set.note_run(part, &life);
    if quorum.restart_guard {
        return Ok(by_age(set, quorum, part, grant.bond, life));
    }
    Ok(match life {
        // The run that it told before is no proof: the server may have restarted, and have told the new one by another address.
        // The question only reads, and the grant is known, so the outcome of the attempt is not in doubt.
        Err(error) if error.is_retryable() => Vote::WithoutRun(error.without_effect()),
        Ok(_) | Err(_) => Vote::Granted(grant.bond),
    })
}

/// Two addresses of one server share one vote. Otherwise two holders could have a majority each.
fn counted_already(set: &Shared, part: usize, first: usize) -> Error {
    let (member, first) = (&set.members[part], &set.members[first].label);
    if member.is_news() {
        tracing::error!(server = %Escaped(&member.label), first = %Escaped(first), "two clients of a RedLock connect to the same server; it has one vote");
    }
    Error::new(ErrorKind::InvalidOptions).because(format!(
        "is the same server as {first}, and has one vote; give each server one client"
    ))
}

/// Whether a grant counts, by the uptime of the server that granted it.
fn by_age(
    set: &Shared,
    quorum: &Quorum,
    part: usize,
    bond: Option<Bond>,
    life: Result<Option<Incarnation>>,
) -> Vote {
    let member = &set.members[part];
    match life {
        Ok(Some(life)) => {
            let up = member.least_uptime(&life, set.timers.now());
            if up < quorum.longest_lease() {
                Vote::Young(up)
            } else {
                Vote::Granted(bond)
            }
        }
        Err(error) if error.is_retryable() => Vote::Young(Duration::ZERO),
        // The server does not tell its uptime. We warn once and count the vote; otherwise every lock would be
        // refused.
        Ok(None) | Err(_) => {
            let capabilities = member.store.front.capabilities();
            if member.is_news() && capabilities.shared && !capabilities.durable {
                tracing::warn!(server = %Escaped(&member.label), "the server does not report its uptime (INFO); after a restart it may vote although it has forgotten a lock");
            }
            Vote::Granted(bond)
        }
    }
}

#[cfg(feature = "testing")]
#[cfg(test)]
mod tests;
