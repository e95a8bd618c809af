//! What callers and the task of a connection share: the bytes that are to be sent, and who waits for which answer.
//!
//! Nothing is kept for a request but its place among those that wait. A caller that has gone leaves its place, and the
//! answer is thrown away when its turn comes.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::reply::{Form, Reply, Trouble};
use super::request::{Request, Words};
use crate::core::signals::wake;

/// Buffers that have grown larger than this are not kept.
pub(super) const KEPT: usize = 256 << 10;

/// An answer, or why there is none.
pub(super) type Answer = Result<Reply, Trouble>;

/// A connection as its callers see it.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    state: Mutex<State>,
    /// As in the state, for a look in passing.
    over: AtomicBool,
    /// Rung when it is over.
    pub(super) end: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// What nobody has begun to send, and how many requests that is.
    out: Vec<u8>,
    queued: usize,
    /// The requests that have no answer yet, oldest first.
    order: VecDeque<Place>,
    slots: Vec<Slot>,
    /// Slots that are nobody's.
    free: Vec<usize>,
    /// The task that sends and reads, while it sleeps.
    driver: Option<Waker>,
    /// Why it is over.
    ended: Option<Arc<str>>,
}

/// An answer that is to come.
#[derive(Debug)]
struct Place {
    /// `None`: it is of no use to anybody.
    slot: Option<usize>,
    /// It comes as a confirmation.
    confirms: Option<Box<Confirmation>>,
}

#[derive(Debug)]
enum Slot {
    Free,
    Waits(Option<Waker>),
    /// Its caller has gone.
    Left,
    Answered(Answer),
}

/// What is done about a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) form: Form,
    pub(super) ends: bool,
}

/// The server's word that something was done about a channel.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Confirmation {
    pub(super) of: Subscription,
    pub(super) channel: String,
}

/// What a connection has heard, in this order.
#[derive(Debug)]
pub(super) enum Heard {
    Answer(Answer),
    Confirmed(Confirmation),
}

/// What there was to send.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Gathered {
    Taken,
    /// Fewer requests than were wanted; they are still there.
    Few,
    Nothing,
}

impl Pipe {
    /// Queues a request. It is sent whatever becomes of its caller.
    pub(super) fn send(&self, request: &impl Words) -> Result<Asked<'_>, Trouble> {
        self.queue(|state| self.asked(state.ask(request, None)))
    }

    /// Queues requests in one piece, with nobody else's between them.
    pub(super) fn send_all(&self, requests: &[Request]) -> Result<Vec<Asked<'_>>, Trouble> {
        self.queue(|state| {
            let each = requests.iter();
            each.map(|request| self.asked(state.ask(request, None)))
                .collect()
        })
    }

    /// Queues a request that is answered by a confirmation.
    pub(super) fn send_confirmed(
        &self,
        request: &Request,
        confirmation: Confirmation,
    ) -> Result<Asked<'_>, Trouble> {
        let confirmation = Some(Box::new(confirmation));
        self.queue(|state| self.asked(state.ask(request, confirmation)))
    }

    fn queue<T>(&self, write: impl FnOnce(&mut State) -> T) -> Result<T, Trouble> {
        let mut state = self.lock();
        if let Some(why) = &state.ended {
            return Err(broken(why));
        }
        let asked = write(&mut state);
        let driver = state.driver.take();
        drop(state);
        driver.into_iter().for_each(wake);
        Ok(asked)
    }

    fn asked(&self, slot: usize) -> Asked<'_> {
        Asked { pipe: self, slot }
    }

    /// Gives everybody an answer whose turn it is, and puts down whom to wake. An answer that cannot be meant for the
    /// oldest request must not reach the next one either: then nothing on this connection can be believed any more.
    pub(super) fn deliver(
        &self,
        heard: &mut Vec<Heard>,
        wakers: &mut Vec<Waker>,
    ) -> Result<(), &'static str> {
        let mut state = self.lock();
        for heard in heard.drain(..) {
            let Some(place) = state.turn(&heard)? else {
                continue;
            };
            let answer = match heard {
                Heard::Answer(answer) => answer,
                Heard::Confirmed(_) => Ok(Reply::Nil),
            };
            wakers.extend(place.slot.and_then(|slot| state.fill(slot, answer)));
        }
        Ok(())
    }

    /// Exchanges what has gathered for an empty buffer, if it is at least so many requests.
    pub(super) fn gathered(&self, empty: &mut Vec<u8>, least: usize) -> Gathered {
        let mut state = self.lock();
        match state.queued {
            0 => Gathered::Nothing,
            few if few < least => Gathered::Few,
            _ => {
                state.queued = 0;
                std::mem::swap(&mut state.out, empty);
                Gathered::Taken
            }
        }
    }

    /// The task is about to sleep: `false` if it must not, because there is something to do.
    pub(super) fn sleep(&self, waker: &Waker, sending: bool) -> bool {
        let mut state = self.lock();
        if state.ended.is_some() || !(sending || state.out.is_empty()) {
            return false;
        }
        let old = state.driver.replace(waker.clone());
        drop(state);
        drop(old); // not under the lock: it may be the last that keeps a task, and what that task asks here
        true
    }

    /// Ends the connection, also for those who wait for an answer.
    pub(super) fn cut(&self) {
        self.finish("it was given up");
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Nothing more is heard here.
    pub(super) fn finish(&self, why: &str) {
        let mut state = self.lock();
        if state.ended.is_some() {
            return;
        }
        state.ended = Some(why.into());
        self.over.store(true, Ordering::Release);
        let mut wakers: Vec<Waker> = state.driver.take().into_iter().collect();
        for slot in &mut state.slots {
            if let Slot::Waits(waker) = slot {
                wakers.extend(waker.take());
            }
        }
        state.order = VecDeque::new();
        state.out = Vec::new();
        drop(state);
        self.end.notify_one();
        wakers.into_iter().for_each(wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn ask(&mut self, request: &impl Words, confirms: Option<Box<Confirmation>>) -> usize {
        if request.is_asking() {
            // In one piece: it is about the next command of its connection, whosever that is.
            Request::new("ASKING").write(&mut self.out);
            self.order.push_back(Place {
                slot: None,
                confirms: None,
            });
        }
        request.write(&mut self.out);
        self.queued += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Free);
            self.slots.len() - 1
        });
        self.slots[slot] = Slot::Waits(None);
        let place = Place {
            slot: Some(slot),
            confirms,
        };
        self.order.push_back(place);
        slot
    }

    /// Whose turn it is. `None`: it is no answer, only news.
    fn turn(&mut self, heard: &Heard) -> Result<Option<Place>, &'static str> {
        let awaited = self.order.front().map(|place| place.confirms.as_deref());
        match (heard, awaited) {
            // A server that takes a subscription away says so unasked. Just when we give the same one up it looks as if it
            // had answered us, which is true as well.
            (Heard::Confirmed(confirmation), awaited) => {
                let meant = awaited.flatten() == Some(confirmation);
                Ok(meant.then(|| self.order.pop_front()).flatten())
            }
            (Heard::Answer(Ok(_)), Some(Some(_))) => Err("an answer to something else"),
            (Heard::Answer(_), Some(_)) => Ok(self.order.pop_front()),
            (Heard::Answer(_), None) => Err("an answer that nobody has asked for"),
        }
    }

    /// Puts the answer down for its caller, and says whom to wake.
    fn fill(&mut self, slot: usize, answer: Answer) -> Option<Waker> {
        match std::mem::replace(&mut self.slots[slot], Slot::Answered(answer)) {
            Slot::Waits(waker) => waker,
            Slot::Left => {
                self.release(slot);
                None
            }
            Slot::Free | Slot::Answered(_) => None,
        }
    }

    fn release(&mut self, slot: usize) {
        self.slots[slot] = Slot::Free;
        self.free.push(slot);
    }
}

/// A request on its way. Dropped, it leaves its answer to nobody.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pipe: &'a Pipe,
    slot: usize,
}

impl Future for Asked<'_> {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let mut state = self.pipe.lock();
        let ended = state.ended.clone();
        let slot = &mut state.slots[self.slot];
        match (slot, ended) {
            (slot @ Slot::Answered(_), _) => match std::mem::replace(slot, Slot::Left) {
                Slot::Answered(answer) => Poll::Ready(answer),
                _ => Poll::Pending,
            },
            (_, Some(why)) => Poll::Ready(Err(broken(&why))),
            (Slot::Waits(waker), None) => {
                let known = waker.as_ref().is_some_and(|old| old.will_wake(cx.waker()));
                let old = (!known).then(|| waker.replace(cx.waker().clone()));
                drop(state);
                drop(old); // not under the lock, as above
                Poll::Pending
            }
            (Slot::Free | Slot::Left, None) => Poll::Pending,
        }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut state = self.pipe.lock();
        let left = match std::mem::replace(&mut state.slots[self.slot], Slot::Left) {
            // Still to come: the slot is kept until then.
            waits @ Slot::Waits(_) => waits,
            other => {
                state.release(self.slot);
                other
            }
        };
        drop(state);
        drop(left); // not under the lock, as above
    }
}

fn broken(why: &str) -> Trouble {
    Trouble::Broken(format!(
        "the connection broke before the answer came: {why}"
    ))
}

#[cfg(test)]
impl Pipe {
    /// How many slots somebody has, and how many there are.
    pub(super) fn slots_in_use(&self) -> (usize, usize) {
        let state = self.lock();
        (state.slots.len() - state.free.len(), state.slots.len())
    }
}
