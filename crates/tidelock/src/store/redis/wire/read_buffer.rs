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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncWriteExt, DuplexStream};

    use super::*;

    /// A buffer, and the two ends of its connection.
    struct Fixture {
        buffer: ReadBuffer,
        ours: Pin<Box<dyn ByteStream>>,
        theirs: DuplexStream,
    }

    impl Fixture {
        fn new() -> Self {
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            Self {
                buffer: ReadBuffer::default(),
                ours: Box::pin(ours),
                theirs,
            }
        }

        /// The server sends these bytes, and the buffer reads all of them.
        async fn reads(&mut self, bytes: &[u8]) {
            self.theirs.write_all(bytes).await.unwrap();
            let mut left = bytes.len();
            while left > 0 {
                let read = poll_fn(|cx| self.buffer.read(self.ours.as_mut(), cx));
                let read = read.await.unwrap();
                assert_ne!(read, 0, "the buffer has no room");
                left -= read;
            }
        }
    }

    /// So many bytes, which do not repeat after a power of two.
    fn message(length: usize) -> Vec<u8> {
        (0..=250).cycle().take(length).collect()
    }

    #[tokio::test]
    async fn a_buffer_grows_as_far_as_a_message_needs_and_keeps_only_a_moderate_size() {
        let mut fixture = Fixture::new();
        for (length, grown, kept) in [
            (1000, READ, READ),
            (200_000, MAX_KEPT_CAPACITY, MAX_KEPT_CAPACITY),
            (300_000, 2 * MAX_KEPT_CAPACITY, READ),
        ] {
            let message = message(length);
            fixture.reads(&message).await;
            assert!(fixture.buffer.bytes() == message, "{length} bytes");
            assert_eq!(fixture.buffer.buffer.len(), grown, "{length} bytes");
            fixture.buffer.used(length);
            fixture.reads(b"x").await;
            assert_eq!(fixture.buffer.buffer.len(), kept, "{length} bytes");
            assert_eq!(fixture.buffer.bytes(), b"x");
            fixture.buffer.used(1);
        }
    }

    #[tokio::test]
    async fn the_beginning_of_a_message_moves_to_the_front_before_the_buffer_grows() {
        let (mut fixture, first) = (Fixture::new(), message(READ));
        fixture.reads(&first).await;
        fixture.buffer.used(READ / 2);
        fixture.reads(b"more").await;
        let expected = [&first[READ / 2..], b"more"].concat();
        assert!(fixture.buffer.bytes() == expected, "other bytes");
        assert_eq!(fixture.buffer.buffer.len(), READ);
    }
}
