//! A script that changes a lock.

use std::time::Duration;

use crate::error::Result;
use crate::store::redis::replicas;
use crate::store::redis::replicas::{AckPolicy, PendingAck, Purpose};
use crate::store::redis::topology::connection::Connection;
use crate::store::redis::topology::job::{ScriptJob, ServerJob};
use crate::store::redis::topology::live_connection::LiveConnection;
use crate::store::redis::wire::reply::Reply;
use crate::store::{BootInstant, ReplicaAck};

/// A script, and the replicas that must acknowledge it.
pub(crate) struct LockJob<'a> {
    pub(crate) script: ScriptJob<'a>,
    pub(crate) purpose: Purpose,
    pub(crate) replicas: ReplicaAck,
    pub(crate) lease: Duration,
    pub(crate) policy: &'a AckPolicy,
}

impl LockJob<'_> {
    /// Whether the reply is enough. The common case is an attempt at a server without replicas; it costs one atomic
    /// load, no lock and no clock read. A renewal always asks: the policy must notice when the last replica leaves.
    fn needs_no_replica(&self, connection: &Connection, conn: &LiveConnection) -> bool {
        let acquires = matches!(self.purpose, Purpose::Acquire);
        self.replicas == ReplicaAck::Off
            || acquires
                && self.replicas <= ReplicaAck::Any
                && (conn.server.replication).is_alone(self.script.deadline, connection.limit())
    }
}

impl ServerJob for LockJob<'_> {
    /// `None`: no replica was asked.
    type Output = (Reply, Option<PendingAck>);

    fn key(&self) -> &str {
        self.script.key()
    }

    fn deadline(&self) -> BootInstant {
        self.script.deadline
    }

    async fn run(&self, connection: &Connection, asking: bool) -> Result<Self::Output> {
        let conn = connection.get(self.script.deadline).await?;
        if self.needs_no_replica(connection, &conn) {
            let reply = self.script.eval(connection, &conn, asking).await?;
            return Ok((reply, None));
        }
        let demand = (self.policy).demand(self.purpose, self.replicas, self.lease);
        let background = &self.policy.background;
        // Boxed: inline, the state of this rare path would enlarge every request.
        let eval = replicas::eval(connection, &conn, asking, &self.script, demand, background);
        let (reply, pending) = Box::pin(eval).await?;
        Ok((reply, Some(pending)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::layouts::scripts;
    use crate::store::redis::wire::tests::{LIMIT, simulated};

    #[tokio::test]
    async fn a_script_that_changes_a_lock_is_for_the_server_of_its_first_key() {
        let (background, timers) = simulated();
        let deadline = timers.now() + LIMIT;
        let policy = AckPolicy::new(LIMIT, timers, background);
        let job = LockJob {
            script: ScriptJob {
                script: &scripts::ACQUIRE,
                keys: &["stock", "tombstone"],
                args: &[],
                deadline,
            },
            purpose: Purpose::Acquire,
            replicas: ReplicaAck::Off,
            lease: LIMIT,
            policy: &policy,
        };
        assert_eq!((job.key(), job.deadline()), ("stock", deadline));
    }
}
