//! The marks of a job's slots: keys of tidelock, in the cluster slot of the job's lock.

use std::time::SystemTime;

use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::since_epoch;
use crate::store::redis::layouts::job::LockJob;
use crate::store::redis::layouts::scripts;
use crate::store::redis::replicas::{PendingAck, Purpose};
use crate::store::redis::topology::job::ScriptJob;
use crate::store::redis::wire::errors::unexpected;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::wire::request::Request;
use crate::store::redis::wire::script::Script;
use crate::store::redis::{Redis, keys, millis};
use crate::store::{BoxFuture, MarkChange, Marks, Name};

/// The time in an answer to `TIME`: seconds, and microseconds. A broken server or proxy may send any numbers.
pub(crate) fn told_time(reply: &Reply) -> Option<SystemTime> {
    let part = |at: usize| reply.list()?.get(at)?.text()?.parse::<u64>().ok();
    let millis = part(0)?.saturating_mul(1000);
    Some(since_epoch(millis.saturating_add(part(1)? / 1000)))
}

impl Redis {
    async fn wall_time(&self, name: &Name) -> Result<SystemTime> {
        self.router.check(name)?;
        let (key, time) = (keys::marks(name), Request::new("TIME"));
        let reply = self.router.ask(&key, &time, self.router.deadline()).await?;
        told_time(&reply).ok_or_else(|| unexpected(&reply))
    }

    async fn read_mark(&self, name: &Name, slot: &str) -> Result<Option<String>> {
        let reply = self.run_marks(&scripts::READ_MARK, name, &[slot]).await?;
        match &reply {
            Reply::Nil => Ok(None),
            mark => {
                let text = mark.text().ok_or_else(|| unexpected(mark))?;
                Ok(Some(text.to_owned()))
            }
        }
    }

    async fn replace_mark(&self, name: &Name, change: MarkChange<'_>) -> Result<bool> {
        self.router.check(name)?;
        let keep = millis(change.keep).to_string();
        let mut args = vec![change.slot, change.after, &keep];
        args.extend(change.before);
        let (marks, ends) = (keys::marks(name), keys::mark_ends(name));
        let job = LockJob {
            script: ScriptJob {
                script: &scripts::REPLACE_MARK,
                keys: &[&marks, &ends],
                args: &args,
                deadline: self.router.deadline(),
            },
            purpose: Purpose::Acquire,
            replicas: change.wish,
            lease: self.shared.lease,
            policy: &self.shared.ack_policy,
        };
        match self.router.run(&job).await? {
            (Reply::Int(0), _) => Ok(false),
            (Reply::Int(1), None) => Ok(true),
            (Reply::Int(1), Some(pending)) => self.mark_acknowledged(pending).await,
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Waits for the replicas after a mark. If too few acknowledge, the mark stays on this server, and a failover may
    /// lose it.
    async fn mark_acknowledged(&self, pending: PendingAck) -> Result<bool> {
        let policy = &self.shared.ack_policy;
        let report = policy.report(pending).await;
        match policy.judge_grant(&report) {
            Ok(_) => Ok(true),
            Err(short) => Err(Error::new(ErrorKind::OutcomeUnknown).because(format!(
                "a mark was written, but a failover may lose it: {}",
                short.detail().unwrap_or_default()
            ))),
        }
    }

    async fn newest_marks(&self, name: &Name, limit: u32) -> Result<Vec<(String, String)>> {
        let limit = limit.to_string();
        let reply = self
            .run_marks(&scripts::NEWEST_MARKS, name, &[&limit])
            .await?;
        let texts = reply.list().ok_or_else(|| unexpected(&reply))?;
        let pairs = texts.chunks_exact(2).filter_map(|pair| {
            let [slot, mark] = pair else { return None };
            Some((slot.text()?.to_owned(), mark.text()?.to_owned()))
        });
        Ok(pairs.collect())
    }

    async fn run_marks(
        &self,
        script: &'static Script,
        name: &Name,
        args: &[&str],
    ) -> Result<Reply> {
        self.router.check(name)?;
        let keys = [keys::marks(name), keys::mark_ends(name)];
        let job = ScriptJob {
            script,
            keys: &[&keys[0], &keys[1]],
            args,
            deadline: self.router.deadline(),
        };
        self.router.run(&job).await
    }
}

impl Marks for Redis {
    fn now<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<SystemTime>> {
        Box::pin(self.wall_time(name))
    }

    fn read<'a>(&'a self, name: &'a Name, slot: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        Box::pin(self.read_mark(name, slot))
    }

    fn replace<'a>(
        &'a self,
        name: &'a Name,
        change: MarkChange<'a>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.replace_mark(name, change))
    }

    fn history<'a>(
        &'a self,
        name: &'a Name,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>> {
        Box::pin(self.newest_marks(name, limit))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::redis::tests::ONE_REPLICA;
    use crate::store::redis::wire::tests::ScriptedServer;
    use crate::store::{ReplicaAck, Store};

    #[test]
    fn the_time_of_any_answer_is_read() {
        let told = |parts: &[&str]| {
            let parts = parts.iter().map(|part| Reply::Text((*part).into()));
            told_time(&Reply::List(parts.collect()))
        };
        let good = told(&["1785000000", "123456"]);
        assert_eq!(good, Some(since_epoch(1_785_000_000_123)));
        let most = u64::MAX.to_string();
        assert_eq!(told(&[&*most, &*most]), Some(since_epoch(u64::MAX)));
        assert_eq!(told(&["7"]), None);
        assert_eq!(told(&["-7", "0"]), None);
        assert_eq!(told_time(&Reply::Nil), None);
    }

    /// A store whose server answers each script with `answer`, and `WAIT` with this number. It has a replica.
    async fn store(answer: &str, acknowledged: u32) -> (ScriptedServer, Store) {
        let server = ScriptedServer::start().await;
        server.on("EVALSHA", answer);
        server.on("INFO replication", ONE_REPLICA);
        server.on("WAIT", &acknowledged.to_string());
        server.on("TIME", "[ '1785000000 '123456 ]");
        let store = server.store().await;
        (server, store)
    }

    /// The call of a script with these arguments.
    fn call(args: &str) -> String {
        format!("tidelock:marks:{{job}} tidelock:mark_ends:{{job}} | {args}")
    }

    fn kind<T>(result: Result<T>) -> Result<T, ErrorKind> {
        result.map_err(|error| error.kind())
    }

    #[tokio::test]
    async fn a_mark_is_read_as_the_server_tells_it() {
        let name = Name::new("job").unwrap();
        for (answer, expected) in [
            ("done", Ok(Some("done".to_owned()))),
            ("nil", Ok(None)),
            ("1", Err(ErrorKind::OutcomeUnknown)),
        ] {
            let (server, store) = store(answer, 0).await;
            let marks = store.front.extensions().need_marks().unwrap();
            assert_eq!(kind(marks.read(&name, "noon").await), expected);
            assert_eq!(server.calls(&scripts::READ_MARK), [call("noon")]);
            let now = marks.now(&name).await.unwrap();
            assert_eq!(now, since_epoch(1_785_000_000_123));
        }
    }

    #[tokio::test]
    async fn the_newest_marks_come_with_their_slots() {
        let name = Name::new("job").unwrap();
        let pair = |slot: &str, mark: &str| (slot.to_owned(), mark.to_owned());
        for (answer, expected) in [
            ("[ ]", Ok(vec![])),
            ("[ b '2 a '1 ]", Ok(vec![pair("b", "2"), pair("a", "1")])),
            ("nil", Err(ErrorKind::OutcomeUnknown)),
        ] {
            let (server, store) = store(answer, 0).await;
            let marks = store.front.extensions().need_marks().unwrap();
            assert_eq!(kind(marks.history(&name, 7).await), expected);
            assert_eq!(server.calls(&scripts::NEWEST_MARKS), [call("7")]);
        }
    }

    /// Otherwise a failover could make a job run twice.
    #[tokio::test]
    async fn a_mark_counts_as_written_once_enough_replicas_have_it() {
        let name = Name::new("job").unwrap();
        for (answer, wish, acknowledged, expected) in [
            ("0", ReplicaAck::Off, 0, Ok(false)),
            ("1", ReplicaAck::Off, 0, Ok(true)),
            ("2", ReplicaAck::Off, 0, Err(ErrorKind::OutcomeUnknown)),
            ("0", ReplicaAck::Any, 0, Ok(false)),
            ("1", ReplicaAck::Any, 1, Ok(true)),
            ("1", ReplicaAck::Any, 0, Err(ErrorKind::OutcomeUnknown)),
        ] {
            let (server, store) = store(answer, acknowledged).await;
            let marks = store.front.extensions().need_marks().unwrap();
            let keep = Duration::from_secs(60);
            let change = MarkChange {
                wish,
                ..MarkChange::unacknowledged("noon", Some("begun"), "done", keep)
            };
            let replaced = kind(marks.replace(&name, change).await);
            assert_eq!(replaced, expected, "{answer:?} {wish} {acknowledged}");
            let sent = [call("noon done 60000 begun")];
            assert_eq!(server.calls(&scripts::REPLACE_MARK), sent);
        }
    }
}
