//! `tidelock watch`: prints every change of one lock.

use std::process::ExitCode;
use std::time::SystemTime;

use serde_json::json;
use tidelock::Snapshot;

use crate::args::{StoreArgs, WatchArgs};
use crate::covers::Shown;
use crate::exit::{Failure, Outcome, say};
use crate::inspect::{self, as_json, as_text, print_line, print_object, with_client};
use crate::{interrupt, other_end};

/// Prints the state of the lock now, and again on every change of it, until Ctrl-C. Goes on through an outage of the store.
pub(crate) async fn watch(args: &StoreArgs, what: WatchArgs) -> Outcome {
    let store = Shown::of(args)?;
    with_client(args, async |client| {
        let lock = client.lock(&what.name);
        let mut tick = tokio::time::interval(what.every.max(std::time::Duration::from_millis(10)));
        // After looks that took long the store gets no burst of them.
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // One future for the whole loop: a new one in each round would miss a signal that comes while the store is
        // asked.
        let mut interrupted = std::pin::pin!(interrupt::interrupted()?);
        // A lock that does not change is not printed, so no write would tell that nobody reads any more.
        let unread = other_end::gone(std::io::stdout()).map_err(Failure::internal)?;
        let mut unread = std::pin::pin!(unread);
        let mut before: Option<Snapshot> = None;
        let mut is_away = false;
        loop {
            let looked = async {
                tick.tick().await;
                lock.inspect().await
            };
            let seen = tokio::select! {
                biased; // Ctrl-C ends it, also if each look ends at once
                _ = &mut interrupted => return Ok(ExitCode::SUCCESS),
                () = &mut unread => return Err(inspect::unread()),
                seen = looked => seen,
            };
            let seen = match seen {
                Ok(seen) => seen,
                // The first look tells whether this store can be watched at all.
                Err(error) if error.is_retryable() && before.is_some() => {
                    if !std::mem::replace(&mut is_away, true) {
                        say(Failure::from(error).message);
                    }
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            // After an outage we print in any case: this line says that it is over.
            let is_back = std::mem::take(&mut is_away);
            if is_back || before.as_ref().is_none_or(|before| changed(before, &seen)) {
                print(&store, &seen, what.json)?;
            }
            before = Some(seen);
        }
    })
    .await
}

/// Ignores the time left, which always changes.
fn changed(before: &Snapshot, now: &Snapshot) -> bool {
    let of_counts = (&now.permits, &now.latch, &now.queue);
    before.holders != now.holders
        || before.token != now.token
        || before.waiters != now.waiters
        || (&before.permits, &before.latch, &before.queue) != of_counts
}

fn print(store: &Shown, seen: &Snapshot, json: bool) -> Outcome<()> {
    let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    if json {
        let mut object = as_json(seen);
        object["at"] = json!(at);
        print_object(store, object)
    } else {
        print_line(&format!("{at} {}", as_text(seen)))
    }
}
