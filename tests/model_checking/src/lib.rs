//! A model of the lock protocol for the model checker Stateright. It covers what the library's clients and a store can
//! do to each other, step by step, with every fault at every moment. `docs/model.md` lists what the model includes and
//! what it leaves out.
//!
//! The terms are those of `ARCHITECTURE.md`. The model shares no code with the library: a model that ran the
//! implementation could not reveal what the implementation forgot.

mod client;
mod config;
mod hand_over;
mod network;
mod parts;
mod progress;
mod properties;
mod report;
mod runs;
mod server;
mod state;
mod time;
mod trace;
mod world;

pub use config::{Bug, Config, Faults};
pub use hand_over::{
    ALIVE_STAYS, HandOver, HandOverBug, HandOverFaults, Kind, NOTHING_REMAINS, ONE_OWNER,
    OWNER_OWNS, Queue, SEEN, Step,
};
pub use progress::{Progress, Waiting, every_wait_ends, waits_end};
pub use properties::{FENCING, NOT_STUCK, NOTHING_LEFT, ONE_HOLDER, PROMPT, REACHED, TOLD_FIRST};
pub use report::{Outcome, check, check_hand_over};
pub use runs::{clean, large, waits};
pub use state::State;
pub use world::{Action, World};
