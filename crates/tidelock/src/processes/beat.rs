//! Writes the record of this process every ten seconds, or every second while somebody watches.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use crate::engine::ClientInner;
use crate::engine::lease::process_info::records;
use crate::engine::store_handle::StoreHandle;
use crate::error::{ErrorKind, Result};
use crate::processes::process::{
    BEAT, Process, ProcessElection, ProcessHold, ProcessJob, ProcessWait, WATCHED_BEAT, WATCHERS,
    WaitBucket,
};
use crate::processes::record::{MOST_LISTED, to_line};
use crate::stats::Durations;
use crate::store::{BootInstant, CLIENT_INFO_TTL, Marks};
use crate::types::FencingToken;

/// How long the store keeps a record, also of a process that is watched, so that one that was killed is still seen with
/// its locks. Longer than the three beats after which a process counts as gone: otherwise nobody would ever see that.
const KEPT: Duration = Duration::from_secs(60);

/// How long the time of the store is computed from its last answer. If its clock is set, records look too old for so long.
const CLOCK_KEPT: Duration = Duration::from_secs(60);

/// What the clock of the store said, and when.
#[derive(Debug, Clone, Copy)]
struct StoreClock {
    told: SystemTime,
    at: BootInstant,
}

/// Writes the record until the client is closed or dropped.
pub(crate) fn publish(
    core: &Arc<ClientInner>,
    version: Option<String>,
) -> impl Future<Output = ()> + Send + 'static {
    let (timers, alive) = (core.timers.clone(), Arc::downgrade(core));
    async move {
        // A process that ends before its first beat writes nothing.
        let (mut clock, mut pause) = (None, BEAT);
        // A client that is dropped before its store is open has no beat to wait for.
        while alive.strong_count() > 0 {
            timers.after(pause).await;
            // In flight before we check for `close`, which removes the record when nothing is in flight.
            let Some(core) = alive.upgrade() else { return };
            let (write, home) = (core.steward.owned_in_flight(), Arc::clone(&core.home.store));
            if core.steward.closed.is_set() {
                return;
            }
            drop(core); // the client may be dropped while we wait for the store
            pause = match beat(&alive, &home, &mut clock, version.as_deref()).await {
                Ok(pause) => pause,
                Err(error) => {
                    let Some(pause) = pause_after(error.kind(), pause) else {
                        return;
                    };
                    tracing::debug!(%error, "the record of this process could not be written to the store; the client retries");
                    pause
                }
            };
            drop(write);
        }
    }
}

/// How long after this error the next record is tried. `None`: never.
fn pause_after(error: ErrorKind, before: Duration) -> Option<Duration> {
    match error {
        ErrorKind::Unsupported => None,
        // As often as before: the last record has promised the next one after that time.
        ErrorKind::Unavailable | ErrorKind::OutcomeUnknown => Some(before.min(BEAT)),
        // Refused: the server may log each try.
        _ => Some(CLIENT_INFO_TTL / 3),
    }
}

/// Writes the record once. Returns when the next one is due.
async fn beat(
    alive: &Weak<ClientInner>,
    home: &StoreHandle,
    clock: &mut Option<StoreClock>,
    version: Option<&str>,
) -> Result<Duration> {
    let marks = home.back().extensions().need_marks()?;
    let name = records()?;
    let now = || alive.upgrade().map(|core| core.timers.now());
    let Some(asked) = now() else {
        return Ok(BEAT);
    };
    let is_watched = marks.read(&name, WATCHERS).await?.is_some();
    let latency = now().map_or(Duration::ZERO, |now| now.since(asked));
    let told = tell(marks, clock, asked).await?;
    let beat = if is_watched { WATCHED_BEAT } else { BEAT };
    let Some(core) = alive.upgrade() else {
        return Ok(BEAT);
    };
    let mut own = own_process(&core, told);
    own.version = version.map(str::to_owned);
    (own.beat, own.latency) = (beat, latency);
    let info = Arc::clone(&core.process_info);
    drop(core);
    info.put_record(marks, to_line(&own), KEPT).await?;
    Ok(beat)
}

/// The clock of the store. It is asked once a minute.
async fn tell(
    marks: &dyn Marks,
    clock: &mut Option<StoreClock>,
    now: BootInstant,
) -> Result<StoreClock> {
    if let Some(known) = clock.filter(|known| now.since(known.at) < CLOCK_KEPT) {
        return Ok(known);
    }
    let told = marks.now(&records()?).await?;
    Ok(*clock.insert(StoreClock { told, at: now }))
}

/// What this process tells of itself.
fn own_process(core: &ClientInner, clock: StoreClock) -> Process {
    let now = core.timers.now();
    let stats = core.steward.instruments.stats();
    let holds = core.steward.table.longest(MOST_LISTED).into_iter();
    let holds = holds.filter_map(|status| {
        let ticket = &status.granted().ticket;
        Some(ProcessHold {
            name: ticket.name.as_str().to_owned(),
            kind: ticket.kind.as_str().to_owned(),
            token: status.token().map(FencingToken::new),
            held_for: now.since(status.since()?),
        })
    });
    let waits = core.waiting_calls.longest(MOST_LISTED).into_iter();
    let waits = waits.map(|wait| ProcessWait {
        name: wait.name.as_str().to_owned(),
        kind: wait.kind.as_str().to_owned(),
        waiters: wait.waiters,
        longest: now.since(wait.since),
    });
    Process {
        client: core.mint.client().as_str().to_owned(),
        info: core.process_info.own(),
        version: None,
        written: clock.told + now.since(clock.at),
        age: Duration::ZERO,
        beat: BEAT,
        latency: Duration::ZERO,
        held: stats.held,
        waiting: stats.waiting,
        acquired: stats.acquired(),
        acquire_times: acquire_times(&stats.wait),
        timed_out: stats.timed_out,
        failed: stats.failed,
        lost: stats.losses(),
        holds: holds.collect(),
        waits: waits.collect(),
        elections: own_elections(core, now),
        jobs: own_jobs(core, now),
    }
}

/// The buckets that are not empty.
fn acquire_times(wait: &Durations) -> Vec<WaitBucket> {
    let longer = wait.bounds.last().map(|bound| (*bound, true));
    let bounds = wait
        .bounds
        .iter()
        .map(|bound| (*bound, false))
        .chain(longer);
    let buckets = bounds.zip(&wait.buckets).filter(|(_, calls)| **calls > 0);
    let buckets = buckets.map(|((bound, is_longer), calls)| WaitBucket {
        bound,
        is_longer,
        calls: *calls,
    });
    buckets.collect()
}

fn own_elections(core: &ClientInner, now: BootInstant) -> Vec<ProcessElection> {
    let seen = core.own_candidates.seen(MOST_LISTED).into_iter();
    let seen = seen.map(|candidate| ProcessElection {
        name: candidate.name.as_str().to_owned(),
        identity: candidate.identity,
        term: candidate.term,
        lasted: now.since(candidate.since),
    });
    seen.collect()
}

fn own_jobs(core: &ClientInner, now: BootInstant) -> Vec<ProcessJob> {
    let newest = core.job_runs.newest().into_iter();
    let newest = newest.map(|run| ProcessJob {
        name: run.name.as_str().to_owned(),
        slot: run.slot,
        state: run.state.to_owned(),
        attempt: run.attempt.into(),
        token: Some(run.token),
        lasted: now.since(run.since),
    });
    newest.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;

    #[tokio::test]
    async fn a_process_that_is_watched_tells_more_often() {
        let builder = Client::builder().publish_process_info(false);
        let client = builder.connect("memory:").await.unwrap();
        let (alive, home) = (Arc::downgrade(client.core()), &client.core().home.store);
        let told = async || beat(&alive, home, &mut None, Some("1.9")).await.unwrap();
        assert_eq!(told().await, BEAT);
        for _ in 0..2 {
            client.watch_processes().await.unwrap();
        }
        assert_eq!(told().await, WATCHED_BEAT);
        let all = client.processes().await.unwrap();
        assert_eq!(all.len(), 1, "those who watch are none: {all:?}");
        assert_eq!((&*all[0].client, all[0].beat), (client.id(), WATCHED_BEAT));
        assert_eq!(all[0].version.as_deref(), Some("1.9"));
    }

    #[test]
    fn only_the_buckets_with_calls_are_told_and_the_last_one_is_open() {
        const BOUNDS: &[Duration] = &[Duration::from_millis(1), Duration::from_millis(10)];
        let told = |buckets: &[u64]| {
            let times = acquire_times(&Durations {
                bounds: BOUNDS,
                buckets: buckets.to_vec(),
                sum: Duration::ZERO,
            });
            let told = times.into_iter();
            told.map(|it| (it.bound, it.is_longer, it.calls))
                .collect::<Vec<_>>()
        };
        assert!(told(&[0, 0, 0]).is_empty());
        let all = [
            (BOUNDS[0], false, 3),
            (BOUNDS[1], false, 1),
            (BOUNDS[1], true, 2),
        ];
        assert_eq!(told(&[3, 1, 2]), all);
        assert_eq!(told(&[3, 0, 2]), [all[0], all[2]]);
    }

    #[test]
    fn a_record_that_was_refused_is_tried_seldom_and_after_an_outage_as_often_as_before() {
        let seldom = CLIENT_INFO_TTL / 3;
        assert!(seldom > BEAT);
        for (error, before, expected) in [
            (ErrorKind::Unavailable, WATCHED_BEAT, Some(WATCHED_BEAT)),
            (ErrorKind::OutcomeUnknown, BEAT, Some(BEAT)),
            (ErrorKind::Unavailable, seldom, Some(BEAT)),
            (ErrorKind::Refused, WATCHED_BEAT, Some(seldom)),
            (ErrorKind::WrongType, BEAT, Some(seldom)),
            (ErrorKind::Unsupported, BEAT, None),
        ] {
            assert_eq!(pause_after(error, before), expected, "{error:?}");
        }
    }

    /// Each record would cost one more request otherwise.
    #[tokio::test]
    async fn the_clock_of_the_store_is_asked_for_once_a_minute() {
        let client = Client::connect("memory:").await.unwrap();
        let store = client.core().home.store.front();
        let marks = store.extensions().need_marks().unwrap();
        let begun = client.core().timers.now();
        let mut clock = None;
        for (seconds, asked) in [(0, 0), (1, 0), (59, 0), (60, 60), (119, 60), (121, 121)] {
            let now = begun + Duration::from_secs(seconds);
            let told = tell(marks, &mut clock, now).await.unwrap();
            assert_eq!(
                told.at.since(begun),
                Duration::from_secs(asked),
                "{seconds}"
            );
        }
    }
}
