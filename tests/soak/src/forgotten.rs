//! Finds and deletes locks that Redisson holds by mistake and would never release.
//!
//! If the answer to its first request is lost, Redisson acquires a lock twice and releases it once. It renews the
//! remaining count for as long as it lives, so no other process gets that lock, and in the end every task would wait
//! for it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::crew::Crew;
use crate::plan::{LEASE, names};

/// No hold is meant to last longer than two leases and an outage. The rest is a margin.
const TOO_LONG: Duration = LEASE.saturating_mul(5);

/// For each name: the current owner, and since when it has been the owner.
#[derive(Debug, Default)]
pub(crate) struct Watch(HashMap<String, (String, Instant)>);

impl Watch {
    fn too_long(&mut self, name: &str, owner: Option<&String>) -> bool {
        let Some(owner) = owner else {
            self.0.remove(name);
            return false;
        };
        let fresh = || (owner.clone(), Instant::now());
        let seen = self.0.entry(name.to_owned()).or_insert_with(fresh);
        if seen.0 != *owner {
            *seen = fresh();
        }
        seen.1.elapsed() > TOO_LONG
    }
}

impl Crew {
    /// Deletes each lock that a Redisson thread has held for too long. A tidelock hold is left in place: one that lasts
    /// too long is a bug, and the run has to report it.
    pub(crate) fn free_forgotten(&mut self) -> Result<()> {
        let clients = self
            .java
            .iter()
            .map(|java| java.peer.client_id().to_owned());
        let clients: Vec<String> = clients.collect();
        for name in names() {
            let holders: Vec<String> = self.server.query(&["HKEYS", &name])?;
            let theirs = |owner: &&String| clients.iter().any(|client| owner.starts_with(client));
            let owner = holders.iter().find(theirs);
            if self.watch.too_long(&name, owner) {
                let owner = owner.map_or("", String::as_str);
                self.forgotten += u64::from(self.delete_one(&name, owner)?);
            }
        }
        Ok(())
    }
}
