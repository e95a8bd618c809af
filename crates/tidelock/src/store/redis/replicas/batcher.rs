//! The ack batcher: collects scripts that need an acknowledgement and sends them in batches.
//!
//! One task owns the queue, on the steward's thread. On the runtime of a caller it would stand still, and all scripts
//! with it, once nobody drives that runtime any more. It gives a batch to each idle `WAIT` connection. If all connections
//! are busy for longer than a bound while scripts wait, the task opens another connection, up to a maximum.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;

use crate::engine::runtime::sync::Mutex;
use crate::store::Background;
use crate::store::redis::replicas::wait_connection::{AckRequest, WaitConnection};
use crate::store::redis::topology::connection::{Connection, ConnectionRuntime};

/// The most scripts in a batch. The `WAIT` runs after the last script, so a larger batch delays the count for the
/// first.
const MAX_BATCH: usize = 45;

/// How long queued scripts wait for a busy connection. After that the next batch goes on a new connection.
const MAX_QUEUE_TIME: Duration = Duration::from_millis(25);

/// The most `WAIT` connections of one batcher.
const MAX_CONNECTIONS: usize = 4;

/// The sender to the batching task. The first script starts the task.
#[derive(Debug, Default)]
pub(crate) struct AckBatcher(Mutex<Option<mpsc::UnboundedSender<AckRequest>>>);

impl AckBatcher {
    pub(crate) fn send(&self, connection: &Connection, background: &Background, order: AckRequest) {
        let mut slot = self.0.lock();
        let order = match &*slot {
            Some(orders) => match orders.send(order) {
                Ok(()) => return,
                // The steward's thread has ended, and the task with it. A new one is dropped, which tells the caller.
                Err(mpsc::error::SendError(order)) => order,
            },
            None => order,
        };
        let (orders, inbox) = mpsc::unbounded_channel();
        // Cannot fail: we still own the receiver.
        let _ = orders.send(order);
        let own = connection.sibling_on(ConnectionRuntime::Background(background.clone()));
        background.spawn(gather(own, inbox));
        *slot = Some(orders);
    }
}

/// The batching task. It runs until the sender is dropped.
async fn gather(connection: Connection, mut inbox: mpsc::UnboundedReceiver<AckRequest>) {
    let timers = connection.timers().clone();
    let mut queue: Vec<AckRequest> = Vec::new();
    let (mut idle, mut connections) = (Vec::new(), 0);
    let mut busy = FuturesUnordered::new();
    let mut slow = timers.after(MAX_QUEUE_TIME);
    loop {
        tokio::select! {
            order = inbox.recv() => match order {
                Some(order) => queue.push(order),
                None => return,
            },
            Some(free) = busy.next(), if !busy.is_empty() => idle.push(free),
            () = &mut slow, if !queue.is_empty() && connections < MAX_CONNECTIONS => {
                connections += 1;
                idle.push(WaitConnection::new(connection.sibling()));
            }
        }
        while let Ok(order) = inbox.try_recv() {
            queue.push(order);
        }
        // Discard the scripts of callers that have left. Otherwise a script could grant a lock that nobody
        // knows of and nobody releases.
        queue.retain(|order| !order.answer.is_closed());
        if connections == 0 {
            connections = 1;
            idle.push(WaitConnection::new(connection.sibling()));
        }
        while !queue.is_empty()
            && let Some(free) = idle.pop()
        {
            let rest = queue.split_off(queue.len().min(MAX_BATCH));
            busy.push(free.serve(std::mem::replace(&mut queue, rest)));
            slow = timers.after(MAX_QUEUE_TIME);
        }
    }
}
