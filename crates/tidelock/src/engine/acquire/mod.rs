//! One acquisition: the request, the loop that asks the store, and the ticket that is withdrawn if the caller leaves.
//!
//! `acquisition` is the future in the caller's hands. It either waits in the [local queue](super::local_queue) or runs the
//! [acquire loop](attempt_loop).

pub(crate) mod acquisition;
pub(crate) mod attempt_loop;
pub(crate) mod context;
pub(crate) mod grant;
pub(crate) mod observation;
pub(crate) mod outage;
pub(crate) mod path;
pub(crate) mod pending_ticket;
pub(crate) mod poller_place;
pub(crate) mod request;
pub(crate) mod upgrade_claim;
pub(crate) mod wait_state;
