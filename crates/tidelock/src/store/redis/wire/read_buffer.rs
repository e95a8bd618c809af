//! The input buffer of a connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;

use crate::store::redis::wire::pipeline::MAX_KEPT_CAPACITY;
use crate::store::redis::wire::stream::ByteStream;

/// The initial size of the input buffer. Each read has room for at least half of it.
const READ: usize = 16 << 10;

/// The input buffer. `buffer[start..end]` is received and not yet decoded. Invariant: `start <= end <= buffer.len()`.
pub(crate) struct ReadBuffer {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Default for ReadBuffer {
    fn default() -> Self {
        Self {
            buffer: vec![0; READ],
            start: 0,
            end: 0,
        }
    }
}

impl ReadBuffer {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(crate) fn used(&mut self, count: usize) {
        self.start += count;
    }

    pub(crate) fn read(
        &mut self,
        stream: Pin<&mut dyn ByteStream>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.make_room();
        let mut room = ReadBuf::new(&mut self.buffer[self.end..]);
        ready!(stream.poll_read(cx, &mut room))?;
        let count = room.filled().len();
        self.end += count;
        Poll::Ready(Ok(count))
    }

    /// Makes room for the next read: moves the rest of an incomplete message to the front, and doubles the buffer if
    /// that is not enough. The decoder limits the size of a message and so the size of the buffer.
    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > MAX_KEPT_CAPACITY {
                *self = Self::default();
            }
        }
        if self.buffer.len() - self.end >= READ / 2 {
            return;
        }
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.buffer.len() - self.end < READ / 2 {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
    }
}
