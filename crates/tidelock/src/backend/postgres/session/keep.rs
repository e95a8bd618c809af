//! What ends leases, and shows the server that this process lives.

use std::sync::{Arc, Weak};

use super::Shared;
use super::life::{SIGN, Session};
use super::slots::State;
use super::verbs;
use crate::backend::Moment;

/// Gives back what was not renewed in time, and says something in each third of the silence that the server bears. Runs
/// until the store has gone.
pub(super) async fn keep(shared: Weak<Shared>) {
    let mut asked = Moment(0);
    loop {
        let Some(strong) = shared.upgrade() else {
            return;
        };
        let (timers, bell) = (strong.timers.clone(), Arc::clone(&strong.bell));
        let next = strong.current().map_or(Moment::FAR, |session| {
            let sign = session.heard().max(asked) + session.span / 3;
            sign.min(session.slots.next_due())
        });
        drop(strong);
        tokio::select! {
            () = timers.at(next) => {}
            () = bell.notified() => continue,
        }
        let (Some(strong), now) = (shared.upgrade(), timers.now()) else {
            return;
        };
        let Some(session) = strong.current() else {
            continue;
        };
        if now >= session.heard() + session.span {
            // The server has ended it, or will when it comes to it: a silence as long as that was agreed on.
            session.give_up();
            continue;
        }
        if now >= session.heard().max(asked) + session.span / 3 {
            asked = now;
            show_life(&strong, &session);
        }
        end_due(&strong, &session, now);
    }
}

fn show_life(shared: &Arc<Shared>, session: &Arc<Session>) {
    let (session, deadline) = (Arc::clone(session), shared.deadline());
    shared.background.spawn(async move {
        if let Err(trouble) = session.ask(SIGN, None, deadline).await {
            tracing::debug!(error = %trouble.error(), "the session has shown no sign of life");
        }
    });
}

fn end_due(shared: &Arc<Shared>, session: &Arc<Session>, now: Moment) {
    for (key, slot) in session.slots.due(now) {
        // Not again before this has had its time; who holds it meanwhile has lost it.
        let again = shared.deadline() + shared.limit;
        if slot.begin_end(|state| state.due() <= now, again).is_none() {
            continue;
        }
        let (shared, session) = (Arc::clone(shared), Arc::clone(session));
        drop(slot);
        shared.clone().background.spawn(async move {
            let unclear = |state: &State| matches!(state, State::Unclear { .. });
            let deadline = shared.deadline();
            let ended = verbs::give_back(&shared, &session, key, unclear, deadline).await;
            if let Err(error) = ended {
                tracing::debug!(%error, "a lease that has ended is still to be given back");
            }
        });
    }
}
