//! Prints a counterexample. States are renumbered after each step, so we track the names that the clients had at the
//! start.

use stateright::Path;

use crate::parts::{Message, Stamp};
use crate::state::State;
use crate::world::{Action, World};

const NAMES: [&str; 3] = ["A", "B", "C"];

impl World {
    pub(crate) fn trace(&self, path: Path<State, Action>) -> Vec<String> {
        let mut names: Vec<usize> = (0..NAMES.len()).collect();
        let mut lines = Vec::new();
        for (state, action) in path.into_vec() {
            let Some(action) = action else {
                break;
            };
            lines.push(say(&state, &action, &names));
            let mut next = state;
            if self.step(&mut next, &action).is_some() {
                let (_, order) = next.canonical(&self.0);
                let before = names.clone();
                for (old, new) in order.iter().enumerate() {
                    names[usize::from(*new)] = before[old];
                }
            }
        }
        lines
    }
}

fn say(state: &State, action: &Action, names: &[usize]) -> String {
    let name = |client: &usize| NAMES[names[*client]];
    match action {
        Action::Ask(c) => format!("{}: asks", name(c)),
        Action::Subscribe(c) => format!("{}: subscribes", name(c)),
        Action::Rise(c) => format!("{}: wakes up and asks", name(c)),
        Action::GiveUp(c) => format!("{}: waits for the answer no longer", name(c)),
        Action::Release(c) => format!("{}: releases", name(c)),
        Action::Leave(c) => format!("{}: the caller leaves", name(c)),
        Action::Repeat(c, _) => format!("{}: releases or withdraws again", name(c)),
        Action::Renew(c) => format!("{}: renews", name(c)),
        Action::Tell(c) => format!("{}: is told of the loss", name(c)),
        Action::Write(c) => format!("{}: writes", name(c)),
        Action::Wake(c) => format!("{}: the wake-up arrives", name(c)),
        Action::LoseWake(c) => format!("{}: the wake-up is lost", name(c)),
        Action::Crash(c) => format!("{}: is killed", name(c)),
        Action::Freeze(c) => format!("{}: freezes", name(c)),
        Action::Thaw(c) => format!("{}: goes on", name(c)),
        Action::FindNewPrimary(c) => format!("{}: finds the new primary", name(c)),
        Action::Deliver(i) => arrives(&state.messages[*i], names, "arrives"),
        Action::Lose(i) => arrives(&state.messages[*i], names, "is lost"),
        Action::Tick(behind) => {
            let clients = (0..state.clients.len()).filter(|c| behind & (1 << c) != 0);
            let behind: Vec<&str> = clients.map(|c| name(&c)).collect();
            match behind.as_slice() {
                [] => "a tick".to_owned(),
                some => format!("a tick that the clock of {} does not see", some.join(", ")),
            }
        }
        other => format!("{other:?}"),
    }
}

fn arrives(message: &Message, names: &[usize], how: &str) -> String {
    let Message {
        ticket,
        body,
        stamp: Stamp { age, .. },
        deaf,
        old,
    } = message;
    let name = NAMES[names[usize::from(ticket.client)]];
    let way = if body.is_request() { "from" } else { "for" };
    let aged = if *age > 0 {
        format!(", {age} old")
    } else {
        String::new()
    };
    let deaf = if *deaf { ", nobody waits for it" } else { "" };
    let place = if *old { ", at the old primary" } else { "" };
    format!(
        "{body:?} {way} {name}.{} {how}{aged}{deaf}{place}",
        ticket.number
    )
}
