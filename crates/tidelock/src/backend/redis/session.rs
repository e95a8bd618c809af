//! The task behind the subscriptions: connects, sends what is ordered, looks whether the server still answers, and
//! connects anew when it does not.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::conn::{Conn, Request};
use super::reply::Trouble;
use super::subscriber::{Order, Shared};
use crate::backend::BoxFuture;

/// How often the task looks whether a channel is still needed and the server still answers.
const LOOK: Duration = Duration::from_millis(500);

/// Every how many looks the server is asked for a sign of life.
const PING_EVERY: u32 = 6;

/// How many looks a connection without channels is kept for the next waiter.
const KEPT_IDLE: u32 = 60;

/// Runs until nothing is to be subscribed any more.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut pause = Duration::from_millis(20);
    while shared.goes_on() {
        let ears = Arc::clone(&shared);
        match shared
            .gate
            .enter(Some(Arc::new(move |push| ears.hear(push))))
            .await
        {
            Ok(conn) => {
                pause = Duration::from_millis(20);
                serve(&shared, Arc::new(conn)).await;
                shared.disconnected();
            }
            Err(error) => {
                shared.unreachable(&error);
                shared.gate.timers.after(pause).await;
                pause = (pause * 2).min(Duration::from_secs(1));
            }
        }
    }
}

/// What became of something that was sent.
enum Sent {
    Done,
    Refused(Arc<str>, crate::Error),
    /// No answer: the connection is not to be trusted.
    Lost,
}

/// Serves one connection until it is lost or not needed any more.
async fn serve(shared: &Shared, conn: Arc<Conn>) {
    let mut calls: FuturesUnordered<BoxFuture<'_, Sent>> = FuturesUnordered::new();
    let mut look = shared.gate.timers.after(LOOK);
    let (mut idle, mut looks) = (0, 0_u32);
    while !shared.is_closed() && conn.alive() {
        for order in shared.orders() {
            calls.push(Box::pin(send(shared, Arc::clone(&conn), order)));
        }
        tokio::select! {
            () = shared.bell.notified() => {}
            () = conn.life.end.notified() => return,
            Some(sent) = calls.next(), if !calls.is_empty() => match sent {
                Sent::Done => {}
                Sent::Refused(channel, error) => shared.refused(&channel, &error),
                Sent::Lost => return,
            },
            () = &mut look => {
                look = shared.gate.timers.after(LOOK);
                idle = if shared.sweep() { 0 } else { idle + 1 };
                if idle > KEPT_IDLE {
                    return;
                }
                looks = looks.wrapping_add(1);
                // What is on its way is a sign of life as good as any.
                if calls.is_empty() && looks % PING_EVERY == 0 {
                    calls.push(Box::pin(ping(shared, Arc::clone(&conn))));
                }
            }
        }
    }
}

async fn send(shared: &Shared, conn: Arc<Conn>, order: Order) -> Sent {
    let limit = shared.gate.limit;
    let (channel, result) = match order {
        Order::Subscribe(channel) => {
            let result = shared
                .gate
                .timers
                .limit(limit, conn.subscribe(&channel))
                .await;
            (channel, result)
        }
        Order::Unsubscribe(channel) => {
            let result = shared
                .gate
                .timers
                .limit(limit, conn.unsubscribe(&channel))
                .await;
            (channel, result)
        }
    };
    match result {
        Some(Ok(())) => Sent::Done,
        Some(Err(Trouble::Complaint(complaint))) => Sent::Refused(channel, complaint.error()),
        Some(Err(Trouble::Broken(_))) | None => Sent::Lost,
    }
}

/// A half-open connection looks alive until something is sent.
async fn ping(shared: &Shared, conn: Arc<Conn>) -> Sent {
    match shared
        .gate
        .timers
        .limit(shared.gate.limit, conn.ask(&Request::new("PING")))
        .await
    {
        Some(Ok(_) | Err(Trouble::Complaint(_))) => Sent::Done,
        Some(Err(Trouble::Broken(_))) | None => Sent::Lost,
    }
}
