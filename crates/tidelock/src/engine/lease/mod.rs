//! What a grant becomes: the hold, its entry in the lease table, and the steward that renews and releases it.

pub(crate) mod bond;
pub(crate) mod hold;
pub(crate) mod process_info;
pub(crate) mod release;
pub(crate) mod renewal_batch;
pub(crate) mod steward;
pub(crate) mod table;
