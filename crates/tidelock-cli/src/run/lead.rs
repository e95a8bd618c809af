//! `tidelock lead`: runs a command while this candidate leads, and again in each later term.

use std::process::ExitCode;
use std::time::Duration;

use tidelock::election::{Election, Leadership};

use super::running::Running;
use super::signals::Signals;
use super::wrapper::{OUTAGE, ToRelease, explain_delay, leave, program_of};
use super::{boot, group};
use crate::acquire::Held;
use crate::args::StoreArgs;
use crate::exit::{Failure, Outcome, interrupted_by, say};
use crate::lead::LeadArgs;
use crate::{block_on, covers, store};

/// The pause after a campaign that failed. The campaign itself has retried for a lease.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs the command in each term, until it ends by itself or a signal ends it.
pub(crate) fn lead(store: &StoreArgs, job: &LeadArgs) -> Outcome {
    // As for `run`.
    boot::adopt_orphans();
    block_on(async {
        let mut signals = Signals::catch().map_err(Failure::internal)?;
        let program = program_of(&job.child);
        let client = tokio::select! {
            client = store::connect_as(&program, store, OUTAGE) => client.map_err(|failure| failure.on_lock(&job.name))?,
            number = signals.deadly() => return Ok(ExitCode::from(interrupted_by(number))),
            never = explain_delay(store, &job.name, OUTAGE) => match never {},
        };
        covers::tell(store)?;
        let mut election = client.election(&job.name).priority(job.priority);
        if let Some(identity) = &job.identity {
            election = election.identity(identity);
        }
        if job.in_order {
            election = election.in_order();
        }
        let done = terms(store, &election, job, &mut signals).await;
        leave(&client, done, job.child.on_lost).await
    })
}

/// Campaigns and runs the command in each term. Returns the exit code of the last one, and its guard to release.
async fn terms(
    store: &StoreArgs,
    election: &Election,
    job: &LeadArgs,
    signals: &mut Signals,
) -> Outcome<(u8, Option<ToRelease>)> {
    loop {
        let leadership = tokio::select! {
            won = campaign(election) => won?,
            number = signals.deadly() => return Ok((interrupted_by(number), None)),
            never = group::reap_orphans() => match never {},
        };
        if let Some((code, left)) = one_term(store, leadership, job, signals).await? {
            return Ok((code, Some(left)));
        }
    }
}

/// Waits until this candidate leads, through every outage of the store.
async fn campaign(election: &Election) -> Outcome<Leadership> {
    loop {
        match election.campaign().await {
            Err(error) if error.is_retryable() => say(&error),
            won => return won.map_err(|error| Failure::of_lock(error, election.name())),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Runs the command in one term. `None`: the leadership was lost and the command is terminated, so it campaigns again.
async fn one_term(
    store: &StoreArgs,
    leadership: Leadership,
    job: &LeadArgs,
    signals: &mut Signals,
) -> Outcome<Option<(u8, ToRelease)>> {
    let held = Held {
        guard: leadership.guard().reenter().into(),
        token: Some(leadership.token()),
        run: None,
        term: Some(leadership.term()),
    };
    if covers::is_watched(store) {
        say(format!("{}: elected, term {}", job.name, leadership.term()));
    }
    let running = Running::start(&held, &job.child)?;
    let over = running.until_it_ends(&held.guard, signals).await;
    // The command is terminated before the lease ends, so the guard may still be held.
    if over.for_loss && signals.ended_by().is_none() {
        return Ok(None);
    }
    // The candidate is not listed any more. The guard that is left releases the lock.
    drop(leadership);
    Ok(Some((over.code, ToRelease::after(&over, held.guard))))
}
