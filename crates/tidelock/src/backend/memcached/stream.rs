//! One connection: bytes out in order, answers in the same order.

use std::collections::VecDeque;

use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::errors::unanswered;
use super::link::Line;
use super::wire::{Inbox, Reply, Shape};
use crate::error::Result;

/// One connection that stands.
pub(super) struct Wire {
    stream: TcpStream,
    pub(super) line: Line,
    /// Where what comes in is read to. Apart, because it would lie in every future that reads.
    bytes: Box<[u8]>,
    inbox: Inbox,
    /// Sent and not answered, oldest first.
    open: VecDeque<Open>,
}

/// A request that was sent, and who waits for its answers.
pub(super) struct Open {
    pub(super) number: u64,
    pub(super) shapes: Vec<Shape>,
    pub(super) replies: Vec<Reply>,
    pub(super) answer: oneshot::Sender<Result<(Vec<Reply>, Line)>>,
}

impl Wire {
    pub(super) fn new(stream: TcpStream, line: Line) -> Self {
        Self {
            stream,
            line,
            bytes: vec![0; 16 * 1024].into(),
            inbox: Inbox::default(),
            open: VecDeque::new(),
        }
    }

    pub(super) fn waits_for(&self, number: u64) -> bool {
        self.open.iter().any(|open| open.number == number)
    }

    /// Sends what is then waited for. From here on it may take effect.
    pub(super) async fn send(&mut self, bytes: &[u8], open: Open) -> Result<(), String> {
        self.open.push_back(open);
        self.write(bytes).await
    }

    pub(super) async fn write(&self, mut bytes: &[u8]) -> Result<(), String> {
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

    /// More bytes, put into the inbox. Dropped early it has lost nothing.
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

    /// One answer, for the greeting.
    pub(super) async fn answer(&mut self, shape: Shape) -> Result<Reply, String> {
        loop {
            if let Some(reply) = self.inbox.next(shape)? {
                return Ok(reply);
            }
            self.read().await?;
        }
    }

    /// Hands answers to those who wait for them, until the connection ends: why it did.
    pub(super) async fn hear(&mut self) -> String {
        loop {
            if let Err(why) = self.read().await.and_then(|()| self.hand_out()) {
                return why;
            }
        }
    }

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
                // An error means that nobody waits any more.
                let _ = open.answer.send(Ok((open.replies, self.line)));
            }
        }
        Ok(())
    }

    /// What was sent and not answered may have taken effect.
    pub(super) fn fail(&mut self, why: &str) {
        for open in self.open.drain(..) {
            let _ = open.answer.send(Err(unanswered(why)));
        }
    }
}
