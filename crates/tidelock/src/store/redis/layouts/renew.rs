//! Renews the leases of many locks with one script.

use std::time::Duration;

use futures_util::future::join_all;

use crate::error::{Error, ErrorKind, Result};
use crate::store::redis::layouts::plain;
use crate::store::redis::layouts::plain::Layout;
use crate::store::redis::layouts::scripts;
use crate::store::redis::replicas::Purpose;
use crate::store::redis::wire::errors::{ServerError, server_error, unexpected};
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::{Redis, millis};
use crate::store::{Renewal, Renewed, ReplicaAck};

impl Redis {
    async fn renew_batch(&self, batch: &[Renewal]) -> Result<Vec<Renewed>> {
        let mut names: Vec<&str> = batch
            .iter()
            .map(|renewal| renewal.ticket.name.as_str())
            .collect();
        let tombstones: Vec<String> = match self.layout {
            Layout::Redisson => Vec::new(),
            Layout::Plain => batch.iter().map(plain::tombstone_of).collect(),
        };
        let script = match self.layout {
            Layout::Redisson => &scripts::RENEW,
            Layout::Plain => &scripts::PLAIN_RENEW,
        };
        names.extend(tombstones.iter().map(String::as_str));
        let mut leases = vec![itoa::Buffer::new(); batch.len()];
        let mut args: Vec<&str> = leases
            .iter_mut()
            .zip(batch)
            .flat_map(|(text, renewal)| {
                let lease = text.format(millis(renewal.lease));
                [lease, renewal.ticket.owner.text()]
            })
            .collect();
        if self.layout == Layout::Redisson {
            args.push(self.how());
        }
        let policy = batch.iter().map(|renewal| renewal.wish).max();
        let shortest = batch.iter().map(|renewal| renewal.lease).min();
        let demand = self.demand(
            Purpose::Renew,
            policy.unwrap_or(ReplicaAck::Off),
            shortest.unwrap_or(Duration::ZERO),
        );
        let (reply, receipt) = self
            .router
            .eval_acknowledged(script, &names, &args, demand, self.router.deadline())
            .await?;
        let answers = match reply.list() {
            Some(answers) if answers.len() == batch.len() => answers,
            _ => return Err(unexpected(&reply)),
        };
        // One `WAIT` for the strictest policy of the batch; each renewal is judged by its own policy.
        let ack = self.await_ack(receipt).await;
        let each = answers.iter().zip(batch);
        Ok(each
            .map(|(answer, renewal)| match renewed(answer) {
                Renewed::Kept => match self.believed(&ack, renewal, &demand) {
                    Ok(()) => Renewed::Kept,
                    Err(error) => Renewed::Failed(error),
                },
                other => other,
            })
            .collect())
    }

    /// Renews a batch, and each lock on its own if the batch fails because of one of them. The server checks the
    /// rights to all keys before a script runs, so one forbidden name would cost the whole batch its leases. The same
    /// holds while the slot migrates and some of its keys are on the other node already.
    ///
    /// Each single renewal has the full response timeout. That is safe: the engine counts a renewed lease from before
    /// the first attempt, and the steward, which retries on its own schedule, does not wait for any of them.
    pub(crate) async fn keep_each(&self, batch: &[Renewal]) -> Result<Vec<Renewed>> {
        if let Some(answers) = self.keep_unscripted(batch).await {
            return Ok(answers);
        }
        match self.renew_batch(batch).await {
            // This reply is the first to show that scripts are forbidden.
            Err(error) if self.learn(&error) => {
                Ok(self.keep_unscripted(batch).await.unwrap_or_default())
            }
            Err(error) if batch.len() > 1 && concerns_one(&error) => {
                let each = batch.chunks(1).map(|one| async move {
                    match self.renew_batch(one).await {
                        Ok(mut answers) => answers.pop().unwrap_or(Renewed::Gone),
                        Err(error) => Renewed::Failed(error),
                    }
                });
                Ok(join_all(each).await)
            }
            result => result,
        }
    }
}

fn concerns_one(error: &Error) -> bool {
    error.kind() == ErrorKind::Refused || server_error(error).is_some_and(ServerError::is_torn)
}

pub(crate) fn renewed(answer: &Reply) -> Renewed {
    match answer {
        Reply::Int(1) => Renewed::Kept,
        Reply::Int(0) => Renewed::Gone,
        Reply::Int(2) => Renewed::WrongType,
        Reply::Text(text) => {
            let error = ServerError::parse(&String::from_utf8_lossy(text)).error();
            if error.kind() == ErrorKind::WrongType {
                Renewed::WrongType // overwritten: the lock does not exist any more
            } else {
                Renewed::Failed(error)
            }
        }
        other => Renewed::Failed(unexpected(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_written_over_is_lost_and_other_trouble_is_not() {
        let text = |text: &str| Reply::Text(text.as_bytes().to_vec());
        let wrong = text("WRONGTYPE Operation against a key holding the wrong kind of value");
        assert!(matches!(renewed(&wrong), Renewed::WrongType));
        assert!(matches!(renewed(&Reply::Int(2)), Renewed::WrongType));
        for failure in ["OOM command not allowed", "NOPERM no", "ERR something new"] {
            assert!(matches!(renewed(&text(failure)), Renewed::Failed(_)));
        }
    }
}
