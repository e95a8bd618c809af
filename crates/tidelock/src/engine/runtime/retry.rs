//! Retries with backoff while a store cannot be reached.

use std::time::Duration;

use crate::engine::runtime::backoff::RECONNECT;
use crate::engine::runtime::running_time::RunningTime;
use crate::engine::runtime::timers::Timers;
use crate::error::{Error, Result};

/// Retries until `work` succeeds, fails with an error that a retry cannot fix, or `limit` is over. The limit does not
/// cut the first try short. Otherwise a short limit would fail where one try would have succeeded. It counts only time in
/// which this process ran: a try that takes much longer than `longest` was frozen.
///
/// # Errors
/// The error of the last try that ended by itself. If the limit is over, it says so.
pub(crate) async fn within<T, F>(
    limit: Duration,
    longest: Duration,
    timers: &Timers,
    mut work: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut time = RunningTime::start(timers);
    // Boxed, because a connect is large and would take space in the caller's future twice.
    let mut result = Box::pin(work()).await;
    let mut tries = 0;
    loop {
        let error = match result {
            Err(error) if error.is_retryable() && !limit.is_zero() => error,
            done => return done,
        };
        tracing::debug!(%error, tries = tries + 1, "the store cannot be reached; retrying");
        let pause = RECONNECT.pause(tries);
        timers.after(pause.min(time.left(limit, longest))).await;
        tries += 1;
        let left = time.left(limit, longest + pause);
        if left.is_zero() {
            return Err(out_of_time(error, limit));
        }
        let again = timers.until(timers.now() + left, Box::pin(work())).await;
        result = again.unwrap_or(Err(error));
    }
}

fn out_of_time(error: Error, limit: Duration) -> Error {
    let why = error.detail().unwrap_or_default().to_owned();
    error.because(format!("{why}; retried for {limit:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::store::{Background, Clock};

    fn timers() -> (Timers, crate::engine::runtime::background::Stop) {
        timers_of(Clock::Boot)
    }

    fn timers_of(clock: Clock) -> (Timers, crate::engine::runtime::background::Stop) {
        let (background, stop) = Background::start(clock).unwrap();
        let timers = Timers::new(clock);
        background.spawn(timers.clone().drive());
        (timers, stop)
    }

    fn failed(kind: ErrorKind) -> Result<u32> {
        Err(Error::new(kind).because("nobody at home"))
    }

    #[tokio::test]
    async fn a_transient_error_is_retried_until_it_works() {
        let (timers, _stop) = timers();
        let mut tries = 0;
        let work = || {
            tries += 1;
            std::future::ready(if tries < 4 {
                failed(ErrorKind::Unavailable)
            } else {
                Ok(tries)
            })
        };
        let limit = Duration::from_secs(30);
        assert_eq!(within(limit, limit, &timers, work).await.unwrap(), 4);
    }

    #[tokio::test]
    async fn a_permanent_error_or_an_abandoned_request_is_tried_once() {
        let (timers, _stop) = timers();
        let long = Duration::from_secs(30);
        for (kind, limit) in [
            (ErrorKind::Refused, long),
            (ErrorKind::InvalidOptions, long),
            (ErrorKind::Unavailable, Duration::ZERO),
        ] {
            let mut tries = 0;
            let work = || {
                tries += 1;
                std::future::ready(failed(kind))
            };
            let error = within(limit, limit, &timers, work).await.unwrap_err();
            assert_eq!((error.kind(), tries), (kind, 1));
        }
    }

    #[tokio::test]
    #[cfg_attr(miri, ignore = "bounds a time, and Miri is slow")]
    async fn the_first_try_is_not_cut_short_and_the_next_ones_are() {
        let (timers, _stop) = timers();
        let limit = Duration::from_millis(100);
        let begun = timers.now();
        let slow = || async {
            timers.after(limit * 2).await;
            Ok(7)
        };
        assert_eq!(within(limit, limit, &timers, slow).await.unwrap(), 7);
        assert!(timers.now().since(begun) >= limit * 2);
        let begun = timers.now();
        let mut tries = 0;
        let hangs = || {
            tries += 1;
            let first = tries == 1;
            async move {
                if !first {
                    std::future::pending::<()>().await;
                }
                failed(ErrorKind::Unavailable)
            }
        };
        let error = within(limit, limit, &timers, hangs).await.unwrap_err();
        assert!(timers.now().since(begun) < limit * 10);
        assert!(error.to_string().contains("nobody at home"), "{error}");
        assert!(error.to_string().contains("100ms"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_freeze_of_this_process_is_no_outage() {
        let (timers, _stop) = timers_of(Clock::Simulated);
        let limit = Duration::from_secs(3);
        let mut tries = 0;
        let frozen_once = || {
            tries += 1;
            let first = tries == 1;
            async move {
                if first {
                    tokio::time::advance(limit * 10).await;
                    return failed(ErrorKind::Unavailable);
                }
                Ok(7)
            }
        };
        assert_eq!(within(limit, limit, &timers, frozen_once).await.unwrap(), 7);
        let always = || async {
            tokio::time::advance(limit * 10).await;
            failed(ErrorKind::Unavailable)
        };
        let error = within(limit, limit, &timers, always).await.unwrap_err();
        assert!(error.to_string().contains("retried for 3s"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_pauses_between_the_tries_grow() {
        let (timers, _stop) = timers_of(Clock::Simulated);
        let limit = Duration::from_secs(60);
        let mut tries = 0;
        let work = || {
            tries += 1;
            std::future::ready(failed(ErrorKind::Unavailable))
        };
        within(limit, limit, &timers, work).await.unwrap_err();
        let without_growth = limit.as_nanos() / RECONNECT.pause(0).as_nanos();
        assert!(tries < without_growth / 20, "{tries} tries");
    }
}
