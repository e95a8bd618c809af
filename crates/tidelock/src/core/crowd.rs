//! Those who wait in a line: what they are told, and who looks after them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use crate::backend::{Moment, Name, Wake};
use crate::core::caller::Caller;
use crate::core::line::{Inner, Lines};
use crate::core::seat::Call;
use crate::core::signals::wake;
use crate::error::Error;

/// Those who wait behind whoever leads.
#[derive(Default)]
pub(super) struct Crowd {
    /// In the order in which they came.
    pub(super) waiting: BTreeMap<u64, Arc<Caller>>,
    /// Armed for whoever leads next.
    pub(super) wake: Option<Wake>,
    /// Who was called last.
    pub(super) called: Option<Arc<Caller>>,
    /// When something last happened here.
    pub(super) moved: Option<Moment>,
    /// Those who wait have been told why the store does not answer.
    pub(super) troubled: bool,
}

impl Crowd {
    pub(super) fn since(now: Moment) -> Box<Self> {
        Box::new(Self {
            moved: Some(now),
            ..Self::default()
        })
    }
}

impl Lines {
    /// What keeps the store from answering, for all who wait here: it says more than that the time is up. `None`: it answers.
    pub(super) fn trouble(&self, name: &Name, error: Option<&Error>) {
        let mut inner = self.lock();
        let line = inner.lines.get_mut(name);
        if let Some(crowd) = line.and_then(|line| line.crowd.as_mut())
            && (error.is_some() || crowd.troubled)
        {
            crowd.troubled = error.is_some();
            for caller in crowd.waiting.values() {
                caller.set_trouble(error.map(Error::retold));
            }
        }
    }

    /// Nobody waits any longer: the store has not answered for too long.
    pub(super) fn dismiss(&self, name: &Name, error: &Error) {
        let mut inner = self.lock();
        let line = inner.lines.get_mut(name);
        let Some(crowd) = line.and_then(|line| line.crowd.as_mut()) else {
            return;
        };
        let all = std::mem::take(&mut crowd.waiting);
        drop(inner);
        call_all(all.into_values(), || Call::Failed(error.retold()));
    }

    /// The client is closed, and who waits here is to find that out.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        let crowds = inner.lines.values_mut().filter_map(|l| l.crowd.as_mut());
        let mut all: Vec<_> = crowds
            .flat_map(|crowd| std::mem::take(&mut crowd.waiting))
            .collect();
        drop(inner);
        // In the order in which they came, whatever the names are.
        all.sort_unstable_by_key(|(number, _)| *number);
        call_all(all.into_iter().map(|(_, caller)| caller), || Call::Again);
    }

    pub(super) fn look_later(&self, inner: &mut Inner, now: Moment) {
        if inner.look_at == Moment::FAR {
            inner.look_at = now + self.patience;
            self.bell.notify_one();
        }
    }

    /// When the steward is to look next.
    pub(crate) fn next_look(&self) -> Moment {
        self.lock().look_at
    }

    /// Where nothing has happened for long, whoever leads may have stopped: its future is kept and not polled. Takes back
    /// a call that was not answered, or has the next in line ask the store for itself: if it is granted the lock, it leads.
    pub(crate) fn look_after_the_waiting(&self, now: Moment) {
        let mut inner = self.lock();
        if now < inner.look_at {
            return;
        }
        inner.look_at = Moment::FAR;
        let (mut late, mut scouts, mut old) = (Vec::new(), Vec::new(), Vec::new());
        let mut waiting = false;
        for (name, line) in &mut inner.lines {
            let Some(crowd) = &mut line.crowd else {
                continue;
            };
            let called = crowd
                .called
                .as_ref()
                .is_some_and(|one| one.seat.is_called());
            waiting |= called || !crowd.waiting.is_empty();
            if now < *crowd.moved.get_or_insert(now) + self.patience {
                continue;
            }
            crowd.moved = Some(now);
            old.extend(crowd.called.take());
            if called && let Some(call) = old.last().and_then(|one| one.seat.call_off()) {
                late.push((name.clone(), call));
            } else if let Some((_, caller)) = crowd.waiting.pop_first() {
                match caller.seat.call(Call::Scout) {
                    Ok(waker) => {
                        crowd.called = Some(caller);
                        scouts.push((name.clone(), waker));
                    }
                    Err(_) => old.push(caller),
                }
            }
        }
        if waiting {
            inner.look_at = now + self.patience;
        }
        drop(inner);
        // In an order of its own: a simulation that is told again must not find another one.
        late.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        scouts.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        drop((late, old));
        for (_, waker) in scouts {
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

/// They are out of the line: all are called before the first is woken, who may do anything.
fn call_all(all: impl Iterator<Item = Arc<Caller>>, call: impl Fn() -> Call) {
    let wakers: Vec<Waker> = all
        .filter_map(|caller| caller.seat.call(call()).ok().flatten())
        .collect();
    wakers.into_iter().for_each(wake);
}
