//! The background task: releases locks whose lease has ended, and sends keepalives to the server.

use std::sync::{Arc, Weak};

use crate::store::BootInstant;
use crate::store::postgres::session::life::{SIGN, Session};
use crate::store::postgres::session::shared::Shared;
use crate::store::postgres::session::slots::ServerLockState;
use crate::store::postgres::session::verbs;
use crate::types::Escaped;

/// Releases every lock that was not renewed in time, and sends a keepalive after each third of the silence that the
/// server allows. Runs until the store is dropped.
pub(crate) async fn run(shared: Weak<Shared>) {
    let mut asked = BootInstant(0);
    loop {
        let Some(strong) = shared.upgrade() else {
            return;
        };
        let (timers, notify) = (strong.timers.clone(), Arc::clone(&strong.notify));
        let next = strong.current().map_or(BootInstant::FAR, |session| {
            let sign = session.last_confirmed().max(asked) + session.span / 3;
            sign.min(session.slots.next_due())
        });
        // We hold no strong reference while we sleep. Otherwise the store could never be dropped.
        drop(strong);
        tokio::select! {
            () = timers.at(next) => {}
            () = notify.notified() => continue,
        }
        let (Some(strong), now) = (shared.upgrade(), timers.now()) else {
            return;
        };
        let Some(session) = strong.current() else {
            continue;
        };
        if now >= session.last_confirmed() + session.span {
            // The server has terminated the session, or soon will: it was silent for longer than configured.
            session.give_up();
            continue;
        }
        if now >= session.last_confirmed().max(asked) + session.span / 3 {
            asked = now;
            show_life(&strong, &session);
        }
        end_due(&strong, &session, now);
    }
}

/// Sends a keepalive.
fn show_life(shared: &Arc<Shared>, session: &Arc<Session>) {
    let (session, deadline) = (Arc::clone(session), shared.deadline());
    shared.background.spawn(async move {
        if let Err(failure) = session.ask(SIGN, None, deadline).await {
            tracing::debug!(error = %Escaped(failure.error()), "the server did not answer the keep-alive of the session");
        }
    });
}

/// Releases the locks that are due, each in a task of its own.
fn end_due(shared: &Arc<Shared>, session: &Arc<Session>, now: BootInstant) {
    for (key, slot) in session.slots.due(now) {
        // We mark the slot before we release, so the holder has lost the lock from here on. `again` is the time of the
        // next try.
        let again = shared.deadline() + shared.limit;
        if slot.begin_end(|state| state.due() <= now, again).is_none() {
            continue;
        }
        let (shared, session) = (Arc::clone(shared), Arc::clone(session));
        drop(slot);
        shared.clone().background.spawn(async move {
            let unclear =
                |state: &ServerLockState| matches!(state, ServerLockState::Unclear { .. });
            let deadline = shared.deadline();
            let ended = verbs::give_back(&shared, &session, key, unclear, deadline).await;
            if let Err(error) = ended {
                tracing::debug!(%error, "a lock whose lease has ended could not be released yet; retrying");
            }
        });
    }
}
