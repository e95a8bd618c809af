//! Doctor: finds what weakens the locks of a cluster, and checks the cluster when a client connects.
//!
//! Missing permissions are reported as findings, not as errors.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{Finding, Severity};
use crate::store::BootInstant;
use crate::store::etcd::Etcd;
use crate::store::etcd::api::{MemberListResponse, Nothing, StatusResponse, TxnRequest};
use crate::store::etcd::calls::{created, get, ops, put};
use crate::store::etcd::errors::untouched;

/// Lower bound of the server's version: the oldest one that is tested.
const OLDEST_VERSION: (u32, u32) = (3, 4);

impl Etcd {
    /// Handshake at connect: asks the members in turn, each with a share of the time, until one of them can serve us.
    ///
    /// A member that is frozen, has no leader or is a learner accepts connections all the same. We do not leave it to the
    /// next connect to go on: a new client starts with the first member again, and would never get past it.
    pub(crate) async fn greet(&self) -> Result<()> {
        let endpoint = &self.connection.endpoint;
        let deadline = self.connection.deadline();
        let mut left = u32::try_from(endpoint.places.len()).unwrap_or(1);
        loop {
            let member = self.connection.get(deadline).await?;
            let now = endpoint.timers.now();
            let share = deadline.since(now) / left.max(1);
            match self.greet_member(now + share).await {
                Err(error) if error.is_retryable() && left > 1 => {
                    tracing::debug!(%error, "a member of etcd cannot serve; the next one is tried");
                    self.connection.retire(&member);
                    left -= 1;
                }
                answer => return answer,
            }
        }
    }

    /// Checks the version of the member that we are connected to, that the cluster has a leader, and that we may read.
    async fn greet_member(&self, deadline: BootInstant) -> Result<()> {
        if let Some(status) = self.status(deadline).await?
            && version(&status.version) < OLDEST_VERSION
        {
            return Err(Error::new(ErrorKind::Unsupported).because(format!(
                "etcd {} is too old; 3.4 is the oldest that can be used",
                status.version
            )));
        }
        // The key does not exist. The read is linearizable, so it needs a leader; and it needs the permission to read.
        let own = self.shared.keys.client_of("");
        let looked = self.connection.range(get(&own), deadline).await;
        looked.map(drop).map_err(untouched)
    }

    /// `None`: the user may not see it. Some versions, among them 3.5.28, show it only to users with the role `root`. None of
    /// them is too old.
    async fn status(&self, deadline: BootInstant) -> Result<Option<StatusResponse>> {
        let path = "/etcdserverpb.Maintenance/Status";
        let status = self.connection.ask(path, Nothing {}, deadline).await;
        match status.map_err(untouched) {
            Err(error) if error.kind() == ErrorKind::Refused => Ok(None),
            status => status.map(Some),
        }
    }

    /// Runs all checks and returns their findings.
    pub(crate) async fn find_weaknesses(&self) -> Result<Vec<Finding>> {
        let deadline = self.connection.deadline();
        let status = self.status(deadline).await?;
        let mut findings = vec![match &status {
            Some(status) => Finding::new(
                Severity::Good,
                "version",
                format!("etcd {}", status.version),
                "one that is tested: 3.4 and later",
            ),
            None => Finding::new(
                Severity::Advice,
                "version",
                "cannot see: this version of etcd shows its status only to users with the role root",
                "its version, and whether there is an alarm, are not known",
            ),
        }];
        findings.push(self.members(deadline).await?);
        if let Some(status) = status.filter(|status| !status.errors.is_empty()) {
            let alarm = Finding::new(
                Severity::Danger,
                "alarms",
                status.errors.join("; "),
                "while there is an alarm, locks may be neither given nor renewed",
            );
            findings
                .push(alarm.advise("free space or repair the member, then `etcdctl alarm disarm`"));
        }
        findings.push(self.shortest(deadline).await?);
        findings.extend(self.barred(deadline).await?);
        Ok(findings)
    }

    /// A finding if we may not write. Sends a put under a condition that no key can meet, so nothing is ever written;
    /// etcd still checks the permission.
    async fn barred(&self, deadline: BootInstant) -> Result<Option<Finding>> {
        let key = self.shared.keys.client_of("");
        let never = TxnRequest {
            compare: vec![created(key.as_bytes(), -1)],
            success: ops([put(&key, "", 0)]),
            failure: Vec::new(),
        };
        match self
            .connection
            .txn(never, deadline)
            .await
            .map_err(untouched)
        {
            Err(error) if error.kind() == ErrorKind::Refused => {
                let found = format!("this user may not write: {error}");
                let finding = Finding::new(
                    Severity::Danger,
                    "rights",
                    found,
                    "no lock can be taken or given back",
                );
                Ok(Some(finding.advise(
                    "give its role readwrite on the prefix: etcdctl role grant-permission",
                )))
            }
            answer => answer.map(|_| None),
        }
    }

    /// Checks how many members may fail.
    async fn members(&self, deadline: BootInstant) -> Result<Finding> {
        let path = "/etcdserverpb.Cluster/MemberList";
        let list = self
            .connection
            .ask::<_, MemberListResponse>(path, Nothing {}, deadline)
            .await;
        let list = match list.map_err(untouched) {
            Ok(list) => list.members.len(),
            Err(error) if error.kind() == ErrorKind::Refused => 0,
            Err(error) => return Err(error),
        };
        let found = format!("{list} in the cluster");
        Ok(match list {
            0 => Finding::new(
                Severity::Advice,
                "members",
                "cannot see: the list of members is not allowed",
                "how many members may fail is not known",
            ),
            1 => Finding::new(
                Severity::Advice,
                "members",
                found,
                "while it is down nobody gets a lock, and leases end",
            )
            .advise("three members survive the failure of one"),
            even if even % 2 == 0 => Finding::new(
                Severity::Advice,
                "members",
                found,
                "one more could fail without harm if there were one less",
            )
            .advise("have an odd number of them"),
            odd => Finding::new(
                Severity::Good,
                "members",
                found,
                format!("{} may fail", odd / 2),
            ),
        })
    }

    /// Compares our lease with the shortest lease of the cluster: etcd grants none that is shorter than its elections
    /// take.
    async fn shortest(&self, deadline: BootInstant) -> Result<Finding> {
        let lease = self.side_lease(Duration::from_secs(1), deadline).await?;
        self.revoke_in_background(vec![lease.id]);
        let found = format!("{} s", lease.ttl.as_secs());
        let own = self.shared.lease;
        Ok(if own < lease.ttl {
            Finding::new(
                Severity::Advice,
                "shortest lease",
                found,
                format!("a lock of a holder that has died stays taken for that long, not for the {own:?} of this client"),
            )
            .advise("ask for a longer lease, or give the members a shorter --election-timeout")
        } else {
            Finding::new(
                Severity::Good,
                "shortest lease",
                found,
                "leases are rounded up to whole seconds",
            )
        })
    }
}

/// Major and minor version; 0 for a part that is not a number.
fn version(text: &str) -> (u32, u32) {
    let mut parts = text.split('.').map_while(|part| part.parse().ok());
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}
