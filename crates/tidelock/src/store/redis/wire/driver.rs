//! The driver of a live connection: one future that writes queued requests, reads replies and pushes, and delivers
//! them.
//!
//! One poll repeats these steps:
//!
//! 1. Send. If the write buffer is empty, swap it with the pipeline's queue. Write until the stream blocks or the queue
//!    is empty, then flush.
//! 2. Read once. Decode all complete messages: pushes go to the push handler, replies and confirmations to the
//!    pipeline. Wake the callers. Continue with step 1.
//! 3. If the stream has no bytes, store our waker in the pipeline and sleep.
//!
//! Batching: the callers woken in step 2 may send again at once. If the queue holds fewer requests than that, the
//! driver yields once and runs behind these callers. One write then serves them all. The callers are woken in groups, and
//! each group's requests are written before the next group is woken: while the client works for one group, the server
//! works for another. In one large group, each would wait for the other.
//!
//! ```text
//!               queue empty and flushed, or write blocked
//!      ┌─► send ──────────────────────────────────────────► read ── no bytes ──► sleep
//!      │    │ fewer requests than callers just woken         │ │                   │
//!      │    ▼                                          bytes │ │ end of stream,    │ request queued, stream ready,
//!      │  yield once ─► send ─► wake the next group          ▼ │ error or junk     │ or cut
//!      ├──────────────────────────────────────────────── deliver ▼                 │
//!      │                                                       end                 │
//!      └───────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Invariants:
//! 1. Requests leave in queue order: the driver takes the next batch only after the last byte of the previous one.
//! 2. A blocked write never stops reading. A server whose replies we do not read stops reading our requests, and both
//!    sides would wait for each other.
//! 3. A write error ends the connection only after all bytes that the server sent are read: these may be replies.
//! 4. The driver sleeps only if the queue is empty or the write is blocked. The pipeline checks this and stores the
//!    waker under one lock. Otherwise a request that is queued in between would not be sent.
//! 5. Messages before junk are delivered; then the connection ends.
//! 6. The push handler runs before the subscription request of the same confirmation completes.
//! 7. A push on a connection without a push handler ends it: such a connection never subscribes.
//! 8. However the driver ends, also by `drop`, it wakes all callers that have a reply and ends the pipeline, so no caller
//!    waits for a reply that cannot come.
//!
//! Lock order: the driver takes only the pipeline's mutex, and holds no lock while it calls the push handler or a
//! waker.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use crate::engine::runtime::wakers::wake;
use crate::store::redis::wire::decode::{Decoder, Frame};
use crate::store::redis::wire::pipeline::{
    BatchHint, Confirmation, MAX_KEPT_CAPACITY, Pipeline, ReceivedReply, Subscription,
};
use crate::store::redis::wire::read_buffer::ReadBuffer;
use crate::store::redis::wire::reply::{MessageForm, Push, Reply};
use crate::store::redis::wire::stream::ByteStream;

/// The requests of one connection are spread over about so many groups: one that the server works on, one that the
/// client works on, and one on its way.
const GROUPS: usize = 3;

/// The callers of a smaller group are woken together: a write costs as much as the work of a few callers.
const SMALLEST_GROUP: usize = 4;

/// The push handler: the driver calls it for each push, without a lock. It must not block.
pub(crate) type PushHandler = Arc<dyn Fn(Push) + Send + Sync>;

/// Sends and reads until the connection ends. Dropping it, for example with its runtime, ends the connection.
pub(crate) struct ConnectionDriver {
    stream: Pin<Box<dyn ByteStream>>,
    pipeline: Arc<Pipeline>,
    push_handler: Option<PushHandler>,
    /// The write buffer. `sending[sent..]` is not yet written. Invariant: `sent` is zero if the buffer is empty.
    sending: Vec<u8>,
    sent: usize,
    /// Bytes were written since the last flush, and the stream may buffer them.
    unflushed: bool,
    input: ReadBuffer,
    decoder: Decoder,
    received: Vec<ReceivedReply>,
    /// Callers that have a reply and are not yet woken, oldest first, and the size of the groups that they are woken in.
    wakers: VecDeque<Waker>,
    group: usize,
    /// How many callers were woken since the last write. They may send again at once, and one write for all costs little
    /// more than one write for the first.
    likely: usize,
}

impl ConnectionDriver {
    pub(crate) fn new(
        stream: Pin<Box<dyn ByteStream>>,
        pipeline: Arc<Pipeline>,
        push_handler: Option<PushHandler>,
    ) -> Self {
        Self {
            stream,
            pipeline,
            push_handler,
            sending: Vec::new(),
            sent: 0,
            unflushed: false,
            input: ReadBuffer::default(),
            decoder: Decoder::default(),
            received: Vec::new(),
            wakers: VecDeque::new(),
            group: 0,
            likely: 0,
        }
    }

    /// Writes and reads in turn until both block. Resolves with the reason for the end. Invariant 2 explains the turns.
    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        loop {
            let failed = match self.send(cx) {
                Poll::Ready(Ok(BatchHint::Few)) => return self.yield_once(cx),
                Poll::Ready(Ok(_)) if !self.wakers.is_empty() => {
                    if self.likely > 0 {
                        return self.yield_once(cx);
                    }
                    self.wake_callers(self.group);
                    continue;
                }
                Poll::Ready(result) => result.err(),
                Poll::Pending => None,
            };
            // What they send now cannot leave soon, so they need not wait for each other.
            self.wake_callers(self.wakers.len());
            match self.input.read(self.stream.as_mut(), cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready("the server has closed it".to_owned()),
                Poll::Ready(Ok(_)) => {
                    if let Err(why) = self.hear() {
                        return Poll::Ready(why.to_owned());
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(error.to_string()),
                Poll::Pending => {
                    // We report a write error only after all input is read, because the server may have replied before
                    // it closed the connection.
                    if let Some(error) = failed {
                        return Poll::Ready(error.to_string());
                    }
                    if self.pipeline.is_over() {
                        return Poll::Ready(String::new());
                    }
                    if self.pipeline.sleep(cx.waker(), !self.sending.is_empty()) {
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    /// Lets the callers just woken run first and queue their next requests.
    fn yield_once(&mut self, cx: &Context<'_>) -> Poll<String> {
        self.likely = 0;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes and flushes all queued requests.
    fn send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<BatchHint>> {
        loop {
            if self.sending.is_empty() {
                match self.pipeline.batch_hint(&mut self.sending, self.likely) {
                    BatchHint::Taken => self.likely = 0,
                    BatchHint::Few => return Poll::Ready(Ok(BatchHint::Few)),
                    BatchHint::Nothing => break,
                }
            }
            let rest = &self.sending[self.sent..];
            let sent = ready!(self.stream.as_mut().poll_write(cx, rest))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += sent;
            self.unflushed = true;
            if self.sent == self.sending.len() {
                self.sent = 0;
                self.sending.clear();
                if self.sending.capacity() > MAX_KEPT_CAPACITY {
                    self.sending = Vec::new();
                }
            }
        }
        if self.unflushed {
            ready!(self.stream.as_mut().poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(BatchHint::Nothing))
    }

    /// Decodes and delivers all complete messages in the input.
    fn hear(&mut self) -> Result<(), &'static str> {
        let junk = loop {
            let (used, said) = match self.decoder.next(self.input.bytes()) {
                Ok(next) => next,
                Err(junk) => break Some(junk),
            };
            self.input.used(used);
            match said {
                Some(Frame::Answer(answer)) => self.received.push(ReceivedReply::Answer(answer)),
                Some(Frame::Push(parts)) => {
                    let Some(push_handler) = &self.push_handler else {
                        break Some("a push that nobody listens to");
                    };
                    let (push, confirmed) = understood(parts);
                    if let Some(push) = push {
                        push_handler(push);
                    }
                    self.received
                        .extend(confirmed.map(ReceivedReply::Confirmed));
                }
                None => break None,
            }
        };
        // Messages before the junk are valid, so we deliver them first.
        let delivered = self.pipeline.deliver(&mut self.received, &mut self.wakers);
        let all = self.pipeline.in_flight() + self.wakers.len();
        self.group = all.div_ceil(GROUPS).max(SMALLEST_GROUP);
        self.wake_callers(self.group);
        delivered.and(junk.map_or(Ok(()), Err))
    }

    fn wake_callers(&mut self, most: usize) {
        let count = most.min(self.wakers.len());
        self.likely += count;
        self.wakers.drain(..count).for_each(wake);
    }

    fn end(&mut self, why: &str) {
        self.wake_callers(self.wakers.len());
        self.pipeline.finish(why);
    }
}

impl Future for ConnectionDriver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let why = ready!(self.drive(cx));
        self.end(&why);
        Poll::Ready(())
    }
}

impl Drop for ConnectionDriver {
    fn drop(&mut self) {
        self.end("the runtime it lived on has gone");
    }
}

/// Parses a push: the event for the push handler, and the request that it confirms, if any. Ignores other kinds.
pub(crate) fn understood(parts: Vec<Reply>) -> (Option<Push>, Option<Confirmation>) {
    let mut parts = parts.into_iter().map(|word| match word {
        Reply::Text(text) => text,
        _ => Vec::new(),
    });
    let (kind, channel) = (parts.next().unwrap_or_default(), parts.next());
    let Some(channel) = channel.and_then(|text| String::from_utf8(text).ok()) else {
        return (None, None);
    };
    let (form, ends) = match &*kind {
        b"message" => (MessageForm::Plain, None),
        b"smessage" => (MessageForm::Sharded, None),
        b"subscribe" => (MessageForm::Plain, Some(false)),
        b"unsubscribe" => (MessageForm::Plain, Some(true)),
        b"ssubscribe" => (MessageForm::Sharded, Some(false)),
        b"sunsubscribe" => (MessageForm::Sharded, Some(true)),
        _ => return (None, None),
    };
    let Some(ends) = ends else {
        let payload = parts.next().unwrap_or_default();
        let message = Push::Message {
            form,
            channel,
            payload,
        };
        return (Some(message), None);
    };
    let push = if ends {
        Push::Unsubscribed(form, channel.clone())
    } else {
        Push::Subscribed(form, channel.clone())
    };
    let of = Subscription { form, ends };
    (Some(push), Some(Confirmation { of, channel }))
}

#[cfg(test)]
mod tests;
