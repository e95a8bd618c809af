//! A lock on all members, or on none.
//!
//! 1. Ask the members one after another, without patience.
//! 2. At the first refusal, release everything. Only then, with no part held, wait for the member that refused;
//!    otherwise two sets could deadlock.
//! 3. A caller that had to release a part has collided with another set, so it retries after a random pause.
//!    Otherwise two callers that ask in opposite order could take and release in step without end. After a while the
//!    acquire loop makes the pause.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::store::set::errors::of_part;
use crate::store::set::release::{doubt, give_back};
use crate::store::set::shared::{Shared, Side};
use crate::store::set::wake_number;
use crate::store::{Attempt, AttemptRequest, Bond, Wait, Wake};

pub(crate) async fn attempt(set: &Shared, ask: &AttemptRequest) -> Result<Attempt> {
    set.refuse_if_one_is_closed()?;
    let begun = set.timers.now();
    let members = set.members.len();
    let mut armed = ask
        .armed_by
        .map(|number| wake_number::read(number, members));
    let mut start = SweepStart {
        part: armed.map_or(0, |(part, _)| part),
        patient: !ask.patience.is_zero(),
        armed: armed.and_then(|(_, own)| own),
        wake: None,
    };
    let mut collisions = 0;
    loop {
        let round = set.timers.now();
        let SweepRefusal {
            part,
            mut wait,
            given_back,
        } = match sweep(set, ask, &start).await? {
            Swept::All(bonds) => return Ok(set.granted(bonds, false)),
            Swept::Refused(refusal) => refusal,
        };
        if wait.wake.is_none() && start.part == part {
            wait.wake = start.wake.take();
        }
        let now = set.timers.now();
        let pause = set.collision_pause(now.since(round), collisions);
        let comes_back = !given_back.is_empty() && !ask.patience.is_zero();
        let over = now.since(begun) + pause > set.longest_rounds();
        if !comes_back || over || set.in_doubt_log.in_doubt(&ask.ticket) {
            return Ok(Attempt::Held(match wait.wake {
                None if comes_back => set.pause_of(&ask.ticket, part, pause),
                wake => Wait {
                    wake: wake.map(|wake| wake_number::armed(wake, part, members)),
                    ..wait
                },
            }));
        }
        set.timers.after(pause).await;
        collisions += 1;
        armed = armed.filter(|(part, _)| !loses_place(set, *part, &given_back));
        start = SweepStart {
            part,
            patient: true,
            armed: armed.and_then(|(at, own)| own.filter(|_| at == part)),
            wake: wait.wake,
        };
    }
}

/// Whether the release of these parts has ended the ticket's place in a queue at this one. A wake that was armed there
/// belongs to that place. The ticket's next place needs a wake of its own, or its turn would come unheard.
fn loses_place(set: &Shared, part: usize, given_back: &[usize]) -> bool {
    given_back.contains(&part) && set.member(part, Side::Front).capabilities().queues
}

/// The member that a sweep starts with.
struct SweepStart {
    part: usize,
    /// No part is held, so this member may arm a wake.
    patient: bool,
    /// The caller already has a wake of this member, with this number there.
    armed: Option<usize>,
    /// We already have a wake of this member.
    wake: Option<Wake>,
}

enum Swept {
    /// All parts were granted, with these bonds.
    All(Vec<Option<Bond>>),
    Refused(SweepRefusal),
}

struct SweepRefusal {
    part: usize,
    wait: Wait,
    /// Parts that had been granted, and were released.
    given_back: Vec<usize>,
}

/// Asks every member for its part. Unless all of them grant it, no part is held at the end.
async fn sweep(set: &Shared, ask: &AttemptRequest, start: &SweepStart) -> Result<Swept> {
    let parts = set.members.len();
    let begun = set.timers.now();
    let others = (0..parts).filter(|part| *part != start.part);
    let mut taken = Vec::with_capacity(parts);
    let mut bonds = Vec::with_capacity(parts);
    for part in std::iter::once(start.part).chain(others) {
        if set.members[part].is_twin() {
            continue;
        }
        let answer = match look_for_twin(set, ask, &taken, part).await {
            Ok(true) => continue,
            Ok(false) => ask_part(set, ask, start, part).await,
            Err(error) => Err(error),
        };
        let wait = match answer {
            Ok(Attempt::Acquired(grant)) => {
                taken.push(part);
                bonds.push(grant.bond);
                if set.timers.now().since(begun) < set.response_timeout {
                    continue;
                }
                give_back(set, &ask.ticket, &taken).await;
                return Err(Error::new(ErrorKind::Unavailable)
                    .because("the parts together took longer than the response timeout"));
            }
            Ok(Attempt::Held(wait)) => wait,
            Err(error) => {
                if error.outcome_unknown() {
                    doubt(set, &ask.ticket, part);
                }
                give_back(set, &ask.ticket, &taken).await;
                return Err(of_part(set, part, error));
            }
        };
        give_back(set, &ask.ticket, &taken).await;
        return Ok(Swept::Refused(SweepRefusal {
            part,
            wait,
            given_back: taken,
        }));
    }
    Ok(Swept::All(bonds))
}

async fn ask_part(
    set: &Shared,
    ask: &AttemptRequest,
    start: &SweepStart,
    part: usize,
) -> Result<Attempt> {
    let first = part == start.part;
    let armed = start.wake.as_ref().map(Wake::part).or(start.armed);
    let own = AttemptRequest {
        patience: if first && start.patient {
            ask.patience
        } else {
            Duration::ZERO
        },
        armed_by: armed.filter(|_| first),
        arms_within: ask.arms_within,
        liveness: ask.liveness.clone(),
        ..AttemptRequest::once(set.members[part].ticket(&ask.ticket), ask.lease, ask.wish)
    };
    let reply = set.member(part, Side::Front).attempt(&own).await;
    if reply.in_doubt {
        doubt(set, &ask.ticket, part);
    }
    reply.outcome
}

/// Whether a member is the same lock as one that was already taken, by another address: then our own ticket holds it,
/// although we have not asked this member yet. We check each member once, and only if a taken member has the same
/// lock name.
async fn look_for_twin(
    set: &Shared,
    ask: &AttemptRequest,
    taken: &[usize],
    part: usize,
) -> Result<bool> {
    let member = &set.members[part];
    let name = member.name(&ask.ticket.name);
    let alike = |other: &usize| set.members[*other].name(&ask.ticket.name) == name;
    if member.is_known_apart() || !taken.iter().any(alike) {
        return Ok(false);
    }
    let seen = set.member(part, Side::Front).inspect(name).await?;
    let ours = ask.ticket.owner.text();
    let twin = seen.holders.iter().any(|holder| holder.owner == ours);
    let twin = member.set_twin_once(twin);
    if twin {
        tracing::info!(lock = %name, "two parts of a set are the same lock under two addresses; it is acquired once");
    }
    Ok(twin)
}

#[cfg(feature = "testing")]
#[cfg(test)]
mod tests;
