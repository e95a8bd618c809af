//! Renews the locks of a set, and restores a lock at a server that has lost it.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;

use crate::error::{Error, ErrorKind, Result};
use crate::store::set::shared::{Rule, Shared, Side};
use crate::store::{AttemptRequest, BoxFuture, Renewal, Renewed};
use crate::types::Escaped;

/// Renews a batch at every member. Returns one result for each lock, in order.
pub(crate) async fn renew(
    set: &Arc<Shared>,
    side: Side,
    batch: &[Renewal],
) -> Result<Vec<Renewed>> {
    let restores = matches!(set.rule, Rule::Majority(_));
    if let Rule::Majority(quorum) = &set.rule {
        // An extension may be longer than every lease that was acquired. A server that restarts afterwards must not vote
        // while the extended lock is held elsewhere; otherwise a second caller could get a majority.
        for renewal in batch {
            quorum.note_lease(renewal.lease);
        }
    }
    let (parts, now) = (set.members.len(), set.timers.now());
    // We register the renewals before we send them. Otherwise a release that begins meanwhile could not stop a
    // restore.
    let _in_flight = restores.then(|| set.in_doubt_log.renewing(batch, parts, now));
    let asked = (0..parts)
        .filter(|part| !set.members[*part].is_twin())
        .map(|part| async move { (part, renew_at(set, side, batch, part).await) });
    let mut tallies: Vec<Tally> = batch.iter().map(|_| Tally::default()).collect();
    for (part, answers) in join_all(asked).await {
        match answers {
            Ok(answers) => {
                for (tally, answer) in tallies.iter_mut().zip(answers) {
                    tally.add(part, answer);
                }
            }
            Err(error) => {
                for tally in &mut tallies {
                    tally.add(part, Renewed::Failed(again(&error)));
                }
            }
        }
    }
    let each = batch.iter().zip(tallies);
    let verdicts = each.map(|(renewal, tally)| outcome(set, side, renewal, tally));
    Ok(verdicts.collect())
}

/// The same error for another lock of the batch.
fn again(error: &Error) -> Error {
    Error::new(error.kind()).because(error.detail().unwrap_or_default())
}

/// The answers of the members for one lock.
#[derive(Default)]
struct Tally {
    kept: Vec<usize>,
    /// Where it is not held, or not alone.
    gone: Vec<usize>,
    /// At one of these something else stands.
    wrong_type: bool,
    failed: Vec<(usize, Error)>,
}

impl Tally {
    fn add(&mut self, part: usize, answer: Renewed) {
        match answer {
            Renewed::Kept => self.kept.push(part),
            Renewed::Gone => self.gone.push(part),
            Renewed::WrongType => {
                self.gone.push(part);
                self.wrong_type = true;
            }
            Renewed::Failed(error) => self.failed.push((part, error)),
        }
    }
}

async fn renew_at(
    set: &Shared,
    side: Side,
    batch: &[Renewal],
    part: usize,
) -> Result<Vec<Renewed>> {
    let member = &set.members[part];
    let own = batch.iter().map(|renewal| Renewal {
        ticket: member.ticket(&renewal.ticket),
        lease: renewal.lease,
        wish: renewal.wish,
    });
    let own: Vec<Renewal> = own.collect();
    let store = Arc::clone(set.member(part, side));
    let call: BoxFuture<'static, _> = Box::pin(async move { store.renew(&own).await });
    match set.rule {
        Rule::All => call.await,
        Rule::Majority(_) => {
            let answers = set.bounded(call).await?;
            let Err(error) = learn_run(set, side, part).await else {
                return Ok(answers);
            };
            // The lock is held there, but perhaps by a server that another member counts already. What it told before is no
            // proof of another one: the other member has the run after a restart. It is asked again with the next renewal.
            let uncounted = answers.into_iter().map(|answer| match answer {
                Renewed::Kept => Renewed::Failed(again(&error)),
                other => other,
            });
            Ok(uncounted.collect())
        }
    }
}

/// Asks the server for its run, unless that is known. A member that has not answered an attempt yet, or not since the server
/// of another one restarted, may be another address of that server, and one server would count twice.
///
/// # Errors
/// It has not answered.
async fn learn_run(set: &Shared, side: Side, part: usize) -> Result<()> {
    let member = &set.members[part];
    if !member.must_be_asked_for_run() {
        return Ok(());
    }
    let store = Arc::clone(set.member(part, side));
    let call = Box::pin(async move {
        match store.extensions().server_runs {
            Some(runs) => runs.server_run().await,
            None => Ok(None),
        }
    });
    let told = set.bounded(call).await;
    set.note_run(part, &told);
    match told {
        Err(error) if error.is_retryable() => Err(error),
        // A refusal is an answer: the server does not tell its run.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// How many servers these members are. Those with the same run are one server under several addresses.
fn servers(set: &Shared, parts: &[usize]) -> usize {
    let mut runs = HashSet::new();
    let each = parts.iter().map(|part| set.members[*part].last_run());
    each.filter(|run| run.as_ref().is_none_or(|run| runs.insert(Arc::clone(run))))
        .count()
}

fn outcome(set: &Arc<Shared>, side: Side, renewal: &Renewal, tally: Tally) -> Renewed {
    let name = &renewal.ticket.name;
    let failed = tally.failed.iter().map(|(part, _)| *part);
    let not_gone: Vec<usize> = tally.kept.iter().copied().chain(failed).collect();
    let needed = match set.rule {
        Rule::All => not_gone.len() + tally.gone.len(), // of members that are the same lock, only one is asked
        Rule::Majority(_) => set.needed(),
    };
    if servers(set, &tally.kept) >= needed {
        for part in tally.gone {
            tracing::info!(lock = %name, member = %Escaped(&set.members[part].label), "this member has lost the lock; acquiring it there again");
            restore(set, side, renewal, part);
        }
        return Renewed::Kept;
    }
    // Even if every member that failed still holds the lock, too few members are left.
    if servers(set, &not_gone) < needed {
        let labels: Vec<&str> = tally
            .gone
            .iter()
            .map(|part| &*set.members[*part].label)
            .collect();
        tracing::warn!(lock = %name, gone = %Escaped(labels.join(", ")), "the lock of a set is lost");
        return if tally.wrong_type {
            Renewed::WrongType
        } else {
            Renewed::Gone
        };
    }
    let kind = ErrorKind::OutcomeUnknown;
    Renewed::Failed(crate::store::set::errors::of_parts(set, kind, tally.failed))
}

/// Restores a lock at a server that has lost it, while a majority holds it. The server counts again from the next
/// renewal on. This runs in the background, because nothing depends on it now.
fn restore(set: &Arc<Shared>, side: Side, renewal: &Renewal, part: usize) {
    let whole = renewal.ticket.clone();
    if !set.in_doubt_log.begin_restore(&whole, part) {
        return;
    }
    let ticket = set.members[part].ticket(&renewal.ticket);
    let ask = AttemptRequest::once(ticket, renewal.lease, renewal.wish);
    let set = Arc::clone(set);
    let background = set.background.clone();
    background.spawn(async move {
        let reply = set.member(part, side).attempt(&ask).await;
        let is_unknown = match reply.outcome {
            Err(error) if error.outcome_unknown() => {
                tracing::debug!(lock = %ask.ticket.name, %error, "cannot acquire the lock of this member again");
                true
            }
            _ => reply.in_doubt,
        };
        // If the outcome is unknown, the ticket stays in doubt there, and the release withdraws it.
        set.in_doubt_log.end_restore(&whole, part, !is_unknown);
    });
}

#[cfg(feature = "testing")]
#[cfg(test)]
mod tests;
