//! Doctor check: whether the user may use both sides of a read-write lock, and queue for them.

use crate::error::Result;
use crate::snapshot::{Finding, Severity};
use crate::store::doctor::DoctorCheck;
use crate::store::redis::doctor::refused;
use crate::store::redis::keys;
use crate::store::redis::topology::router::Router;
use crate::store::redis::wire::request::Request;
use crate::store::{LockKind, Name, Ticket};
use crate::types::OwnerMint;

const READ_WRITE: DoctorCheck = DoctorCheck {
    subject: "rights: read-write locks",
    good: "read-write locks work",
    severity: Severity::Advice,
    bad: "read-write locks fail or do not show their waiters; others work",
    advice: "allow the keys of read holds, ~{NAME}:* of your names and of tidelock:probe, with +hkeys +hgetall +zadd +zcard +zrange +zscore +zrem +time",
};

/// The waiter that is put into the queue of an unused name, and removed.
const WAITER: &str = "probe:1";

pub(crate) async fn finding(router: &Router, name: &Name) -> Result<Finding> {
    let (lock, queue) = (name.as_str(), keys::read_write_queue(name));
    let ticket = Ticket {
        kind: LockKind::Read,
        name: name.clone(),
        owner: OwnerMint::new().fresh(),
    };
    let hold = keys::read_hold(&ticket);
    let on = |command: &'static str, key: &str| (command, Request::new(command).arg(key));
    let hold_set = Request::new("SET").arg(&*hold).arg("1").arg("PX").arg(1000);
    let all = |command: &'static str| {
        let request = Request::new(command).arg(&queue).arg(0).arg(0);
        (command, request)
    };
    let waiter = |(command, request): (_, Request)| (command, request.arg(WAITER));
    let asked = [
        ("SET", hold_set),
        on("PTTL", &hold),
        on("DEL", &hold),
        on("HKEYS", lock),
        on("HGETALL", lock),
        ("TIME", Request::new("TIME")),
        ("ZADD", Request::new("ZADD").arg(&queue).arg(1).arg(WAITER)),
        // If the waiter cannot be removed, it goes with this time to live.
        ("PEXPIRE", Request::new("PEXPIRE").arg(&queue).arg(1000)),
        on("ZCARD", &queue),
        all("ZRANGE"),
        waiter(on("ZSCORE", &queue)),
        waiter(on("ZREM", &queue)),
    ];
    let refused = refused(router, lock, asked).await?;
    Ok(READ_WRITE.none_refused(&refused, "a read hold and a queue were used and removed"))
}
