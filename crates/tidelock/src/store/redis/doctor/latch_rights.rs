//! Doctor check: whether the user may set, count down and open a latch, and tell its waiters.

use crate::error::Result;
use crate::snapshot::{Finding, Severity};
use crate::store::doctor::DoctorCheck;
use crate::store::redis::doctor::refused as refused_of;
use crate::store::redis::keys;
use crate::store::redis::topology::router::Router;
use crate::store::redis::wire::request::Request;
use crate::store::{ClientId, CountKind, Name};

const LATCHES: DoctorCheck = DoctorCheck {
    subject: "rights: latches",
    good: "latches work",
    severity: Severity::Advice,
    bad: "latches fail, or their waiters are not woken; locks work",
    advice: "allow ~{NAME}:* and &redisson_countdownlatch__channel__{NAME} of your names and of tidelock:probe, with +get +set +decr +del +exists +type +publish",
};

/// The number is in a key of ours, and not under the probe's name: another doctor may use that name for a lock.
pub(crate) async fn finding(router: &Router, name: &Name) -> Result<Finding> {
    let number = keys::count_answer(CountKind::Latch, name, ClientId::random().as_str());
    let out = keys::permits_out(name);
    let channel = keys::latch_channel(name);
    let on = |command: &'static str, key: &str| (command, Request::new(command).arg(key));
    // If the number cannot be removed, it goes with this time to live.
    let set = Request::new("SET").arg(&*number).arg("2");
    let key = name.as_str();
    let mut refused = refused_of(router, key, [("SET", set.arg("PX").arg(60_000))]).await?;
    let mut asked = vec![
        on("GET", &number),
        on("TYPE", &number),
        on("DEL", &number),
        on("EXISTS", &out),
        // `1` opens no latch, and nobody waits for that of this name.
        ("PUBLISH", Request::new("PUBLISH").arg(&channel).arg("1")),
    ];
    // Without `SET`, `DECR` would make a number without a time to live.
    if refused.is_empty() {
        asked.insert(0, on("DECR", &number));
    }
    refused.extend(refused_of(router, key, asked).await?);
    Ok(LATCHES.none_refused(&refused, "a number was counted down and removed"))
}
