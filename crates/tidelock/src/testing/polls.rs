//! Dropping a future after every possible number of polls: each await point is a place where its caller may leave.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// What became of a future that was polled a limited number of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polled<T> {
    /// It was done within the polls.
    Done(T),
    /// It was dropped unfinished, after all its polls.
    Dropped,
    /// It was dropped unfinished because nothing woke it within the patience.
    Asleep,
}

/// Polls a future up to that many times, each time only after it has been woken, and drops it.
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
    // `biased` order inside `timeout` polls the future first, so the patience never costs it a poll.
    tokio::time::timeout(patience, counted)
        .await
        .unwrap_or(Polled::Asleep)
}
