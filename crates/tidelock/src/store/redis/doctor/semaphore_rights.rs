//! Doctor check: whether the user may take, renew and give back permits of a semaphore, and tell its waiters.

use crate::error::Result;
use crate::snapshot::{Finding, Severity};
use crate::store::doctor::DoctorCheck;
use crate::store::redis::doctor::refused as refused_of;
use crate::store::redis::keys;
use crate::store::redis::pubsub::subscriber::PublishModes;
use crate::store::redis::topology::router::Router;
use crate::store::redis::wire::reply::MessageForm;
use crate::store::redis::wire::request::Request;
use crate::store::{ClientId, CountKind, Name};

const SEMAPHORES: DoctorCheck = DoctorCheck {
    subject: "rights: semaphores",
    good: "semaphores work",
    severity: Severity::Advice,
    bad: "semaphores fail, or their waiters are not woken; locks work",
    advice: "allow ~{NAME}:* and &redisson_sc:{NAME} of your names and of tidelock:probe, with +get +set +decrby +type +zadd +zcard +zcount +zrange +zrangebyscore +zrem +zscore +time +publish",
};

/// The permit that is looked for among those of an unused name.
const PERMIT: &str = "probe:1";

/// The number is in a key of ours, and not under the probe's name: another doctor may use that name for a lock. The permits
/// that are out are only looked for. If we made such a set, `ls` would show a semaphore.
pub(crate) async fn finding(router: &Router, ways: PublishModes, name: &Name) -> Result<Finding> {
    let number = keys::count_answer(CountKind::Semaphore, name, ClientId::random().as_str());
    let (out, channel) = (keys::permits_out(name), keys::permit_channel(name));
    let on = |command: &'static str, key: &str| (command, Request::new(command).arg(key));
    let permit = |(command, request): (_, Request)| (command, request.arg(PERMIT));
    let ended = |(command, request): (_, Request)| (command, request.arg("-inf").arg(0));
    // If the number cannot be removed, it goes with this time to live.
    let set = Request::new("SET").arg(&number).arg("2");
    let key = name.as_str();
    let mut refused = refused_of(router, key, [("SET", set.arg("PX").arg(60_000))]).await?;
    let mut asked = vec![
        on("GET", &number),
        on("TYPE", &number),
        // This removes the number. A semaphore needs no `DEL`.
        ("PEXPIRE", Request::new("PEXPIRE").arg(&number).arg(0)),
        ("TIME", Request::new("TIME")),
        permit(("ZADD", Request::new("ZADD").arg(&out).arg("XX").arg(1))),
        on("ZCARD", &out),
        ended(on("ZCOUNT", &out)),
        ("ZRANGE", Request::new("ZRANGE").arg(&out).arg(0).arg(0)),
        ended(on("ZRANGEBYSCORE", &out)),
        permit(on("ZREM", &out)),
        permit(on("ZSCORE", &out)),
    ];
    // Without `SET`, `DECRBY` would make a number without a time to live.
    if refused.is_empty() {
        asked.insert(0, ("DECRBY", Request::new("DECRBY").arg(&number).arg(1)));
    }
    // Nobody waits for permits of that name.
    let tell = |form: &MessageForm| {
        let command = form.command();
        (command, Request::new(command).arg(&channel).arg("1"))
    };
    asked.extend(ways.forms().iter().map(tell));
    refused.extend(refused_of(router, key, asked).await?);
    Ok(SEMAPHORES.none_refused(&refused, "a number was changed and removed"))
}
