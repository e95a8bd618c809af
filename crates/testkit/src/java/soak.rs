//! A Redisson that takes locks for a long time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{JavaError, JavaPeer, Pending};

/// What a peer shall do until it is told to stop. Its URL must name two servers: that of the locks and the witness.
#[derive(Debug, Clone, Serialize)]
pub struct SoakPlan {
    /// Digests of the witness' scripts.
    pub enter: String,
    /// The one that ends a claim.
    pub leave: String,
    /// What it calls itself.
    pub who: String,
    /// Whether this Redisson has fenced locks.
    pub knows_tokens: bool,
    /// The watchdog timeout it was started with.
    pub lease_ms: u64,
    /// How many names there are for short holds.
    pub fast: usize,
    /// The same for long ones.
    pub slow: usize,
    /// Threads that hold for a moment.
    pub fast_threads: u32,
    /// Threads that hold for up to two leases.
    pub slow_threads: u32,
    /// Of the choice of names and times.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct SoakReport {
    /// The longest wait for a lock, by a call that ended well.
    pub longest_ms: u64,
    /// What Redisson threw, by class.
    pub errors: BTreeMap<String, u64>,
}

impl JavaPeer {
    /// Begins; the answer comes after [`stop_soak`](Self::stop_soak), when every thread has got the lock it was waiting for.
    ///
    /// # Errors
    /// The peer has gone.
    pub fn begin_soak(&self, plan: &SoakPlan) -> Result<Pending<SoakReport>, JavaError> {
        let Value::Object(request) = serde_json::to_value(plan)? else {
            return self.link.begin("soak", "soak", serde_json::Map::new());
        };
        self.link.begin("soak", "soak", request)
    }

    /// Lets every thread finish its round.
    ///
    /// # Errors
    /// The peer has gone.
    pub fn stop_soak(&self) -> Result<(), JavaError> {
        let stop = self
            .link
            .begin("stop", "soak_stop", serde_json::Map::new())?;
        stop.value()
    }
}
