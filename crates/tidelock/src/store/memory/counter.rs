//! The newest token of each lock.

use std::collections::HashMap;

use crate::store::{Attempt, Grant, Name};
use crate::types::FencingToken;

/// The newest token of each name. The names that were forgotten share one: the largest of theirs.
#[derive(Debug, Default)]
pub(crate) struct LastTokens {
    each: HashMap<Name, u64>,
    /// No forgotten name had a larger token.
    forgotten: u64,
}

impl LastTokens {
    /// Returns the next token, and reserves `spare` more after it.
    pub(crate) fn next(&mut self, name: &Name, spare: u32) -> u64 {
        let newest = self.each.entry(name.clone()).or_insert(self.forgotten);
        let token = *newest + 1;
        *newest = token + u64::from(spare);
        token
    }

    /// See [`TokenCounter::raise`](crate::store::TokenCounter::raise).
    pub(crate) fn raise(&mut self, name: &Name, newest: u64) -> u64 {
        let seen = self.get(name).unwrap_or(self.forgotten);
        if newest > seen {
            self.each.insert(name.clone(), newest);
        }
        newest.max(seen)
    }

    pub(crate) fn get(&self, name: &Name) -> Option<u64> {
        self.each.get(name).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.each.len()
    }

    /// Forgets names. Their tokens go on from those of all forgotten names.
    pub(crate) fn keep(&mut self, is_used: impl Fn(&Name) -> bool) {
        let unused = self.each.extract_if(|name, _| !is_used(name));
        self.forgotten = unused
            .map(|(_, newest)| newest)
            .fold(self.forgotten, u64::max);
    }
}

/// A grant with its token and the tokens reserved after it.
pub(crate) fn granted(token: u64, more: u32) -> Attempt {
    Attempt::Acquired(Grant {
        token: Some(FencingToken::new(token)),
        more,
        ..Grant::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_a_forgotten_name_grow() {
        let (mut tokens, name) = (LastTokens::default(), |text| Name::new(text).unwrap());
        let (used, unused, new) = (name("used"), name("unused"), name("new"));
        assert_eq!((tokens.next(&used, 0), tokens.next(&unused, 6)), (1, 1));
        tokens.keep(|name| *name == used);
        assert_eq!((tokens.len(), tokens.get(&unused)), (1, None));
        assert_eq!(tokens.next(&used, 0), 2);
        for newest in [3, 7] {
            assert_eq!(tokens.raise(&new, newest), 7, "it has none below to give");
            assert_eq!(tokens.get(&new), None, "nothing was changed");
        }
        assert_eq!((tokens.next(&unused, 0), tokens.next(&new, 0)), (8, 8));
        assert_eq!(tokens.raise(&new, 20), 20);
        assert_eq!(tokens.next(&new, 0), 21);
    }
}
