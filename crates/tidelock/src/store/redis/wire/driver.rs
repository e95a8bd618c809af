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

use tokio::io::ReadBuf;

use crate::engine::runtime::wakers::wake;
use crate::store::redis::wire::decode::{Decoder, Frame};
use crate::store::redis::wire::pipeline::{
    BatchHint, Confirmation, MAX_KEPT_CAPACITY, Pipeline, ReceivedReply, Subscription,
};
use crate::store::redis::wire::reply::{MessageForm, Push, Reply};
use crate::store::redis::wire::stream::ByteStream;

/// The initial size of the input buffer. Each read has room for at least half of it.
const READ: usize = 16 << 10;

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

/// The input buffer. `buffer[start..end]` is received and not yet decoded. Invariant: `start <= end <= buffer.len()`.
struct ReadBuffer {
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
    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn used(&mut self, count: usize) {
        self.start += count;
    }

    fn read(
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
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use futures_util::poll;
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::store::redis::wire::live_connection::LiveConnection;
    use crate::store::redis::wire::live_connection::peer::{
        GREETED, HANDSHAKE, Peer, connected, in_time, is_broken, nobody, request_of,
    };
    use crate::store::redis::wire::pipeline::PendingRequest;

    /// Replies that the server sent before it closed the connection count, even if writes fail already.
    #[tokio::test]
    async fn last_answers_are_heard() {
        let (conn, mut peer) = connected().await;
        let (one, two) = (request_of("ONE"), request_of("TWO"));
        let mut first = Box::pin(conn.ask(&one));
        assert!(poll!(first.as_mut()).is_pending());
        peer.expects(&["ONE"]).await;
        peer.says(":1\r\n").await;
        let mut second = Box::pin(conn.ask(&two));
        assert!(poll!(second.as_mut()).is_pending());
        drop(peer);
        let both = async { tokio::join!(first, second) };
        let (first, second) = in_time(both).await;
        assert_eq!(first, Ok(Reply::Int(1)));
        is_broken(&second, "before the answer");
    }

    /// A server whose replies we do not read stops reading. So we must read while a write is blocked.
    #[tokio::test]
    async fn both_sides_may_be_full_at_once() {
        let (ours, theirs) = tokio::io::duplex(64);
        let mut peer = Peer(theirs);
        let login = nobody();
        let opening = <LiveConnection>::open(Box::pin(ours), &login, None);
        let handshake = async {
            peer.expects(&HANDSHAKE).await;
            peer.says(GREETED).await;
        };
        let (conn, ()) = in_time(async { tokio::join!(opening, handshake) }).await;
        let conn = conn.unwrap();
        let long = "x".repeat(1000);
        let request = request_of(&long);
        let serve = async {
            for _ in 0..20 {
                peer.expects(&[&long]).await;
                peer.says(format!("$1000\r\n{long}\r\n")).await;
            }
        };
        let asks = futures_util::future::join_all((0..20).map(|_| conn.ask(&request)));
        let (answers, ()) = in_time(async { tokio::join!(asks, serve) }).await;
        for answer in answers {
            assert_eq!(answer, Ok(Reply::Text(long.clone().into_bytes())));
        }
    }

    /// Counts how many callers were woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A driver that the test polls, with this many callers that have a reply, and the callers that it has woken.
    async fn answered(
        pipeline: &Arc<Pipeline>,
        callers: usize,
    ) -> (ConnectionDriver, Peer, Vec<PendingRequest<'_>>, Arc<Woken>) {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let mut peer = Peer(theirs);
        let mut driver = ConnectionDriver::new(Box::pin(ours), Arc::clone(pipeline), None);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut waiting: Vec<_> = (0..callers)
            .map(|_| pipeline.send(&request_of("ONE")).unwrap())
            .collect();
        for caller in &mut waiting {
            let asked = Pin::new(caller).poll(&mut Context::from_waker(&waker));
            assert!(asked.is_pending());
        }
        assert!(poll!(&mut driver).is_pending());
        peer.expects(&vec!["ONE"; callers]).await;
        peer.says(":1\r\n".repeat(callers)).await;
        assert!(poll!(&mut driver).is_pending());
        (driver, peer, waiting, woken)
    }

    /// While the server works for one group, the client works for the next.
    #[tokio::test]
    async fn the_requests_of_a_group_are_sent_before_the_next_group_is_woken() {
        let pipeline = Arc::default();
        let (mut driver, mut peer, _waiting, woken) = answered(&pipeline, 24).await;
        for group in 1..=GROUPS {
            assert_eq!(woken.0.load(Ordering::Relaxed), 8 * group);
            let next: Vec<_> = (0..8)
                .map(|_| pipeline.send(&request_of("TWO")).unwrap())
                .collect();
            assert!(poll!(&mut driver).is_pending());
            peer.expects(&["TWO"; 8]).await;
            drop(next);
        }
    }

    /// So a few callers need one write.
    #[tokio::test]
    async fn a_small_group_is_woken_at_once() {
        let pipeline = Arc::default();
        let (_driver, _peer, _waiting, woken) = answered(&pipeline, SMALLEST_GROUP).await;
        assert_eq!(woken.0.load(Ordering::Relaxed), SMALLEST_GROUP);
    }

    #[tokio::test]
    async fn the_end_of_a_driver_wakes_all_callers_that_have_a_reply() {
        let pipeline = Arc::default();
        let (driver, _peer, waiting, woken) = answered(&pipeline, 24).await;
        assert_eq!(woken.0.load(Ordering::Relaxed), 8);
        drop(driver);
        assert_eq!(woken.0.load(Ordering::Relaxed), 24);
        for caller in waiting {
            assert_eq!(in_time(caller).await, Ok(Reply::Int(1)));
        }
    }

    #[tokio::test]
    async fn a_cut_is_told_at_once() {
        let (conn, mut peer) = connected().await;
        let ask = request_of("ONE");
        let mut waits = Box::pin(conn.ask(&ask));
        assert!(poll!(waits.as_mut()).is_pending());
        conn.pipeline.cut();
        match poll!(waits.as_mut()) {
            Poll::Ready(answer) => is_broken(&answer, "given up"),
            Poll::Pending => panic!("it waits"),
        }
        let mut rest = Vec::new();
        in_time(peer.0.read_to_end(&mut rest)).await.unwrap();
    }

    /// The connection's runtime may end before its callers do.
    #[test]
    fn the_end_of_its_runtime_ends_a_connection() {
        let runtime = || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap()
        };
        let (home, other) = (runtime(), runtime());
        let (conn, peer) = home.block_on(connected());
        let ask = request_of("ONE");
        let mut waits = Box::pin(conn.ask(&ask));
        other.block_on(async { assert!(poll!(waits.as_mut()).is_pending()) });
        drop(home);
        is_broken(&other.block_on(in_time(waits)), "runtime");
        drop(peer);
    }
}
