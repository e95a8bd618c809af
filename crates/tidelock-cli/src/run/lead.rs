//! `tidelock lead`: runs a command while this candidate leads, and again in each later term.

use std::process::ExitCode;
use std::time::Duration;

use tidelock::Client;
use tidelock::election::{Election, Leadership};

use super::boot;
use super::running::Running;
use super::signals::Signals;
use super::wrapper::{Left, OUTAGE, explain_delay, leave, program_of};
use crate::acquire::Held;
use crate::args::{OnLost, StoreArgs};
use crate::exit::{self, Failure, Outcome, by_signal, say};
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
            number = signals.deadly() => return Ok(ExitCode::from(by_signal(number))),
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
        loop {
            let campaign = tokio::select! {
                won = campaign(&election) => won.map(Ok),
                number = signals.deadly() => Ok(Err(number)),
            };
            let leadership = match campaign? {
                Ok(leadership) => leadership,
                Err(number) => {
                    client.close(Duration::ZERO).await;
                    return Ok(ExitCode::from(by_signal(number)));
                }
            };
            match one_term(store, &client, leadership, job, &mut signals).await {
                Ok(None) => {}
                Ok(Some(code)) => return Ok(code),
                Err(failure) => {
                    client.close(Duration::ZERO).await;
                    return Err(failure);
                }
            }
        }
    })
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
    client: &Client,
    leadership: Leadership,
    job: &LeadArgs,
    signals: &mut Signals,
) -> Outcome<Option<ExitCode>> {
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
    let code = running.until_it_ends(&held.guard, signals).await;
    if code == exit::LOST && !held.guard.is_held() && signals.ended_by().is_none() {
        return Ok(None);
    }
    // The guard that is left releases the lock; the candidate is not listed any more.
    drop(leadership);
    let left = leave(client, Some(held.guard)).await;
    let code = match left {
        Left::Lost if job.child.on_lost == OnLost::Kill => exit::LOST,
        _ => code,
    };
    Ok(Some(ExitCode::from(code)))
}
