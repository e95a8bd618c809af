//! Renews the leases of many locks with one script, in both layouts.

use std::time::Duration;

use futures_util::future::join_all;

use crate::error::{Error, ErrorKind, ReplyScope, Result};
use crate::store::redis::layouts::job::LockJob;
use crate::store::redis::replicas::Purpose;
use crate::store::redis::topology::cluster::ClusterNode;
use crate::store::redis::topology::job::ScriptJob;
use crate::store::redis::wire::errors::{ServerError, after_a_change, unexpected};
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::wire::script::Script;
use crate::store::redis::{Redis, keys, millis};
use crate::store::{Renewal, Renewed, ReplicaAck};

impl Redis {
    /// Runs the script of a batch. Its keys are the locks and `more_keys`; its arguments are the lease and the owner
    /// of each lock, and `more_args`.
    pub(crate) async fn renew_batch(
        &self,
        script: &'static Script,
        batch: &[Renewal],
        more_keys: Vec<String>,
        more_args: &[&str],
    ) -> Result<Vec<Renewed>> {
        let names = batch.iter().map(|renewal| renewal.ticket.name.as_str());
        let keys: Vec<&str> = names.chain(more_keys.iter().map(String::as_str)).collect();
        let mut leases = vec![itoa::Buffer::new(); batch.len()];
        let owners: Vec<_> = batch
            .iter()
            .map(|one| keys::owner_of(&one.ticket))
            .collect();
        let each = leases.iter_mut().zip(batch).zip(&owners);
        let each = each.flat_map(|((text, renewal), owner)| {
            let lease = text.format(millis(renewal.lease));
            [lease, &**owner]
        });
        let args: Vec<&str> = each.chain(more_args.iter().copied()).collect();
        self.run_renewal(script, &keys, &args, batch, None).await
    }

    /// Runs the script of a renewal: on the server of its keys, or on this node.
    pub(crate) async fn run_renewal(
        &self,
        script: &'static Script,
        keys: &[&str],
        args: &[&str],
        batch: &[Renewal],
        node: Option<&ClusterNode>,
    ) -> Result<Vec<Renewed>> {
        // One `WAIT` for the strictest policy of the batch; each renewal is judged by its own policy.
        let strictest = batch.iter().map(|renewal| renewal.wish).max();
        let shortest = batch.iter().map(|renewal| renewal.lease).min();
        let job = LockJob {
            script: ScriptJob {
                script,
                keys,
                args,
                deadline: self.router.deadline(),
            },
            purpose: Purpose::Renew,
            replicas: strictest.unwrap_or(ReplicaAck::Off),
            lease: shortest.unwrap_or(Duration::ZERO),
            policy: &self.shared.ack_policy,
        };
        let (reply, pending) = match node {
            Some(node) => self.router.run_on(node, &job).await?,
            None => self.router.run(&job).await?,
        };
        let answers = match reply.list() {
            Some(answers) if answers.len() == batch.len() => answers,
            _ => return Err(unexpected(&reply)),
        };
        let policy = &self.shared.ack_policy;
        let report = match pending {
            Some(pending) => Some(policy.report(pending).await),
            None => None,
        };
        let each = answers.iter().zip(batch);
        Ok(each
            .map(|(answer, renewal)| match (renewed(answer), &report) {
                (Renewed::Kept, Some(report)) => match policy.judge_renewal(report, renewal) {
                    Ok(()) => Renewed::Kept,
                    Err(error) => Renewed::Failed(error),
                },
                (other, _) => other,
            })
            .collect())
    }

    /// Renews a batch, and each lock on its own if the server refuses the batch. It checks the rights to all keys before a
    /// script runs, so one forbidden name would cost the whole batch its leases. The same holds while the slot migrates
    /// and some of its keys are on the other node already, and behind a proxy that refuses keys of several slots.
    ///
    /// The batch may have been renewed in spite of the error. A second renewal changes nothing then.
    ///
    /// Each single renewal has the full response timeout. That is safe: the engine counts a renewed lease from before
    /// the first attempt, and the steward, which retries on its own schedule, does not wait for any of them.
    pub(crate) async fn renew_or_split<'a, F>(
        &self,
        batch: &'a [Renewal],
        renew: impl Fn(&'a [Renewal]) -> F,
    ) -> Result<Vec<Renewed>>
    where
        F: Future<Output = Result<Vec<Renewed>>>,
    {
        let (one_at_a_time, in_doubt) = match renew(batch).await {
            Err(error) if batch.len() > 1 && may_split(&error) => {
                (batch.chunks(1).map(renew), error.outcome_unknown())
            }
            result => return result,
        };
        one_by_one(join_all(one_at_a_time).await, in_doubt)
    }
}

/// The answers of a batch that was renewed lock by lock. `in_doubt`: the request for the whole batch may have run.
pub(crate) fn one_by_one(
    results: Vec<Result<Vec<Renewed>>>,
    in_doubt: bool,
) -> Result<Vec<Renewed>> {
    let told = |error| after_a_change(in_doubt, error);
    let results = results.into_iter().map(|result| result.map_err(told));
    let mut results: Vec<_> = results.collect();
    let first = results.iter().position(Result::is_err);
    if let Some(first) = first.filter(|_| results.iter().all(Result::is_err)) {
        // No lock was renewed: an outage, which is reported as one. One error stands for all locks, so it may not say
        // that nothing has run if that is in doubt for one of them.
        let in_doubt =
            |result: &Result<Vec<Renewed>>| result.as_ref().is_err_and(Error::outcome_unknown);
        let at = results.iter().position(in_doubt).unwrap_or(first);
        let error = results.swap_remove(at);
        // Each lock had its own request, so the batch is not split again.
        return error.map_err(|error| error.replied(ReplyScope::Server));
    }
    Ok(results
        .into_iter()
        .map(|result| match result {
            Ok(mut answers) => answers.pop().unwrap_or(Renewed::Gone),
            Err(error) => Renewed::Failed(error),
        })
        .collect())
}

/// The answers of a part of a batch. An error of the part is that of each of its locks.
pub(crate) fn each_of(result: Result<Vec<Renewed>>, count: usize) -> Vec<Renewed> {
    match result {
        Ok(each) => each,
        Err(error) => {
            let failed = |error: &Error| Renewed::Failed(error.retold());
            (0..count).map(|_| failed(&error)).collect()
        }
    }
}

/// Whether a lock of the failed batch may be renewed on its own. Only the errors of the whole server say no: they
/// are few, and servers and proxies have too many errors that concern one request for us to know them all.
///
/// Without a reply the answer is no: single renewals would wait for the same server once more.
pub(crate) fn may_split(error: &Error) -> bool {
    match error.reply_scope() {
        Some(ReplyScope::Request) => true,
        Some(ReplyScope::Server) => false,
        // Not sent: one lock of the batch may want acknowledgements that this server cannot give.
        None => error.kind() == ErrorKind::Refused,
    }
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
    use crate::store::redis::wire::errors::{unanswered, unsent};

    #[test]
    fn a_batch_is_split_unless_the_error_concerns_the_whole_server() {
        for (text, splits) in [
            ("ERR eval/evalsha command keys must be in same slot", true),
            ("ERR something new", true),
            ("PROXYERR", true),
            (
                "CROSSSLOT Keys in request don't hash to the same slot",
                true,
            ),
            (
                "TRYAGAIN Multiple keys request during rehashing of slot",
                true,
            ),
            ("MOVED 3999 127.0.0.1:6381", true),
            ("NOPERM No permissions to access a key", true),
            ("WRONGTYPE Operation against a key", true),
            (
                "EXECABORT Transaction discarded because of previous errors.",
                true,
            ),
            ("NOAUTH Authentication required.", false),
            ("WRONGPASS invalid username-password pair", false),
            ("DENIED Redis is running in protected mode", false),
            ("LOADING Redis is loading the dataset in memory", false),
            ("BUSY Redis is busy running a script.", false),
            (
                "UNKILLABLE Sorry the script already executed write commands",
                false,
            ),
            (
                "READONLY You can't write against a read only replica.",
                false,
            ),
            ("MASTERDOWN Link with MASTER is down", false),
            ("CLUSTERDOWN The cluster is down", false),
            ("NOREPLICAS Not enough good replicas to write.", false),
            ("MISCONF Redis is configured to save RDB snapshots", false),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                false,
            ),
            (
                "ERR Error running script (call to f_00): @user_script:5: -OOM command not allowed",
                false,
            ),
            ("ERR max number of clients reached", false),
        ] {
            let error = ServerError::parse(text).error();
            assert_eq!(may_split(&error), splits, "{text}");
        }
    }

    #[test]
    fn a_batch_without_a_reply_is_not_split() {
        assert!(!may_split(&unanswered("no answer within 1s")));
        assert!(!may_split(&unexpected(&Reply::Nil)));
        assert!(!may_split(&unsent("no connection")));
        let busy = unsent("the key changed during every try");
        assert!(may_split(&busy.replied(ReplyScope::Request)));
        assert!(may_split(&Error::new(ErrorKind::Refused)), "a policy");
    }

    #[test]
    fn a_split_batch_fails_as_one_only_if_no_lock_was_renewed() {
        let refused = || Err(ServerError::parse("NOPERM no").error());
        let kept = || Ok(vec![Renewed::Kept]);
        let each = one_by_one(vec![refused(), kept()], false).unwrap();
        assert!(
            matches!(&each[..], [Renewed::Failed(error), Renewed::Kept] if error.kind() == ErrorKind::Refused)
        );
        let error = one_by_one(vec![refused(), refused()], false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(!may_split(&error), "each lock had its request");
        let lost = vec![refused(), Err(unanswered("no answer within 1s"))];
        assert!(one_by_one(lost, false).unwrap_err().outcome_unknown());
    }

    #[test]
    fn a_lock_of_a_batch_in_doubt_is_in_doubt_if_its_own_request_was_not_sent() {
        let results = || vec![Err(unsent("no connection")), Ok(vec![Renewed::Kept])];
        for in_doubt in [true, false] {
            let each = one_by_one(results(), in_doubt).unwrap();
            assert!(
                matches!(&each[..], [Renewed::Failed(error), Renewed::Kept] if error.outcome_unknown() == in_doubt)
            );
        }
    }

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
