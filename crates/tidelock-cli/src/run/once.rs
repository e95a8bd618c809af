//! `tidelock once`: runs a command for its slot, and marks how it ended.

use std::process::ExitCode;
use std::time::Duration;

use tidelock::Client;
use tidelock::once::{Begun, OnceAttempt};

use super::running::{Over, Running};
use super::signals::Signals;
use super::wrapper::{OUTAGE, explain_delay, program_of};
use super::{boot, group};
use crate::acquire::Held;
use crate::args::StoreArgs;
use crate::exit::{Failure, Outcome, by_signal, interrupted_by, say};
use crate::inspect::holder_as_text;
use crate::once::{OnceArgs, why_done};
use crate::{block_on, covers, store};

/// How long the store has, after a signal, to confirm how the run ended. Without it a signal that ends the command, and arrives
/// here after its end, would also take its mark from a store that answers.
const LAST_TRY: Duration = Duration::from_secs(1);

/// Runs the command, unless its slot has been run or is running.
pub(crate) fn once(store: &StoreArgs, job: &OnceArgs) -> Outcome {
    // As for `run`.
    boot::adopt_orphans();
    block_on(async {
        let mut signals = Signals::catch().map_err(Failure::internal)?;
        let program = program_of(&job.child);
        let patience = job.wait.unwrap_or(OUTAGE);
        let client = tokio::select! {
            client = store::connect_as(&program, store, patience) => client.map_err(|failure| failure.on_lock(&job.name))?,
            number = signals.deadly() => return Ok(ExitCode::from(interrupted_by(number))),
            never = explain_delay(store, &job.name, patience) => match never {},
        };
        covers::tell(store)?;
        let result = of_client(store, &client, job, &mut signals).await;
        // On every path: the others would wait for the position in the queue, or for the lock, of a process that has gone.
        client.close(Duration::ZERO).await;
        result
    })
}

async fn of_client(
    store: &StoreArgs,
    client: &Client,
    job: &OnceArgs,
    signals: &mut Signals,
) -> Outcome {
    let once = job.job(client);
    let begun = tokio::select! {
        begun = once.begin() => begun?,
        number = signals.deadly() => return Ok(ExitCode::from(interrupted_by(number))),
        never = group::reap_orphans() => match never {},
    };
    match begun {
        Begun::Attempt(attempt) => run(attempt, job, signals).await,
        Begun::Done(mark) => {
            let (code, why) = why_done(&mark);
            Ok(job.ran_nothing(store, code, &why))
        }
        Begun::Running(holder) => {
            let holder = holder.as_ref().map(holder_as_text);
            let holder = holder.unwrap_or_else(|| "another process".to_owned());
            let why = format!("its lock is held by {holder}");
            Ok(job.ran_nothing(store, job.code_of_running(), &why))
        }
    }
}

async fn run(attempt: OnceAttempt, job: &OnceArgs, signals: &mut Signals) -> Outcome {
    let held = Held {
        guard: attempt.guard().reenter().into(),
        token: Some(attempt.run().token()),
        run: Some(attempt.run().clone()),
        term: None,
    };
    let running = match Running::start(&held, &job.child) {
        Ok(running) => running,
        Err(failure) => {
            drop(held);
            let mark = attempt.fail(&failure.message);
            let marked = confirmed(mark, &job.name, signals).await;
            return match marked {
                Ok(Err(error)) => Err(error.into()),
                _ => Err(failure),
            };
        }
    };
    let Over { code, for_loss, .. } = running.until_it_ends(&held.guard, signals).await;
    drop(held);
    let mark = async {
        match code {
            0 => attempt.succeed().await,
            _ if for_loss => {
                attempt
                    .fail("it ran for too long, or its lock was lost")
                    .await
            }
            code => attempt.fail(format!("exit code {code}")).await,
        }
    };
    match confirmed(mark, &job.name, signals).await {
        Err(number) if code == 0 => Ok(ExitCode::from(by_signal(number))),
        Ok(Err(error)) if code == 0 => Err(error.into()),
        Ok(Err(error)) => {
            say(&error);
            Ok(ExitCode::from(code))
        }
        Ok(Ok(())) | Err(_) => Ok(ExitCode::from(code)),
    }
}

/// Waits until the store has confirmed how the run ended, which it may do for a lease. `Err`: a signal has ended the wait.
async fn confirmed(
    mark: impl Future<Output = tidelock::Result<()>>,
    name: &str,
    signals: &mut Signals,
) -> Result<tidelock::Result<()>, i32> {
    let interrupted = async {
        let number = signals.deadly().await;
        tokio::time::sleep(LAST_TRY).await;
        number
    };
    tokio::select! {
        biased; // a mark that is confirmed counts, even if the time is over at the same moment
        marked = mark => Ok(marked),
        number = interrupted => {
            say(format!(
                "{name}: the store has not confirmed how the run ended; its slot may be run again"
            ));
            Err(number)
        }
    }
}
