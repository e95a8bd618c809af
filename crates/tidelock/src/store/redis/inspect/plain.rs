//! Inspection of plain locks.

use std::time::Duration;

use crate::error::Result;
use crate::snapshot::{Holder, Snapshot};
use crate::store::Name;
use crate::store::redis::layouts::plain::PlainLockWords;
use crate::store::redis::layouts::{plain, scripts};
use crate::store::redis::topology::job::ScriptJob;
use crate::store::redis::wire::errors::unexpected;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::{Redis, inspect, keys};
use crate::types::FencingToken;

impl Redis {
    /// Inspects one plain lock. The number of its waiters is unknown.
    pub(crate) async fn show_plain(&self, name: &Name) -> Result<Snapshot> {
        let router = &self.router;
        router.check(name)?;
        let deadline = router.deadline();
        let token = &*keys::plain_token(name);
        let script = ScriptJob {
            script: &scripts::PLAIN_INSPECT,
            keys: &[name.as_str()],
            args: &[token],
            deadline,
        };
        let words = PlainLockWords {
            name: name.as_str(),
            counter: Some(token),
            ..PlainLockWords::default()
        };
        let reply = self
            .run_either(script, &plain::INSPECT, words)
            .await
            .map_err(|error| error.on_lock(name))?;
        let Some([owner, left, token]) = reply.list() else {
            return Err(unexpected(&reply));
        };
        let mut snapshot = Snapshot::free(name.as_str());
        if let Reply::Text(owner) = owner {
            snapshot.holders = vec![Holder::new(plain::shown(owner), 1)];
        }
        let left = left.int().and_then(|left| u64::try_from(left).ok());
        snapshot.expires_in = left.map(Duration::from_millis);
        let token = token.int().and_then(|token| u64::try_from(token).ok());
        snapshot.token = token.map(FencingToken::new);
        inspect::add_clients(router, &mut snapshot.holders, deadline).await;
        Ok(snapshot)
    }
}
