//! Gathers scripts that are to be acknowledged, and sends them in groups.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};

use super::line::Line;
use super::{Demand, Heard};
use crate::backend::Moment;
use crate::error::Result;

use super::super::link::Link;
use super::super::reply::Reply;
use super::super::scripts::Script;

/// The most scripts in a group: the `WAIT` behind them comes after the last of them has run.
const MOST: usize = 45;

/// A `WAIT` that takes longer holds up those that come after it no more: they go on another connection.
const SLOW: Duration = Duration::from_millis(25);

/// The most connections of one collector.
const MOST_LINES: usize = 4;

/// One script that is to be acknowledged, and who waits for it.
pub(super) struct Order {
    /// Its slot is only on the way to this node.
    pub(super) asking: bool,
    pub(super) script: &'static Script,
    pub(super) keys: Vec<String>,
    pub(super) args: Vec<String>,
    pub(super) demand: Demand,
    /// Nobody waits for the answer any longer than this.
    pub(super) deadline: Moment,
    pub(super) answer: oneshot::Sender<Result<Reply>>,
    pub(super) tally: oneshot::Sender<Heard>,
}

/// The way to the task that gathers, which is begun when it is needed.
#[derive(Debug, Default)]
pub(super) struct Collector(Mutex<Option<mpsc::UnboundedSender<Order>>>);

impl Collector {
    pub(super) fn send(&self, link: &Link, order: Order) -> Result<()> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let order = match &*slot {
            Some(orders) => match orders.send(order) {
                Ok(()) => return Ok(()),
                // The runtime it ran on has gone.
                Err(mpsc::error::SendError(order)) => order,
            },
            None => order,
        };
        let (orders, inbox) = mpsc::unbounded_channel();
        // The other end is in hand, so it cannot fail.
        let _ = orders.send(order);
        link.home().spawn(gather(link.sibling(), inbox))?;
        *slot = Some(orders);
        Ok(())
    }

    pub(super) fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Runs until the collector has gone.
async fn gather(link: Link, mut inbox: mpsc::UnboundedReceiver<Order>) {
    let timers = link.timers().clone();
    let mut queue: Vec<Order> = Vec::new();
    let (mut idle, mut lines) = (Vec::new(), 0);
    let mut busy = FuturesUnordered::new();
    let mut slow = timers.after(SLOW);
    loop {
        tokio::select! {
            order = inbox.recv() => match order {
                Some(order) => queue.push(order),
                None => return,
            },
            Some(free) = busy.next(), if !busy.is_empty() => idle.push(free),
            () = &mut slow, if !queue.is_empty() && lines < MOST_LINES => {
                lines += 1;
                idle.push(Line::new(link.sibling()));
            }
        }
        while let Ok(order) = inbox.try_recv() {
            queue.push(order);
        }
        // Whoever has given up is not asked for any more: what nobody hears of, nobody gives back.
        queue.retain(|order| !order.answer.is_closed());
        if lines == 0 {
            lines = 1;
            idle.push(Line::new(link.sibling()));
        }
        while !queue.is_empty()
            && let Some(free) = idle.pop()
        {
            let rest = queue.split_off(queue.len().min(MOST));
            busy.push(free.serve(std::mem::replace(&mut queue, rest)));
            slow = timers.after(SLOW);
        }
    }
}
