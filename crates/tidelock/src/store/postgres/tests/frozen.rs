//! Futures and conditions while the clock stands still, for tests of pauses. After `tokio::time::pause`, a runtime that has
//! nothing to do would let the time pass, also while an answer is on its way. So these never leave it without work.

use futures_util::FutureExt as _;

/// Runs a future without any time passing.
pub(crate) async fn frozen<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        if let Some(result) = future.as_mut().now_or_never() {
            return result;
        }
        tokio::task::yield_now().await;
    }
}

/// Whether this becomes true without any time passing.
pub(crate) async fn comes_true(is_so: impl Fn() -> bool) -> bool {
    for _ in 0..300_000 {
        if is_so() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

/// Lets requests and answers that are on their way arrive.
pub(crate) async fn settle() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}
