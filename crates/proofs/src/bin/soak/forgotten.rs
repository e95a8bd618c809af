//! Locks that Redisson keeps and has forgotten.
//!
//! A lock that it has asked for twice, because the first answer was lost, it holds twice and gives back once; what is left
//! it renews for as long as it lives. Nobody else would get that lock again, and in the end everybody would wait for it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::crew::Crew;
use crate::plan::{LEASE, names};

/// Nobody holds a lock for longer than two leases and an outage on purpose.
const TOO_LONG: Duration = LEASE.saturating_mul(5);

/// Since when a name is seen with one and the same owner.
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
    /// Deletes what a thread of Redisson has had for too long. One of tidelock's is left alone: it would be a bug, and seen.
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
