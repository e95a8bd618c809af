//! The clock offset and the round-trip time of a server.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::Result;
use crate::snapshot::{Finding, Severity};
use crate::store::Timers;
use crate::store::doctor::DoctorCheck;
use crate::store::redis::doctor::{allowed, unseen};
use crate::store::redis::topology::connection::Connection;
use crate::store::redis::wire::request::Request;

const CLOCK: DoctorCheck = DoctorCheck {
    subject: "clock",
    good: "leases do not depend on it, as long as neither clock is stepped",
    severity: Severity::Advice,
    bad: "leases do not depend on the distance, but a clock that is set right by a step ends or prolongs every lease at once",
    advice: "keep both clocks disciplined (NTP, chrony), slewing instead of stepping",
};

const DISTANCE: DoctorCheck = DoctorCheck {
    subject: "distance",
    good: "time of one trip; a lock costs two",
    severity: Severity::Advice,
    bad: "each acquire and each release takes that long, and so much of every lease is lost",
    advice: "keep the server near its clients, and leases well above this",
};

/// A clock offset of this size or more is a finding.
const FAR_OFF: Duration = Duration::from_secs(2);
/// A round trip of this time or more is a finding.
const FAR_AWAY: Duration = Duration::from_millis(50);

/// The findings about clock and distance, in this order.
pub(crate) async fn findings(connection: &Connection, timers: &Timers) -> Result<[Finding; 2]> {
    Ok([
        clock(connection).await?,
        distance(connection, timers).await?,
    ])
}

async fn clock(connection: &Connection) -> Result<Finding> {
    let Some(reply) = allowed(
        connection
            .ask(&Request::new("TIME"), connection.deadline())
            .await,
    )?
    else {
        return Ok(unseen(
            "clock",
            "TIME",
            "the server's clock was not compared with ours",
        ));
    };
    let seconds = reply
        .list()
        .and_then(|args| args.first()?.int())
        .and_then(|seconds| u64::try_from(seconds).ok());
    // We compare durations since 1970, because the server's value need not be a valid date on this machine.
    let server = Duration::from_secs(seconds.unwrap_or_default());
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let off = now.unwrap_or_default().abs_diff(server);
    let found = format!("{} s from ours", off.as_secs());
    Ok(CLOCK.judge(off < FAR_OFF, found))
}

/// The shortest of a few round trips. Others may include unrelated delays.
async fn distance(connection: &Connection, timers: &Timers) -> Result<Finding> {
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let sent = timers.now();
        if allowed(
            connection
                .ask(&Request::new("PING"), connection.deadline())
                .await,
        )?
        .is_none()
        {
            return Ok(unseen(
                "distance",
                "PING",
                "the time of a trip is not known",
            ));
        }
        best = best.min(timers.now().since(sent));
    }
    let found = format!("{:.2} ms", best.as_secs_f64() * 1000.0);
    Ok(DISTANCE.judge(best < FAR_AWAY, found))
}
