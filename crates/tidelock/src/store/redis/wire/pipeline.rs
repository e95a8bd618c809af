//! The pipeline: it multiplexes the requests of many tasks over one connection. It is the state that the callers and the
//! I/O task share: the bytes to send, and the slots of the callers that wait for replies.
//!
//! A request keeps only its position in the order of the expected replies. If its caller drops the future, the
//! position stays, and we discard the reply when it arrives.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::engine::runtime::wakers::wake;
use crate::store::BootInstant;
use crate::store::redis::wire::reply::{MessageForm, Reply, RequestError};
use crate::store::redis::wire::request::{Encode, Request};

/// Buffers with a larger capacity than this are freed after use. In bytes.
pub(crate) const MAX_KEPT_CAPACITY: usize = 256 << 10;

/// A reply, or why there is none.
pub(crate) type Answer = Result<Reply, RequestError>;

/// The callers' side of a connection.
#[derive(Debug, Default)]
pub(crate) struct Pipeline {
    state: Mutex<PipelineState>,
    /// Mirrors `state.ended`, for checks without the lock.
    over: AtomicBool,
    /// Mirrors `state.left.is_some()`, for the same.
    has_left: AtomicBool,
    /// Notified when the connection has ended.
    pub(crate) end: Notify,
}

#[derive(Debug, Default)]
struct PipelineState {
    /// The bytes that the I/O task has not taken yet, and their number of requests.
    out: Vec<u8>,
    queued: usize,
    /// The requests without a reply, oldest first. The order of the replies is the order of the requests.
    order: VecDeque<PendingReply>,
    slots: Vec<ReplySlot>,
    /// Slots that no request uses.
    free: Vec<usize>,
    /// The I/O task, while it sleeps.
    driver: Option<Waker>,
    /// The first request whose caller has left. `None`: there is none, or it has been answered.
    left: Option<OverdueRequest>,
    /// Why the connection has ended. `Some`: nothing is queued any more.
    ended: Option<Arc<str>>,
}

/// A request whose caller has left: no caller notices if its reply is overdue.
#[derive(Debug)]
struct OverdueRequest {
    /// The caller would have waited until then.
    deadline: BootInstant,
    /// The number of replies, until this one has certainly come.
    replies: usize,
}

/// A reply we expect.
#[derive(Debug)]
struct PendingReply {
    /// `None`: no caller waits for the reply.
    slot: Option<usize>,
    /// A confirmation of this kind answers the request.
    confirms: Option<Box<Confirmation>>,
}

#[derive(Debug)]
enum ReplySlot {
    Free,
    Waits(Option<Waker>),
    /// The caller has dropped its future.
    Left,
    Answered(Answer),
}

/// A SUBSCRIBE or an UNSUBSCRIBE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) form: MessageForm,
    pub(crate) ends: bool,
}

/// The server's confirmation of a SUBSCRIBE or an UNSUBSCRIBE.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Confirmation {
    pub(crate) of: Subscription,
    pub(crate) channel: String,
}

/// A message that a connection has received, in its order.
#[derive(Debug)]
pub(crate) enum ReceivedReply {
    Answer(Answer),
    Confirmed(Confirmation),
}

/// The outcome of taking the queued bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BatchHint {
    Taken,
    /// There are fewer requests than wanted; they stay queued.
    Few,
    Nothing,
}

impl Pipeline {
    /// Queues a request. It is sent even if the caller drops the future.
    pub(crate) fn send(&self, request: &impl Encode) -> Result<PendingRequest<'_>, RequestError> {
        self.queue(|state| self.asked(state.ask(request, None)))
    }

    /// Queues the requests as one block, with no other caller's request between them.
    pub(crate) fn send_all(
        &self,
        requests: &[Request],
    ) -> Result<Vec<PendingRequest<'_>>, RequestError> {
        self.queue(|state| {
            let each = requests.iter();
            each.map(|request| self.asked(state.ask(request, None)))
                .collect()
        })
    }

    /// Queues a request that the server answers with a confirmation.
    pub(crate) fn send_confirmed(
        &self,
        request: &Request,
        confirmation: Confirmation,
    ) -> Result<PendingRequest<'_>, RequestError> {
        let confirmation = Some(Box::new(confirmation));
        self.queue(|state| self.asked(state.ask(request, confirmation)))
    }

    fn queue<T>(&self, write: impl FnOnce(&mut PipelineState) -> T) -> Result<T, RequestError> {
        let mut state = self.lock();
        if let Some(why) = &state.ended {
            return Err(broken(why));
        }
        let asked = write(&mut state);
        let driver = state.driver.take();
        // We wake the I/O task after the unlock, because it takes the lock at once.
        drop(state);
        driver.into_iter().for_each(wake);
        Ok(asked)
    }

    fn asked(&self, slot: usize) -> PendingRequest<'_> {
        PendingRequest {
            pipeline: self,
            slot,
            deadline: None,
        }
    }

    /// The caller of a request without a reply leaves.
    fn leave(&self, state: &mut PipelineState, deadline: Option<BootInstant>) {
        let replies = state.order.len();
        if let (Some(deadline), None, 1..) = (deadline, &state.left, replies) {
            state.left = Some(OverdueRequest { deadline, replies });
            self.has_left.store(true, Ordering::Release);
        }
    }

    fn count_reply(&self, state: &mut PipelineState) {
        if let Some(left) = &mut state.left {
            left.replies -= 1;
            if left.replies == 0 {
                state.left = None;
                self.has_left.store(false, Ordering::Release);
            }
        }
    }

    /// A request whose caller has left has had no reply, and the caller would not have waited until now.
    pub(crate) fn is_overdue(&self, now: impl FnOnce() -> BootInstant) -> bool {
        // Nearly always false, and then the lock and the clock are not needed.
        self.has_left.load(Ordering::Acquire) && {
            let now = now();
            let state = self.lock();
            state.left.as_ref().is_some_and(|left| left.deadline <= now)
        }
    }

    /// Hands each reply to the oldest request, and collects the wakers. A reply that cannot belong to the oldest
    /// request is an error: every later reply would go to the wrong request, so the connection must end.
    pub(crate) fn deliver(
        &self,
        received: &mut Vec<ReceivedReply>,
        wakers: &mut VecDeque<Waker>,
    ) -> Result<(), &'static str> {
        let mut state = self.lock();
        for received in received.drain(..) {
            let Some(address) = state.turn(&received)? else {
                continue;
            };
            self.count_reply(&mut state);
            let answer = match received {
                ReceivedReply::Answer(answer) => answer,
                ReceivedReply::Confirmed(_) => Ok(Reply::Nil),
            };
            wakers.extend(address.slot.and_then(|slot| state.fill(slot, answer)));
        }
        Ok(())
    }

    /// The number of requests without a reply.
    pub(crate) fn in_flight(&self) -> usize {
        self.lock().order.len()
    }

    /// Swaps the queued bytes for an empty buffer, if they hold at least `least` requests.
    pub(crate) fn batch_hint(&self, empty: &mut Vec<u8>, least: usize) -> BatchHint {
        let mut state = self.lock();
        match state.queued {
            0 => BatchHint::Nothing,
            few if few < least => BatchHint::Few,
            _ => {
                state.queued = 0;
                std::mem::swap(&mut state.out, empty);
                BatchHint::Taken
            }
        }
    }

    /// Registers the I/O task's waker before it sleeps. `false`: it must not sleep, because there is work to do.
    pub(crate) fn sleep(&self, waker: &Waker, sending: bool) -> bool {
        let mut state = self.lock();
        if state.ended.is_some() || !(sending || state.out.is_empty()) {
            return false;
        }
        let old = state.driver.replace(waker.clone());
        drop(state);
        drop(old); // not under the lock: the drop may run code that takes the lock again
        true
    }

    /// Ends the connection. Requests without a reply fail.
    pub(crate) fn cut(&self) {
        self.finish("it was given up");
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Ends the connection with a reason, and wakes all callers.
    pub(crate) fn finish(&self, why: &str) {
        let mut state = self.lock();
        if state.ended.is_some() {
            return;
        }
        state.ended = Some(why.into());
        self.over.store(true, Ordering::Release);
        let mut wakers: Vec<Waker> = state.driver.take().into_iter().collect();
        for slot in &mut state.slots {
            if let ReplySlot::Waits(waker) = slot {
                wakers.extend(waker.take());
            }
        }
        state.order = VecDeque::new();
        state.out = Vec::new();
        drop(state);
        self.end.notify_one();
        wakers.into_iter().for_each(wake);
    }

    fn lock(&self) -> MutexGuard<'_, PipelineState> {
        self.state.lock()
    }
}

impl PipelineState {
    fn ask(&mut self, request: &impl Encode, confirms: Option<Box<Confirmation>>) -> usize {
        if request.is_asking() {
            // One block: ASKING applies to the next command of the connection, and that must be this one.
            Request::new("ASKING").write(&mut self.out);
            self.order.push_back(PendingReply {
                slot: None,
                confirms: None,
            });
        }
        request.write(&mut self.out);
        self.queued += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(ReplySlot::Free);
            self.slots.len() - 1
        });
        self.slots[slot] = ReplySlot::Waits(None);
        let address = PendingReply {
            slot: Some(slot),
            confirms,
        };
        self.order.push_back(address);
        slot
    }

    /// The request that the message answers. `None`: the message is not a reply, only news.
    fn turn(&mut self, received: &ReceivedReply) -> Result<Option<PendingReply>, &'static str> {
        let awaited = self
            .order
            .front()
            .map(|address| address.confirms.as_deref());
        match (received, awaited) {
            // A server may end a subscription by itself. If we send the UNSUBSCRIBE at the same moment, its message
            // looks like the reply to ours. That is correct too: the subscription has ended.
            (ReceivedReply::Confirmed(confirmation), awaited) => {
                let meant = awaited.flatten() == Some(confirmation);
                Ok(meant.then(|| self.order.pop_front()).flatten())
            }
            (ReceivedReply::Answer(Ok(_)), Some(Some(_))) => Err("an answer to something else"),
            (ReceivedReply::Answer(_), Some(_)) => Ok(self.order.pop_front()),
            (ReceivedReply::Answer(_), None) => Err("an answer that nobody has asked for"),
        }
    }

    /// Stores the reply for its caller, and returns the waker.
    fn fill(&mut self, slot: usize, answer: Answer) -> Option<Waker> {
        match std::mem::replace(&mut self.slots[slot], ReplySlot::Answered(answer)) {
            ReplySlot::Waits(waker) => waker,
            ReplySlot::Left => {
                self.release(slot);
                None
            }
            ReplySlot::Free | ReplySlot::Answered(_) => None,
        }
    }

    fn release(&mut self, slot: usize) {
        self.slots[slot] = ReplySlot::Free;
        self.free.push(slot);
    }
}

/// A request in flight. If it is dropped, the reply is discarded.
#[derive(Debug)]
pub(crate) struct PendingRequest<'a> {
    pipeline: &'a Pipeline,
    slot: usize,
    /// The caller waits until then.
    deadline: Option<BootInstant>,
}

impl PendingRequest<'_> {
    /// The caller waits until then, and no longer. If it leaves earlier, the pipeline watches over the deadline.
    pub(crate) fn until(mut self, deadline: BootInstant) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

impl Future for PendingRequest<'_> {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let mut state = self.pipeline.lock();
        let ended = state.ended.clone();
        let slot = &mut state.slots[self.slot];
        match (slot, ended) {
            // A reply that has arrived wins over the end of the connection.
            (slot @ ReplySlot::Answered(_), _) => match std::mem::replace(slot, ReplySlot::Left) {
                ReplySlot::Answered(answer) => Poll::Ready(answer),
                _ => Poll::Pending,
            },
            (_, Some(why)) => Poll::Ready(Err(broken(&why))),
            (ReplySlot::Waits(waker), None) => {
                let known = waker.as_ref().is_some_and(|old| old.will_wake(cx.waker()));
                let old = (!known).then(|| waker.replace(cx.waker().clone()));
                drop(state);
                drop(old); // not under the lock, as above
                Poll::Pending
            }
            (ReplySlot::Free | ReplySlot::Left, None) => Poll::Pending,
        }
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        let mut state = self.pipeline.lock();
        let left = match std::mem::replace(&mut state.slots[self.slot], ReplySlot::Left) {
            // The reply is still to come, so the slot stays reserved until then.
            waits @ ReplySlot::Waits(_) => {
                self.pipeline.leave(&mut state, self.deadline);
                waits
            }
            other => {
                state.release(self.slot);
                other
            }
        };
        drop(state);
        drop(left); // not under the lock, as above
    }
}

fn broken(why: &str) -> RequestError {
    RequestError::Broken(format!(
        "the connection broke before the answer came: {why}"
    ))
}

#[cfg(test)]
impl Pipeline {
    /// The number of used slots, and of all slots.
    pub(crate) fn slots_in_use(&self) -> (usize, usize) {
        let state = self.lock();
        (state.slots.len() - state.free.len(), state.slots.len())
    }
}

#[cfg(test)]
mod tests;
