//! The fencing tokens that came with a grant.

use super::errors::unexpected;
use crate::backend::Kind;
use crate::error::Result;
use crate::guard::FencingToken;

/// The first of them. A lock that is not fenced has none.
pub(super) fn first(kind: Kind, token: i64) -> Result<Option<FencingToken>> {
    match (kind, u64::try_from(token)) {
        (Kind::Fenced, Ok(token)) if token > 0 => Ok(Some(FencingToken::new(token))),
        (Kind::Fenced, _) => Err(unexpected(&token)),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_a_fenced_lock_is_never_missing() {
        assert!(first(Kind::Fenced, 0).is_err());
        assert!(first(Kind::Fenced, 7).unwrap().is_some());
        assert!(first(Kind::Mutex, 0).unwrap().is_none());
    }
}
