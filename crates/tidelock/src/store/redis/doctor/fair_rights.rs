//! Doctor check: whether the user may queue for a fair lock.

use crate::error::Result;
use crate::snapshot::{Finding, Severity};
use crate::store::Name;
use crate::store::doctor::DoctorCheck;
use crate::store::redis::doctor::refused;
use crate::store::redis::keys;
use crate::store::redis::topology::router::Router;
use crate::store::redis::wire::request::Request;

const FAIR: DoctorCheck = DoctorCheck {
    subject: "rights: fair locks",
    good: "fair locks work, and their queues are shown",
    severity: Severity::Advice,
    bad: "fair locks fail or do not show their queue; others work",
    advice: "allow ~redisson_lock_*:* with +llen +lrange +rpush +lpush +lpop +lrem +zadd +zrem",
};

/// The entry that is put into the queue of an unused name, and removed.
const ENTRY: &str = "probe:1";

pub(crate) async fn finding(router: &Router, name: &Name) -> Result<Finding> {
    let (queue, times) = (keys::fair_queue(name), keys::fair_times(name));
    let on = |command: &'static str, key: &str| (command, Request::new(command).arg(key));
    let entry = |(command, request): (_, Request)| (command, request.arg(ENTRY));
    let asked = [
        on("LLEN", &queue),
        entry(on("RPUSH", &queue)),
        entry(on("LPUSH", &queue)),
        // If the entries cannot be removed, they go with this time to live.
        ("PEXPIRE", Request::new("PEXPIRE").arg(&queue).arg(1000)),
        ("LRANGE", Request::new("LRANGE").arg(&queue).arg(0).arg(0)),
        on("LPOP", &queue),
        entry(("LREM", Request::new("LREM").arg(&queue).arg(0))),
        entry(("ZADD", Request::new("ZADD").arg(&times).arg("XX").arg(1))),
        entry(on("ZREM", &times)),
    ];
    let refused = refused(router, name.as_str(), asked).await?;
    Ok(FAIR.none_refused(&refused, "a queue was used and removed"))
}
