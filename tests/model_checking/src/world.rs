//! The model as the checker sees it: which steps are possible, and where each leads.

use stateright::{Model, Property};

use crate::config::{Bug, Config};
use crate::parts::{Life, Phase};
use crate::properties;
use crate::state::State;

/// One step. Clients are renumbered after each step, so that states that differ only in the clients' names are one
/// state.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "each is what its name says; the trace of a counterexample is made of them"
)]
pub enum Action {
    Ask(usize),
    Subscribe(usize),
    Rise(usize),
    GiveUp(usize),
    Release(usize),
    Leave(usize),
    Repeat(usize, usize),
    Renew(usize),
    Tell(usize),
    Write(usize),
    Wake(usize),
    LoseWake(usize),
    /// A message arrives.
    Deliver(usize),
    Lose(usize),
    Crash(usize),
    Freeze(usize),
    Thaw(usize),
    /// One tick. The bits are the clients whose clocks fall behind.
    Tick(u8),
    StepClock {
        ahead: bool,
    },
    Force,
    Copy,
    FailOver {
        cut_off: bool,
    },
    FindNewPrimary(usize),
}

/// The model of one run.
#[derive(Debug, Clone)]
pub struct World(pub Config);

/// A fault. Each kind happens only as often as the run allows.
fn fail(state: &mut State, action: &Action) -> Option<()> {
    let faults = &mut state.faults;
    match *action {
        Action::LoseWake(c) => {
            faults.losses = faults.losses.checked_sub(1)?;
            state.clients[c].wake = false;
            state.clients[c].missed = true;
        }
        Action::Lose(i) => {
            faults.losses = faults.losses.checked_sub(1)?;
            state.messages.remove(i);
        }
        Action::Crash(c) => {
            faults.crashes = faults.crashes.checked_sub(1)?;
            state.kill(c);
        }
        Action::Freeze(c) => {
            faults.freezes = faults.freezes.checked_sub(1)?;
            state.clients[c].life = Life::Frozen;
        }
        Action::StepClock { ahead } => {
            faults.steps = faults.steps.checked_sub(1)?;
            state.step_clock(ahead);
        }
        Action::Force => {
            faults.forces = faults.forces.checked_sub(1)?;
            state.force();
        }
        Action::FailOver { cut_off } => {
            faults.failovers = faults.failovers.checked_sub(1)?;
            state.fail_over(cut_off);
        }
        _ => return None,
    }
    Some(())
}

impl World {
    pub(crate) fn step(&self, state: &mut State, action: &Action) -> Option<()> {
        let config = &self.0;
        match *action {
            Action::Ask(c) => state.ask(c)?,
            Action::Subscribe(c) => state.subscribe(config, c)?,
            Action::Rise(c) => state.rise(c)?,
            Action::GiveUp(c) => state.give_up(config, c)?,
            Action::Release(c) => state.release(c)?,
            Action::Leave(c) => state.leave(c)?,
            Action::Repeat(c, chore) => state.repeat(c, chore)?,
            Action::Renew(c) => state.renew(c)?,
            Action::Tell(_) if config.has(Bug::NeverTells) => return None,
            Action::Tell(c) => state.tell(c)?,
            Action::Write(c) => state.write(c)?,
            Action::Wake(c) => {
                state.clients[c].wake = false;
                state.clients[c].woken = true;
            }
            Action::Deliver(i) => {
                let message = state.messages.remove(i);
                if message.body.is_request() {
                    state.execute(config, &message);
                } else {
                    state.take(config, &message)?;
                }
            }
            Action::Thaw(c) => {
                state.clients[c].life = Life::Up;
                // We report an expired hold before the client's code runs again: its guard compares the clock on every
                // call.
                let _ = state.tell(c);
            }
            Action::Tick(behind) => state.tick(config, behind)?,
            Action::Copy => state.copy(),
            Action::FindNewPrimary(c) => state.reconnect(c),
            Action::LoseWake(_)
            | Action::Lose(_)
            | Action::Crash(_)
            | Action::Freeze(_)
            | Action::StepClock { .. }
            | Action::Force
            | Action::FailOver { .. } => fail(state, action)?,
        }
        Some(())
    }

    fn steps_of(&self, state: &State, c: usize, actions: &mut Vec<Action>) {
        let client = &state.clients[c];
        let faults = &state.faults;
        if client.life == Life::Frozen {
            actions.push(Action::Thaw(c));
        }
        if !client.is_up() {
            return;
        }
        match client.phase {
            Phase::Idle if client.number < self.0.turns => actions.push(Action::Ask(c)),
            Phase::Idle => {}
            Phase::Paused => actions.push(Action::Ask(c)),
            Phase::Asking { .. } | Phase::Undoing { .. } => actions.push(Action::GiveUp(c)),
            Phase::Refused { .. } => actions.push(Action::Subscribe(c)),
            Phase::Sleeping { .. } => actions.push(Action::Rise(c)),
            Phase::Holding => {
                actions.extend([Action::Release(c), Action::Renew(c), Action::Tell(c)]);
            }
        }
        let chores = 0..client.chores.len();
        actions.extend(chores.map(|chore| Action::Repeat(c, chore)));
        if client.pen.is_some() {
            actions.push(Action::Write(c));
        }
        if client.wake {
            actions.push(Action::Wake(c));
            actions.extend((faults.losses > 0).then_some(Action::LoseWake(c)));
        }
        if client.at_old {
            actions.push(Action::FindNewPrimary(c));
        }
        actions.extend((faults.leaves > 0).then_some(Action::Leave(c)));
        let busy = client.phase != Phase::Idle;
        actions.extend((faults.crashes > 0 && busy).then_some(Action::Crash(c)));
        actions.extend((faults.freezes > 0 && busy).then_some(Action::Freeze(c)));
    }

    /// Whether a step is possible without a new fault. Writes and copies do not count.
    pub(crate) fn moves(&self, state: &State) -> bool {
        let mut all = Vec::new();
        self.actions(state, &mut all);
        all.into_iter().any(|action| {
            let aside = matches!(action, Action::Write(_) | Action::Copy);
            let next = self.next_state(state, action);
            !aside && next.is_some_and(|next| next.faults == state.faults)
        })
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.0)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for c in 0..state.clients.len() {
            self.steps_of(state, c, actions);
        }
        for (i, message) in state.messages.iter().enumerate() {
            let reader = &state.clients[usize::from(message.ticket.client)];
            if message.body.is_request() || reader.is_up() {
                actions.push(Action::Deliver(i));
            }
            actions.extend((state.faults.losses > 0).then_some(Action::Lose(i)));
        }
        // Each subset of the clients that have a running proof may miss the tick.
        let mut masks = vec![0u8];
        if self.0.drift > 0 {
            for client in (0u8..)
                .take(state.clients.len())
                .filter(|c| state.counts(*c))
            {
                let more: Vec<u8> = masks.iter().map(|mask| mask | 1 << client).collect();
                masks.extend(more);
            }
        }
        actions.extend(masks.into_iter().map(Action::Tick));
        let held = state.primary.live().is_some();
        if state.faults.steps > 0 && held {
            actions.extend([true, false].map(|ahead| Action::StepClock { ahead }));
        }
        actions.extend((state.faults.forces > 0 && held).then_some(Action::Force));
        if state.replica.is_some() {
            actions.push(Action::Copy);
            if state.faults.failovers > 0 {
                let ways = [true, false].into_iter();
                let ways = ways.filter(|cut_off| *cut_off || !self.0.only_cut_off);
                actions.extend(ways.map(|cut_off| Action::FailOver { cut_off }));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.step(&mut state, &action)?;
        let (state, _) = state.canonical(&self.0);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
