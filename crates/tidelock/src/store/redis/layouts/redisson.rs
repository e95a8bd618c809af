//! Redisson's lock: a hash with the owner, a message at each release, a counter for tokens.

mod acquire;
mod refusal;
mod release;
mod renew;
mod sides;
mod spin;

pub(crate) use self::release::muted;

#[cfg(test)]
mod tests;
