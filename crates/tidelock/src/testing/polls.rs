//! Drops a future after a given number of polls. A test repeats this for every number of polls, because the caller may
//! leave at each await point.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// The outcome of a future that is polled a limited number of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polled<T> {
    /// The future completed within the polls.
    Done(T),
    /// The future was dropped after the last poll, unfinished.
    Dropped,
    /// Nothing woke the future within `patience`. It was dropped, unfinished.
    Asleep,
}

/// Polls a future up to `polls` times, each time only after a wake, and then drops it. Waits at most `patience` in all.
pub async fn poll_times<F: Future>(
    future: F,
    polls: usize,
    patience: Duration,
) -> Polled<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    if left == 0 {
        return Polled::Dropped;
    }
    let counted = std::future::poll_fn(|cx| {
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Polled::Done(output)),
            Poll::Pending if left == 0 => Poll::Ready(Polled::Dropped),
            Poll::Pending => Poll::Pending,
        }
    });
    // `timeout` polls the future before its timer. So an expired timer never takes a poll from the future.
    tokio::time::timeout(patience, counted)
        .await
        .unwrap_or(Polled::Asleep)
}
