//! Fencing tokens of a grant.

use crate::error::Result;
use crate::store::LockKind;
use crate::store::redis::layouts::answer::no_token;
use crate::types::FencingToken;

/// The first token of a grant; `last` is the last one, and `more` come before it. `None`: this kind is not counted.
pub(crate) fn first(
    kind: LockKind,
    last: i64,
    more: u32,
    counter: impl FnOnce() -> String,
) -> Result<Option<FencingToken>> {
    if !kind.is_fenced() {
        return Ok(None);
    }
    let first = u64::try_from(last)
        .ok()
        .and_then(|last| last.checked_sub(u64::from(more)));
    match first {
        Some(first) if first > 0 => Ok(Some(FencingToken::new(first))),
        _ => Err(no_token(&counter(), &last.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_a_fenced_lock_is_never_missing() {
        let token = |kind, last, more| {
            let token = first(kind, last, more, || "c".to_owned());
            token.map(|token| token.map(FencingToken::get))
        };
        assert_eq!(token(LockKind::Fenced, 7, 0).unwrap(), Some(7));
        assert_eq!(token(LockKind::Fenced, 7, 6).unwrap(), Some(1));
        let last = i64::MAX.unsigned_abs();
        assert_eq!(token(LockKind::Fenced, i64::MAX, 0).unwrap(), Some(last));
        for (last, more) in [(0, 0), (-7, 0), (i64::MIN, 0), (7, 7), (7, u32::MAX)] {
            assert!(token(LockKind::Fenced, last, more).is_err());
        }
        assert_eq!(token(LockKind::Mutex, 0, 0).unwrap(), None);
    }
}
