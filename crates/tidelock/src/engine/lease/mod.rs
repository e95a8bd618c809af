//! What a grant becomes: the hold, its entry in the lease table, and the steward that renews and releases it.

pub(crate) mod granted;
pub(crate) mod guests;
mod hand_off;
pub(crate) mod hold;
pub(crate) mod leader_term;
pub(crate) mod pending_release;
pub(crate) mod process_info;
pub(crate) mod release;
mod renewal_batch;
pub(crate) mod status;
pub(crate) mod steward;
pub(crate) mod table;
pub(crate) mod upgrade_slot;
