//! One live connection: a pipeline of requests. The server answers in the order of the requests.

use std::collections::VecDeque;

use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::error::Result;
use crate::store::memcached::errors::unanswered;
use crate::store::memcached::wire::{Inbox, Reply, Shape};

/// Identifies the live connection that an answer came on. A CAS number is only valid on that connection: a restarted
/// server counts from one again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// A live connection.
pub(crate) struct LiveConnection {
    stream: TcpStream,
    pub(crate) connection_id: ConnectionId,
    /// Read buffer. Boxed; otherwise it would be part of every future that reads.
    bytes: Box<[u8]>,
    inbox: Inbox,
    /// Requests in flight, oldest first: the next answer belongs to the first of them.
    open: VecDeque<PendingBatch>,
}

/// A request in flight, and the sender for its answers.
pub(crate) struct PendingBatch {
    pub(crate) number: u64,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) replies: Vec<Reply>,
    pub(crate) answer: oneshot::Sender<Result<(Vec<Reply>, ConnectionId)>>,
}

impl LiveConnection {
    pub(crate) fn new(stream: TcpStream, connection_id: ConnectionId) -> Self {
        Self {
            stream,
            connection_id,
            bytes: vec![0; 16 * 1024].into(),
            inbox: Inbox::default(),
            open: VecDeque::new(),
        }
    }

    /// Whether the request with this number is still in flight.
    pub(crate) fn waits_for(&self, number: u64) -> bool {
        self.open.iter().any(|open| open.number == number)
    }

    /// Sends a request. From here on it may have an effect.
    pub(crate) async fn send(&mut self, bytes: &[u8], open: PendingBatch) -> Result<(), String> {
        // Register before the write. If the write fails midway, this request must also fail with an unknown outcome.
        self.open.push_back(open);
        self.write(bytes).await
    }

    /// Writes all bytes. Not cancel safe: a dropped call may have written only some.
    pub(crate) async fn write(&self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            self.stream.writable().await.map_err(|e| e.to_string())?;
            match self.stream.try_write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e.to_string()),
            }
        }
        Ok(())
    }

    /// Reads some bytes into the inbox. Cancel safe: a dropped call loses no bytes.
    async fn read(&mut self) -> Result<(), String> {
        loop {
            self.stream.readable().await.map_err(|e| e.to_string())?;
            match self.stream.try_read(&mut self.bytes) {
                Ok(0) => return Err("the server ended the connection".to_owned()),
                Ok(count) => {
                    self.inbox.push(&self.bytes[..count]);
                    return Ok(());
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e.to_string()),
            }
        }
    }

    /// Reads one answer, for the handshake.
    pub(crate) async fn answer(&mut self, shape: Shape) -> Result<Reply, String> {
        loop {
            if let Some(reply) = self.inbox.next(shape)? {
                return Ok(reply);
            }
            self.read().await?;
        }
    }

    /// Distributes answers until the connection ends; returns the reason. Cancel safe.
    pub(crate) async fn hear(&mut self) -> String {
        loop {
            if let Err(why) = self.read().await.and_then(|()| self.hand_out()) {
                return why;
            }
        }
    }

    /// Sends each complete answer to its request.
    fn hand_out(&mut self) -> Result<(), String> {
        while let Some(open) = self.open.front_mut() {
            let shape = open.shapes[open.replies.len()];
            match self.inbox.next(shape)? {
                Some(reply) => open.replies.push(reply),
                None => return Ok(()),
            }
            if open.replies.len() == open.shapes.len()
                && let Some(open) = self.open.pop_front()
            {
                // An error means that the caller has given up.
                let _ = open.answer.send(Ok((open.replies, self.connection_id)));
            }
        }
        self.refuse_surplus()
    }

    /// An error: the server has sent more than it was asked for. The next request would get that as its answer, and each
    /// later one the answer of the one before it.
    pub(crate) fn refuse_surplus(&self) -> Result<(), String> {
        if self.open.is_empty() && !self.inbox.is_empty() {
            return Err("the server has sent a reply that nobody asked for".to_owned());
        }
        Ok(())
    }

    /// Fails all requests in flight with an unknown outcome: each of them may have had an effect.
    pub(crate) fn fail(&mut self, why: &str) {
        for open in self.open.drain(..) {
            let _ = open.answer.send(Err(unanswered(why)));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    type Answer = oneshot::Receiver<Result<(Vec<Reply>, ConnectionId)>>;

    /// A connection, and the server's side of it.
    pub(crate) async fn pair() -> (LiveConnection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (stream, accepted) = tokio::join!(connecting, listener.accept());
        let live = LiveConnection::new(stream.unwrap(), ConnectionId(1));
        (live, accepted.unwrap().0)
    }

    /// Sends a request with this number whose commands have one line each as their answers.
    async fn sends(live: &mut LiveConnection, number: u64, commands: usize) -> Answer {
        let (answer, answered) = oneshot::channel();
        let open = PendingBatch {
            number,
            shapes: vec![Shape::One; commands],
            replies: Vec::new(),
            answer,
        };
        live.send(b"mn\r\n", open).await.unwrap();
        answered
    }

    #[tokio::test]
    async fn replies_go_to_the_requests_in_their_order_until_the_connection_ends() {
        let (mut live, mut peer) = pair().await;
        let first = sends(&mut live, 4, 2).await;
        let second = sends(&mut live, 5, 1).await;
        let mut third = sends(&mut live, 6, 1).await;
        assert!(live.waits_for(4) && live.waits_for(6) && !live.waits_for(7));
        peer.write_all(b"EN\r\nHD\r\nNS\r\n").await.unwrap();
        peer.shutdown().await.unwrap();
        assert_eq!(live.hear().await, "the server ended the connection");
        let replies = vec![Reply::Missing, Reply::Done(None)];
        assert_eq!(first.await.unwrap().unwrap(), (replies, ConnectionId(1)));
        let (replies, _) = second.await.unwrap().unwrap();
        assert_eq!(replies, [Reply::NotStored]);
        assert!(!live.waits_for(4) && !live.waits_for(5) && live.waits_for(6));

        assert!(third.try_recv().is_err(), "it has no answer yet");
        live.fail("it ended");
        let error = third.await.unwrap().unwrap_err();
        assert!(error.outcome_unknown(), "{error}");
        assert_eq!(error.detail(), Some("it ended"));
        assert!(!live.waits_for(6));
    }
}
