//! The connections that an endpoint has opened, and what ends them.

use std::sync::{Arc, Weak};

use tokio::sync::watch;

use crate::engine::runtime::sync::Mutex;
use crate::store::redis::topology::live_connection::LiveConnection;
use crate::store::redis::wire::pipeline::Pipeline;

/// The connections of one endpoint, for commands or for subscriptions.
#[derive(Default)]
pub(crate) struct EndpointConnections {
    /// Counts how often the server behind the endpoint has changed. Each change ends the connections made before it.
    moves: watch::Sender<u64>,
    /// The connections opened so far that are still in use.
    made: Mutex<Vec<Weak<Pipeline>>>,
}

impl EndpointConnections {
    /// For a connection that is being opened: the next change ends it.
    pub(crate) fn moves(&self) -> watch::Receiver<u64> {
        self.moves.subscribe()
    }

    pub(crate) fn note(&self, conn: &LiveConnection) {
        let mut made = self.made.lock();
        made.retain(|pipeline| {
            pipeline
                .upgrade()
                .is_some_and(|pipeline| !pipeline.is_over())
        });
        made.push(Arc::downgrade(&conn.pipeline));
    }

    /// Ends every connection that is open or connecting, including requests that wait for a reply.
    pub(crate) fn leave(&self) {
        // We count the change before we take the list. Otherwise a connection could finish its handshake between the
        // two, and stay connected to the old server.
        self.moves.send_modify(|moves| *moves += 1);
        let made = std::mem::take(&mut *self.made.lock());
        for pipeline in made.iter().filter_map(Weak::upgrade) {
            pipeline.cut();
        }
    }

    #[cfg(test)]
    pub(crate) fn times_left(&self) -> u64 {
        *self.moves.borrow()
    }
}
