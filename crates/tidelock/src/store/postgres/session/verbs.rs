//! Acquire, renew, release and force release. All but [`renew`] run to their end even if the caller leaves.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::Snapshot;
use crate::store::errors::unanswered;
use crate::store::postgres::errors::RequestError;
use crate::store::postgres::session::inspect;
use crate::store::postgres::session::life::{GIVE, SIGN, Session, TAKE};
use crate::store::postgres::session::shared::Shared;
use crate::store::postgres::session::slots::{ServerLock, ServerLockState};
use crate::store::{
    Attempt, AttemptRequest, BootInstant, Grant, Name, Released, Renewal, Renewed, Ticket,
};

/// The first and the longest pause between two looks at a session that was told to end.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(50);

pub(crate) async fn attempt(shared: &Shared, ask: &AttemptRequest) -> Result<Attempt> {
    let deadline = shared.deadline();
    let session = shared.session(deadline).await?;
    let key = session.key(ask.ticket.name.as_str(), deadline).await;
    let key = key.map_err(|failure| failure.error().without_effect())?;
    let slot = session.slots.slot(key);
    let decided = decide(shared, &session, &slot, key, ask, deadline).await;
    session.slots.tidy(key, &slot);
    decided
}

async fn decide(
    shared: &Shared,
    session: &Session,
    slot: &ServerLock,
    key: i64,
    ask: &AttemptRequest,
    deadline: BootInstant,
) -> Result<Attempt> {
    let owner = &ask.ticket.owner;
    let Some(_turn) = shared.timers.until(deadline, slot.turn.lock()).await else {
        return Err(busy());
    };
    // We check after the slot is locked. Otherwise a withdrawal during the wait would be missed.
    if shared.is_withdrawn(owner) {
        return Err(Error::new(ErrorKind::Cancelled).because("the attempt was withdrawn before"));
    }
    let now = shared.timers.now();
    match slot.get() {
        ServerLockState::Held { ticket, .. } if ticket.owner == *owner => {
            if slot.extend(owner, now, now + ask.lease) {
                return Ok(granted(session));
            }
            return Ok(refused(shared, Some(Duration::ZERO)));
        }
        ServerLockState::Held { ends, .. } => return Ok(refused(shared, Some(ends.since(now)))),
        // An earlier request has no answer, and the session may hold the lock. We release it first. Otherwise the
        // session could hold it twice, and one release would not free it.
        ServerLockState::Unclear { .. } => {
            let settled = session.ask_for(GIVE, key, deadline).await;
            settled.map_err(|failure| failure.error().without_effect())?;
            slot.set(ServerLockState::Free);
        }
        ServerLockState::Free => {}
    }
    let taken = if ask.liveness.has_left() {
        Err(RequestError::Unsent(
            "the caller no longer waits for the reply".to_owned(),
        ))
    } else {
        take(shared, session, slot, key, ask, deadline).await
    };
    match taken {
        Ok(true) => Ok(granted(session)),
        Ok(false) => Ok(refused(shared, None)),
        Err(failure) => Err(failure.error()),
    }
}

async fn take(
    shared: &Shared,
    session: &Session,
    slot: &ServerLock,
    key: i64,
    ask: &AttemptRequest,
    deadline: BootInstant,
) -> Result<bool, RequestError> {
    // The slot is unclear before we send: if no answer arrives, the background task releases the lock.
    let (sent, ticket) = (shared.timers.now(), ask.ticket.clone());
    let unclear = |by| ServerLockState::Unclear {
        owner: ask.ticket.owner.clone(),
        held: false,
        by,
    };
    slot.set(unclear(deadline + shared.limit));
    shared.notify.notify_one();
    let taken = session.ask_for(TAKE, key, deadline).await;
    match &taken {
        Ok(true) => {
            // The lease counts from the send time: this never overestimates it.
            let ends = sent + ask.lease;
            slot.set(ServerLockState::Held { ticket, ends });
            shared.notify.notify_one();
        }
        Err(RequestError::Broken(_)) => {}
        // The session keeps an advisory lock although the statement that took it is rolled back, as by a timeout after it was
        // taken. So the background task releases it at once.
        Err(RequestError::Server(_)) => {
            slot.set(unclear(sent));
            shared.notify.notify_one();
        }
        Ok(false) | Err(RequestError::Classified(_) | RequestError::Unsent(_)) => {
            slot.set(ServerLockState::Free);
        }
    }
    taken
}

fn granted(session: &Session) -> Attempt {
    Attempt::Acquired(Grant {
        bond: Some(session.bond.clone()),
        ..Grant::default()
    })
}

fn refused(shared: &Shared, left: Option<Duration>) -> Attempt {
    // One millisecond more, so that the lease has ended at the recheck. Never later than the client's own lease.
    let recheck = left.map(|left| (left + Duration::from_millis(1)).min(shared.span));
    Attempt::held(None, recheck)
}

fn busy() -> Error {
    Error::new(ErrorKind::Unavailable).because("the server did not run the statement in time")
}

/// Renews a batch with one keepalive: the server keeps every lock as long as it keeps the session.
pub(crate) async fn renew(shared: &Arc<Shared>, batch: &[Renewal]) -> Result<Vec<Renewed>> {
    let gone = || batch.iter().map(|_| Renewed::Gone).collect();
    let Some(session) = shared.current() else {
        return Ok(gone());
    };
    let (asked, deadline, sent) = (Arc::clone(&session), shared.deadline(), shared.timers.now());
    let work = async move { Ok(asked.ask(SIGN, None, deadline).await.map(drop)) };
    match shared.run(work).await? {
        Ok(()) => {}
        Err(_) if session.is_over() => return Ok(gone()),
        Err(failure) => return Err(failure.error()),
    }
    let now = shared.timers.now();
    let each = batch.iter().map(|renewal| {
        let Ticket { name, owner, .. } = &renewal.ticket;
        let slot = session.known_key(name.as_str());
        let slot = slot.and_then(|key| session.slots.find(key));
        if slot.is_some_and(|slot| slot.extend(owner, now, sent + renewal.lease)) {
            Renewed::Kept
        } else {
            Renewed::Gone
        }
    });
    let each = each.collect();
    shared.notify.notify_one();
    Ok(each)
}

/// Releases the lock that the ticket has, or may have.
pub(crate) async fn end(shared: &Shared, ticket: &Ticket) -> Result<Released> {
    let deadline = shared.deadline();
    let mut was_held = false;
    let session = shared.current();
    let key = session
        .as_ref()
        .and_then(|it| it.known_key(ticket.name.as_str()));
    if let Some((session, key)) = session.as_ref().zip(key) {
        let is_meant = |state: &ServerLockState| state.is_of(&ticket.owner);
        was_held = give_back(shared, session, key, is_meant, deadline).await?;
    }
    if was_held {
        return Ok(Released::Freed);
    }
    // The server frees a lock with its session. But if the client has ended the session by a close, the server may not
    // know it yet. The release is repeated if its first request had no reply, and then "not held" would be a success.
    if shared.closed.load(Ordering::SeqCst) {
        return Err(unanswered("the client is closing"));
    }
    Ok(Released::NotHeld)
}

/// Releases a lock if `is_meant` accepts its state. Returns whether it was held.
pub(crate) async fn give_back(
    shared: &Shared,
    session: &Session,
    key: i64,
    is_meant: impl Fn(&ServerLockState) -> bool,
    deadline: BootInstant,
) -> Result<bool> {
    let Some(slot) = session.slots.find(key) else {
        return Ok(false);
    };
    let Some(turn) = shared.timers.until(deadline, slot.turn.lock()).await else {
        return Err(busy());
    };
    let Some(held) = slot.begin_end(is_meant, deadline + shared.limit) else {
        drop(turn);
        session.slots.tidy(key, &slot);
        return Ok(false);
    };
    let freed = session.ask_for(GIVE, key, deadline).await;
    if freed.is_ok() {
        slot.set(ServerLockState::Free);
    }
    drop(turn);
    session.slots.tidy(key, &slot);
    match freed {
        Ok(freed) => Ok(freed || held),
        Err(_) if session.is_over() => Ok(false),
        Err(failure) => Err(failure.error()),
    }
}

/// Force release. Terminates the session that holds the lock: no other session can release it. `seen`: only if it is the
/// session in it.
pub(crate) async fn force(shared: &Shared, name: &Name, seen: Option<&Snapshot>) -> Result<bool> {
    let deadline = shared.deadline();
    let session = shared.session(deadline).await?;
    let key = session.key(name.as_str(), deadline).await;
    let key = key.map_err(RequestError::error)?;
    let is_seen = |ticket: &Ticket| seen.is_none_or(|seen| seen.has_owner(ticket.owner.text()));
    let held = |state: &ServerLockState| matches!(state, ServerLockState::Held { ticket, .. } if ticket.name == *name && is_seen(ticket));
    if give_back(shared, &session, key, held, deadline).await? {
        return Ok(true);
    }
    let end = match seen {
        None => inspect::END.to_owned(),
        Some(seen) => inspect::end_seen(seen),
    };
    let rows = session.ask(&end, Some((&key, Type::INT8)), deadline).await;
    let rows = rows.map_err(RequestError::error)?;
    let told: Option<Vec<i32>> = rows.first().and_then(|row| row.get(1));
    let Some(told) = told else {
        return Ok(false);
    };
    // The server was told, so nothing that happens from here on means that the lock stays as it was.
    match gone(shared, &session, key, &told, deadline).await {
        Ok(true) => Ok(true),
        Ok(false) => Err(unanswered(
            "the server has not yet ended the session of the holder",
        )),
        Err(failure) => Err(unanswered(failure.error())),
    }
}

/// Waits until none of these sessions holds the key. `false`: the deadline has passed before.
///
/// The server ends a session some time after it was told to. We wait for it; otherwise the holder could still release
/// the lock as if nothing had happened, and a caller that was told that the lock is free could be refused.
async fn gone(
    shared: &Shared,
    session: &Session,
    key: i64,
    told: &[i32],
    deadline: BootInstant,
) -> Result<bool, RequestError> {
    let mut pause = FIRST_LOOK;
    while shared.timers.now() < deadline {
        let rows = session
            .ask(inspect::HOLDER, Some((&key, Type::INT8)), deadline)
            .await?;
        let holds = |row: &Row| {
            row.get::<_, Option<i32>>(1)
                .is_some_and(|pid| told.contains(&pid))
        };
        if !rows.iter().any(holds) {
            return Ok(true);
        }
        shared.timers.after(pause).await;
        pause = (pause * 2).min(LAST_LOOK);
    }
    Ok(false)
}
