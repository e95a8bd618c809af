//! Clients on tokio's clock, for tests at a server on loopback.

use std::time::Duration;

use crate::store::{Background, Clock, Timers};

/// The background and the timers of a client on tokio's clock.
pub(crate) fn simulated() -> (Background, Timers) {
    let (background, _) = Background::start(Clock::Simulated).unwrap();
    let timers = Timers::new(Clock::Simulated);
    background.spawn(timers.clone().drive());
    (background, timers)
}

/// Lets this time pass at once.
pub(crate) async fn skip(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

pub(crate) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, future).await.expect("in time")
}
