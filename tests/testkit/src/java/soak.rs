//! A Redisson client that takes locks for a long time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{JavaError, JavaPeer, Pending};

/// The parameters of a soak, which runs until it is stopped. The peer's URL must name two servers: the lock server and
/// the witness.
#[derive(Debug, Clone, Serialize)]
pub struct SoakPlan {
    /// The digest of the script that begins a claim at the witness.
    pub enter: String,
    /// The digest of the script that ends a claim at the witness.
    pub leave: String,
    /// The name of this client.
    pub who: String,
    /// Whether this Redisson version has fenced locks.
    pub knows_tokens: bool,
    /// The watchdog timeout of the peer.
    pub lease_ms: u64,
    /// Number of lock names for short holds.
    pub fast: usize,
    /// Number of lock names for long holds.
    pub slow: usize,
    /// Number of threads that hold for a moment.
    pub fast_threads: u32,
    /// Number of threads that hold for up to two leases.
    pub slow_threads: u32,
    /// The seed for the choice of names and times.
    pub seed: u64,
}

/// The result of a soak.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct SoakReport {
    /// The longest wait for a lock, over all successful calls.
    pub longest_ms: u64,
    /// The exceptions from Redisson, by class.
    pub errors: BTreeMap<String, u64>,
}

impl JavaPeer {
    /// Starts the soak. The answer comes after [`stop_soak`](Self::stop_soak), when every thread has got the lock it
    /// was waiting for.
    ///
    /// # Errors
    /// Fails when the peer has ended.
    pub fn begin_soak(&self, plan: &SoakPlan) -> Result<Pending<SoakReport>, JavaError> {
        let Value::Object(request) = serde_json::to_value(plan)? else {
            return self.link.begin("soak", "soak", serde_json::Map::new());
        };
        self.link.begin("soak", "soak", request)
    }

    /// Ends the soak after every thread has finished its round.
    ///
    /// # Errors
    /// Fails when the peer has ended.
    pub fn stop_soak(&self) -> Result<(), JavaError> {
        let stop = self
            .link
            .begin("stop", "soak_stop", serde_json::Map::new())?;
        stop.value()
    }
}
