//! The dialog of the key `u`: it shows who holds a lock, wants its name typed, and says what has come of it.

use std::future::pending;
use std::pin::Pin;

use crossterm::event::KeyCode;
use tidelock::{Escaped, FencingToken, Snapshot};
use tokio::time::timeout;

use crate::exit::Outcome;
use crate::inspect::{as_text, holder_as_text};
use crate::top::screen::state::{Screen, Step};
use crate::unlock::{Expected, LAST_ANSWER, UNANSWERED, Unlocked, WriteGate, audited, told};

/// Bounds what is typed. A name has at most 512 bytes; escaped, a byte may have eight characters.
const LONGEST: usize = 512 * 8;

/// What the dialog shows, and the log of what was unlocked with it.
#[derive(Debug, Default)]
pub(super) struct Unlocking {
    dialog: Dialog,
    /// Printed when the screen is gone.
    pub(super) log: Vec<String>,
}

#[derive(Debug, Default)]
enum Dialog {
    #[default]
    Closed,
    /// The store is asked who holds the lock.
    Asked(String),
    /// The operator reads who holds the lock, and types its name.
    Shown { seen: Box<Snapshot>, typed: String },
    /// The lock is being unlocked. This cannot be called back.
    Sent(String),
}

/// What has come of a request.
#[derive(Debug)]
pub(super) enum Answer {
    Seen(Outcome<Snapshot>),
    Done(String, Expected, Outcome<Unlocked>),
}

impl Unlocking {
    /// Whether the dialog gets the keys.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.dialog, Dialog::Closed)
    }

    pub(super) fn begin(&mut self, name: String) -> Step {
        self.dialog = Dialog::Asked(name.clone());
        Step::Look(name)
    }

    /// What a key changes, and what is said of it.
    pub(super) fn on(&mut self, key: KeyCode) -> (Step, Option<String>) {
        match (&mut self.dialog, key) {
            (Dialog::Asked(_) | Dialog::Shown { .. }, KeyCode::Esc) => {
                self.dialog = Dialog::Closed;
            }
            (Dialog::Shown { seen, typed }, KeyCode::Enter) => {
                // A name with characters that cannot be typed is typed as it is shown.
                if *typed != seen.name && *typed != Escaped(&seen.name).to_string() {
                    typed.clear();
                    let said = "this is not its name; the lock stays as it is".to_owned();
                    return (Step::Stay, Some(said));
                }
                let (name, expected) = (seen.name.clone(), expected(seen));
                self.dialog = Dialog::Sent(name.clone());
                return (Step::Unlock(name, expected), None);
            }
            (Dialog::Shown { typed, .. }, KeyCode::Backspace) => drop(typed.pop()),
            (Dialog::Shown { typed, .. }, KeyCode::Char(char)) if typed.len() < LONGEST => {
                typed.push(char);
            }
            _ => {}
        }
        (Step::Stay, None)
    }

    /// Returns what is said of it.
    pub(super) fn answered(&mut self, answer: Answer) -> Option<String> {
        match answer {
            // Closed meanwhile.
            Answer::Seen(_) if !matches!(self.dialog, Dialog::Asked(_)) => None,
            Answer::Seen(Ok(seen)) if seen.is_locked() => {
                self.dialog = Dialog::Shown {
                    seen: Box::new(seen),
                    typed: String::new(),
                };
                None
            }
            Answer::Seen(other) => {
                self.dialog = Dialog::Closed;
                Some(match other {
                    Ok(seen) => format!("{}: nobody holds it", seen.name),
                    Err(failure) => failure.message,
                })
            }
            Answer::Done(name, expected, outcome) => {
                self.dialog = Dialog::Closed;
                self.log.push(audited(&name, &expected, &outcome));
                Some(match outcome {
                    Ok(unlocked) => told(&name, &unlocked),
                    Err(failure) => failure.message,
                })
            }
        }
    }

    /// Nobody waits for the answer any more.
    pub(super) fn give_up(&mut self) {
        if let Dialog::Sent(name) = &self.dialog {
            self.log.push(format!("{name}: {UNANSWERED}"));
            self.dialog = Dialog::Closed;
        }
    }

    /// What the dialog shows, line by line. Not escaped. `None`: it is closed.
    pub(super) fn lines(&self) -> Option<Vec<String>> {
        let seen = match &self.dialog {
            Dialog::Closed => return None,
            Dialog::Asked(name) => {
                return Some(vec![
                    name.clone(),
                    "the store is asked who holds it".to_owned(),
                ]);
            }
            Dialog::Sent(name) => {
                return Some(vec![name.clone(), "it is being unlocked".to_owned()]);
            }
            Dialog::Shown { seen, .. } => seen,
        };
        let token = seen.token.map_or("-".to_owned(), |token| token.to_string());
        let mut lines = vec![
            format!("Unlock {}", as_text(seen)),
            format!("token {token}"),
        ];
        lines.extend(
            seen.holders
                .iter()
                .map(|holder| format!("holds  {}  owner {}", holder_as_text(holder), holder.owner)),
        );
        lines.extend(
            [
                "",
                "Its holder may believe for up to a third of its lease that it still has the lock.",
                "It is unlocked only if owner and token are still these.",
                "Type the name of the lock, then Enter. Esc: leave it as it is",
            ]
            .map(str::to_owned),
        );
        Some(lines)
    }

    /// The part of the name that is typed so far. `None`: no name is wanted.
    pub(super) fn typed(&self) -> Option<&str> {
        match &self.dialog {
            Dialog::Shown { typed, .. } => Some(typed),
            _ => None,
        }
    }
}

/// As the dialog shows it.
fn expected(seen: &Snapshot) -> Expected {
    let owners = seen.holders.iter().map(|holder| holder.owner.clone());
    Expected {
        owners: owners.collect(),
        token: seen.token.map(FencingToken::get),
    }
}

/// A request to the store that a key has caused. There is one at a time.
pub(super) enum Request<'g> {
    None,
    /// It changes nothing, so it may be dropped.
    Look(Pin<Box<dyn Future<Output = Answer> + 'g>>),
    Unlock(Pin<Box<dyn Future<Output = Answer> + 'g>>),
}

impl<'g> Request<'g> {
    /// Without a gate there is no store to ask.
    pub(super) fn look(gate: Option<&'g WriteGate>, name: String) -> Self {
        let Some(gate) = gate else { return Self::None };
        Self::Look(Box::pin(
            async move { Answer::Seen(gate.look(&name).await) },
        ))
    }

    pub(super) fn unlock(gate: Option<&'g WriteGate>, name: String, expected: Expected) -> Self {
        let Some(gate) = gate else { return Self::None };
        Self::Unlock(Box::pin(async move {
            let outcome = gate.unlock(&name, &expected).await;
            Answer::Done(name, expected, outcome)
        }))
    }

    /// Waits for the answer. Without a request it never comes.
    pub(super) async fn answer(&mut self) -> Answer {
        let answer = match self {
            Self::None => pending().await,
            Self::Look(asked) | Self::Unlock(asked) => asked.as_mut().await,
        };
        *self = Self::None;
        answer
    }

    /// The user quits. What is under way in the store gets its line in the log.
    pub(super) async fn end(mut self, screen: &mut Screen) {
        if !matches!(self, Self::Unlock(_)) {
            return;
        }
        if let Ok(answer) = timeout(LAST_ANSWER, self.answer()).await {
            screen.answered(answer);
        } else if let Some(unlocking) = &mut screen.unlocking {
            unlocking.give_up();
        }
    }
}
