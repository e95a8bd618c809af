//! What the model of a server allows, and how it answers each request.

use tonic::{Code, Status};

use crate::store::etcd::api::{
    AuthenticateRequest, AuthenticateResponse, LeaseGrantRequest, LeaseRequest, LeaseResponse,
    MemberListResponse, Nothing, Op, PutRequest, PutResponse, RangeRequest, RangeResponse,
    StatusResponse, TxnRequest, TxnResponse,
};
use crate::store::etcd::tests::model::{lease_gone, unconditional};
use crate::store::etcd::tests::server::ServerState;

/// What a server is and allows.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) version: &'static str,
    pub(crate) alarms: Vec<String>,
    pub(crate) members: usize,
    pub(crate) hides_members: bool,
    /// The most operations of a transaction.
    pub(crate) most_ops: usize,
    /// Keys that contain this are refused.
    pub(crate) forbidden: Option<&'static str>,
    /// Leases of such keys are not kept alive, as by etcd 3.7.
    pub(crate) guards_leases: bool,
    /// Transactions that may write are refused.
    pub(crate) is_read_only: bool,
    /// The shortest lease, in seconds.
    pub(crate) shortest: i64,
    /// The answer to each request for a lease, whatever it asks for.
    pub(crate) granted: Option<LeaseResponse>,
    /// The rest of each lease, in seconds. `None`: all of it.
    pub(crate) left: Option<i64>,
    /// The password of each user. `None`: authentication is off.
    pub(crate) password: Option<&'static str>,
    /// How often somebody has logged in. The last token has this number.
    pub(crate) logins: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            version: "3.5.17",
            alarms: Vec::new(),
            members: 3,
            hides_members: false,
            most_ops: 128,
            forbidden: None,
            guards_leases: false,
            is_read_only: false,
            shortest: 1,
            granted: None,
            left: None,
            password: None,
            logins: 0,
        }
    }
}

impl Settings {
    fn check(&self, key: &[u8]) -> Result<(), Status> {
        let key = String::from_utf8_lossy(key);
        match self.forbidden {
            Some(forbidden) if key.contains(forbidden) => Err(denied()),
            _ => Ok(()),
        }
    }
}

fn denied() -> Status {
    Status::new(Code::PermissionDenied, "etcdserver: permission denied")
}

impl ServerState {
    /// Refuses a keep-alive of a lease with a key that is forbidden.
    pub(crate) fn check_lease(&self, id: i64) -> Result<(), Status> {
        let (settings, etcd) = (self.settings.lock().clone(), self.etcd.lock());
        if !settings.guards_leases {
            return Ok(());
        }
        let names = etcd.names().into_iter();
        let is_under = |name: &String| etcd.key(name).is_some_and(|key| key.lease == id);
        names
            .filter(is_under)
            .try_for_each(|name| settings.check(name.as_bytes()))
    }

    pub(crate) fn txn(&self, txn: &TxnRequest) -> Result<TxnResponse, Status> {
        let settings = self.settings.lock().clone();
        let lengths = [txn.compare.len(), txn.success.len(), txn.failure.len()];
        if lengths.iter().any(|length| *length > settings.most_ops) {
            let why = "etcdserver: too many operations in txn request";
            return Err(Status::new(Code::InvalidArgument, why));
        }
        let all = txn.success.iter().chain(&txn.failure);
        for op in all.filter_map(|op| op.op.as_ref()) {
            let (key, writes) = match op {
                Op::Range(range) => (&range.key, false),
                Op::Put(put) => (&put.key, true),
                Op::Delete(gone) => (&gone.key, true),
            };
            if writes && settings.is_read_only {
                return Err(denied());
            }
            settings.check(key)?;
        }
        self.etcd.lock().checked_txn(txn)
    }

    pub(crate) fn range(&self, range: &RangeRequest) -> Result<RangeResponse, Status> {
        self.settings.lock().check(&range.key)?;
        Ok(self.etcd.lock().read(range))
    }

    pub(crate) fn put(&self, put: &PutRequest) -> Result<PutResponse, Status> {
        let put = unconditional(Op::Put(put.clone()));
        let header = self.etcd.lock().checked_txn(&put)?.header;
        Ok(PutResponse { header })
    }

    pub(crate) fn grant(&self, asked: &LeaseGrantRequest) -> LeaseResponse {
        let settings = self.settings.lock().clone();
        if let Some(granted) = settings.granted {
            return granted;
        }
        let ttl = asked.ttl.max(settings.shortest);
        let id = self.etcd.lock().grant(ttl);
        LeaseResponse { id, ttl }
    }

    pub(crate) fn revoke(&self, lease: &LeaseRequest) -> Result<Nothing, Status> {
        if self.etcd.lock().end_lease(lease.id) {
            Ok(Nothing {})
        } else {
            Err(lease_gone())
        }
    }

    pub(crate) fn left(&self, lease: &LeaseRequest) -> LeaseResponse {
        let (id, ttl) = (lease.id, self.etcd.lock().ttl(lease.id));
        let left = self.settings.lock().left.unwrap_or(ttl);
        let ttl = if ttl == 0 { -1 } else { left };
        LeaseResponse { id, ttl }
    }

    pub(crate) fn log_in(
        &self,
        login: &AuthenticateRequest,
    ) -> Result<AuthenticateResponse, Status> {
        let mut settings = self.settings.lock();
        let Some(password) = settings.password else {
            let why = "etcdserver: authentication is not enabled";
            return Err(Status::new(Code::FailedPrecondition, why));
        };
        if login.password != password {
            let why = "etcdserver: authentication failed, invalid user ID or password";
            return Err(Status::new(Code::InvalidArgument, why));
        }
        settings.logins += 1;
        let token = format!("{}.{}", login.name, settings.logins);
        Ok(AuthenticateResponse { token })
    }

    pub(crate) fn status(&self) -> StatusResponse {
        let settings = self.settings.lock().clone();
        StatusResponse {
            version: settings.version.to_owned(),
            leader: 1,
            errors: settings.alarms,
        }
    }

    pub(crate) fn members(&self, _: &Nothing) -> Result<MemberListResponse, Status> {
        let settings = self.settings.lock();
        if settings.hides_members {
            return Err(denied());
        }
        let members = vec![Nothing {}; settings.members];
        Ok(MemberListResponse { members })
    }
}
