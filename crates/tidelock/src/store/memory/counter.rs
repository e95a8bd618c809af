//! The newest token of each lock.

use std::collections::HashMap;

use crate::store::{Attempt, Grant, Name};
use crate::types::FencingToken;

/// Returns the next token, and reserves `spare` more after it.
pub(crate) fn next(tokens: &mut HashMap<Name, u64>, name: &Name, spare: u32) -> u64 {
    let newest = tokens.entry(name.clone()).or_default();
    let token = *newest + 1;
    *newest = token + u64::from(spare);
    token
}

/// See [`TokenCounter::raise`](crate::store::TokenCounter::raise).
pub(crate) fn raise(tokens: &mut HashMap<Name, u64>, name: &Name, newest: u64) -> u64 {
    let seen = tokens.get(name).copied().unwrap_or_default();
    if newest > seen {
        tokens.insert(name.clone(), newest);
    }
    newest.max(seen)
}

/// A grant with its token and the tokens reserved after it.
pub(crate) fn granted(token: u64, more: u32) -> Attempt {
    Attempt::Acquired(Grant {
        token: Some(FencingToken::new(token)),
        more,
        ..Grant::default()
    })
}
