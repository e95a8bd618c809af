//! How a lock is written: the keys and scripts of Redisson's layout and of the plain lock.

pub(crate) mod answer;
pub(crate) mod plain;
pub(crate) mod refusal;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod scripts;
pub(crate) mod tokens;
pub(crate) mod without_lua;
