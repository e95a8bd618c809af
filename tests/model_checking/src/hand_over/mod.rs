//! A model of the fair lock's hand-over: the queue, the script that grants the lock to the next waiter, and the message
//! that tells it. It has waiters of tidelock and of Redisson in one queue.
//!
//! A request is decided at one instant, and its reply comes at once or never. A request whose reply never comes may also
//! take effect at any later moment. The clocks of all clients agree with the server's: drift is in the main model.

mod properties;
mod server;
mod state;

use stateright::Model;

pub use properties::{ALIVE_STAYS, NOTHING_REMAINS, ONE_OWNER, OWNER_OWNS, SEEN};
pub use state::{Kind, Queue};

use crate::progress::Waiting;
use state::{Life, Phase, UNCONFIRMED};

/// A bug of a hand-over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandOverBug {
    /// A message may be lost, so a beat grants the lock to the next waiter while a grant waits for its owner.
    GrantsAgain,
    /// A waiter of Redisson is granted the lock like one of ours. It asks again when it is told, as it always does.
    GrantsJava,
    /// A waiter that nobody can tell is thrown out of the queue, although its process has shown that it is alive.
    EvictsDeaf,
    /// The message is believed for a whole grant, however late it comes.
    BelievesLateMessage,
    /// A message says how long the grant lasts as of the last beat. The waiter counts that from its newest beat, which
    /// may be a later one.
    CountsFromLaterBeat,
    /// A message is not matched with the acquisition that it is for: the next one of the same client believes it.
    BelievesStaleMessage,
    /// The message is the only way in: a waiter never asks again by itself, and no beat looks for a grant.
    NeverLooks,
    /// A waiter of Redisson behind waiters that nobody can tell has its turn there, where Redisson refuses it, and loses
    /// its place without a message.
    TurnsBehindTheHead,
}

/// How often each fault may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HandOverFaults {
    /// A message to a waiter is lost.
    pub losses: u8,
    /// A request gets no reply, and may take effect at any later moment.
    pub late: u8,
    /// A process is killed.
    pub crashes: u8,
    /// A process is frozen, and may thaw later.
    pub freezes: u8,
    /// A process loses its subscriptions, and gets them back later.
    pub deaf: u8,
    /// A caller leaves before it has the lock.
    pub leaves: u8,
    /// Another client of the server publishes a message to a waiter that was not granted the lock.
    pub forged: u8,
}

impl HandOverFaults {
    /// No faults.
    pub const NONE: Self = Self {
        losses: 0,
        late: 0,
        crashes: 0,
        freezes: 0,
        deaf: 0,
        leaves: 0,
        forged: 0,
    };
}

/// One run: its clients, and what may go wrong.
#[derive(Debug, Clone)]
pub struct HandOver {
    /// The name in the output.
    pub name: &'static str,
    /// What each client is.
    pub clients: Vec<Kind>,
    /// The number of acquisitions of each client.
    pub turns: u8,
    /// What may go wrong.
    pub faults: HandOverFaults,
    /// A waiter that is told of its grant enters at once. Otherwise it asks first.
    pub direct: bool,
    /// The bug that is put in.
    pub bug: Option<HandOverBug>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "each is what its name says; the trace of a counterexample is made of them"
)]
pub enum Step {
    Ask(usize),
    AskWithoutReply(usize),
    Hear(usize),
    LoseMessage(usize),
    Forge(usize),
    Beat(usize),
    Renew(usize),
    Release(usize),
    ReleaseWithoutReply(usize),
    Leave(usize),
    /// A request whose caller does not wait for it any longer takes effect.
    Arrive(usize),
    Crash(usize),
    Freeze(usize),
    Thaw(usize),
    Deafen(usize),
    Listen(usize),
    Tick,
}

impl HandOver {
    /// A run without faults and without a bug.
    pub fn new(name: &'static str, clients: &[Kind], turns: u8) -> Self {
        Self {
            name,
            clients: clients.to_vec(),
            turns,
            faults: HandOverFaults::NONE,
            direct: false,
            bug: None,
        }
    }

    /// With these faults.
    #[must_use]
    pub fn faults(mut self, faults: HandOverFaults) -> Self {
        self.faults = faults;
        self
    }

    /// With waiters that enter as soon as they are told.
    #[must_use]
    pub fn direct(mut self) -> Self {
        self.direct = true;
        self
    }

    /// With this bug.
    #[must_use]
    pub fn bug(mut self, bug: HandOverBug) -> Self {
        self.bug = Some(bug);
        self
    }

    pub(crate) fn has(&self, bug: HandOverBug) -> bool {
        self.bug == Some(bug)
    }

    /// The configurations without a bug.
    pub fn clean() -> Vec<Self> {
        use Kind::{Java, OldJava, Tidelock};
        let faults = HandOverFaults {
            losses: 1,
            late: 1,
            crashes: 1,
            freezes: 1,
            deaf: 1,
            leaves: 1,
            forged: 1,
        };
        let trusted = HandOverFaults {
            forged: 0,
            ..faults
        };
        let run = |name, clients: &[Kind], turns| Self::new(name, clients, turns);
        vec![
            run("hand-over: three waiters", &[Tidelock; 3], 1),
            run("hand-over: two waiters, twice", &[Tidelock; 2], 2),
            run("hand-over: beside Java", &[Tidelock, Tidelock, Java], 1),
            run("hand-over: beside Java, twice", &[Tidelock, Java], 2),
            run(
                "hand-over: beside old Java",
                &[Tidelock, Tidelock, OldJava],
                1,
            )
            .faults(HandOverFaults {
                deaf: 1,
                ..HandOverFaults::NONE
            }),
            run(
                "hand-over: beside old Java that freezes",
                &[Tidelock, OldJava],
                2,
            )
            .faults(HandOverFaults {
                freezes: 1,
                ..HandOverFaults::NONE
            }),
            run("hand-over: every fault", &[Tidelock; 2], 1).faults(faults),
            run("hand-over: every fault, beside Java", &[Tidelock, Java], 1).faults(faults),
            run(
                "hand-over: every fault but a forged message, direct",
                &[Tidelock; 2],
                1,
            )
            .faults(trusted)
            .direct(),
        ]
    }

    fn steps_of(&self, state: &Queue, c: usize, steps: &mut Vec<Step>) {
        let (client, faults) = (&state.clients[c], &state.faults);
        if client.life == Life::Frozen {
            steps.push(Step::Thaw(c));
        }
        if client.life != Life::Up {
            return;
        }
        let ours = client.kind == Kind::Tidelock;
        let looks = !self.has(HandOverBug::NeverLooks);
        match client.phase {
            Phase::Idle if client.number < self.turns => steps.push(Step::Ask(c)),
            Phase::Waiting if looks && !client.sleeps => steps.push(Step::Ask(c)),
            Phase::Idle | Phase::Waiting => {}
            Phase::Unsure => steps.push(Step::Ask(c)),
            Phase::Holding { .. } => steps.extend([Step::Release(c), Step::Renew(c)]),
            Phase::Releasing => steps.push(Step::Release(c)),
        }
        let waits = matches!(client.phase, Phase::Waiting | Phase::Unsure);
        if waits && client.message.is_some() {
            steps.push(Step::Hear(c));
            steps.extend((faults.losses > 0).then_some(Step::LoseMessage(c)));
        }
        if waits && client.listens {
            steps.extend((ours && faults.forged > 0).then_some(Step::Forge(c)));
        }
        if !client.listens {
            steps.push(Step::Listen(c));
        }
        if ours && waits {
            steps.extend(looks.then_some(Step::Beat(c)));
            steps.extend((faults.leaves > 0).then_some(Step::Leave(c)));
            steps.extend((faults.deaf > 0 && client.listens).then_some(Step::Deafen(c)));
        }
        let asks = client.number < self.turns && !matches!(client.phase, Phase::Holding { .. });
        if ours && faults.late > 0 {
            steps.extend(
                (asks && client.phase != Phase::Releasing).then_some(Step::AskWithoutReply(c)),
            );
            let holds = matches!(client.phase, Phase::Holding { .. });
            steps.extend(holds.then_some(Step::ReleaseWithoutReply(c)));
        }
        let busy = client.phase != Phase::Idle;
        steps.extend((faults.crashes > 0 && busy).then_some(Step::Crash(c)));
        steps.extend((faults.freezes > 0 && busy).then_some(Step::Freeze(c)));
    }

    fn take(&self, state: &mut Queue, step: &Step) -> Option<()> {
        match *step {
            Step::Ask(c) => state.ask(self, c),
            Step::AskWithoutReply(c) => state.ask_without_reply(c)?,
            Step::Hear(c) => state.hear(self, c),
            Step::LoseMessage(c) => {
                state.faults.losses = state.faults.losses.checked_sub(1)?;
                state.clients[c].message = None;
            }
            Step::Forge(c) => {
                state.faults.forged = state.faults.forged.checked_sub(1)?;
                state.clients[c].message = Some(UNCONFIRMED);
            }
            Step::Beat(c) => state.beat(self, c),
            Step::Renew(c) => state.renew(c),
            Step::Release(c) => state.release(self, c),
            Step::ReleaseWithoutReply(c) => state.release_without_reply(c)?,
            Step::Leave(c) => {
                state.faults.leaves = state.faults.leaves.checked_sub(1)?;
                state.leave(self, c);
            }
            Step::Arrive(i) => state.arrive(self, i),
            Step::Crash(c) => {
                state.faults.crashes = state.faults.crashes.checked_sub(1)?;
                state.kill(c);
            }
            Step::Freeze(c) => {
                state.faults.freezes = state.faults.freezes.checked_sub(1)?;
                state.clients[c].life = Life::Frozen;
            }
            Step::Thaw(c) => state.clients[c].life = Life::Up,
            Step::Deafen(c) => {
                state.faults.deaf = state.faults.deaf.checked_sub(1)?;
                state.clients[c].listens = false;
                state.clients[c].message = None;
            }
            Step::Listen(c) => state.listen(c),
            Step::Tick => state.tick(),
        }
        Some(())
    }
}

impl Model for HandOver {
    type State = Queue;
    type Action = Step;

    fn init_states(&self) -> Vec<Queue> {
        vec![Queue::new(&self.clients, self.faults)]
    }

    fn actions(&self, state: &Queue, steps: &mut Vec<Step>) {
        if state.evicted_alive {
            return; // the shortest counterexample ends here
        }
        for c in 0..state.clients.len() {
            self.steps_of(state, c, steps);
        }
        steps.extend((0..state.late.len()).map(Step::Arrive));
        steps.push(Step::Tick);
    }

    fn next_state(&self, last: &Queue, step: Step) -> Option<Queue> {
        let mut state = last.clone();
        self.take(&mut state, &step)?;
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<stateright::Property<Self>> {
        properties::all()
    }
}

impl Waiting for HandOver {
    fn waits(state: &Queue) -> bool {
        let mut clients = state.clients.iter();
        clients.any(|client| {
            client.life != Life::Dead
                && !matches!(client.phase, Phase::Idle | Phase::Holding { .. })
        })
    }

    fn is_faultless(before: &Queue, after: &Queue) -> bool {
        before.faults == after.faults
    }
}
