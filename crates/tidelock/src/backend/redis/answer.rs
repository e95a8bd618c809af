//! What the scripts that take a lock answer.

use super::errors::unexpected;
use super::reply::Reply;
use crate::error::{Error, ErrorKind, Result};

/// From a foreign text no more than this is repeated.
const LONGEST: usize = 64;

/// An answer to the question for a lock.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer<'r> {
    /// Held by the owner of this request.
    Granted { token: i64, more: u32 },
    /// Held by another, for so many milliseconds. Less than zero: without an end.
    Held { left: i64 },
    /// The owner of this request was withdrawn.
    Withdrawn,
    /// The key is another kind of lock. `mode`: that of a read-write lock, where it is one.
    Stranger { mode: Option<&'r str> },
}

impl<'r> Answer<'r> {
    pub(super) fn read(reply: &'r Reply) -> Result<Self> {
        let parts = reply.list().unwrap_or_default();
        let text = |at: usize| parts.get(at).and_then(Reply::text);
        let number = |at: usize| parts.get(at).and_then(Reply::int);
        Ok(match (number(0), number(1)) {
            (Some(1), Some(token)) => Self::Granted {
                token,
                more: parts.get(2).map_or(0, Reply::count),
            },
            (Some(0), Some(left)) => Self::Held { left },
            (Some(2), None) => Self::Withdrawn,
            (Some(3), _) => Self::Stranger { mode: text(1) },
            _ => return Err(unexpected(reply)),
        })
    }
}

/// The error for a key that Redisson's read-write lock has.
pub(super) fn read_write(mode: &str) -> Error {
    Error::new(ErrorKind::WrongType).because(format!(
        "the key is a read-write lock of Redisson (RReadWriteLock, mode {}), and was left as it is; use another name, or free it with Redisson's forceUnlock",
        shown(mode)
    ))
}

/// A text of others, as it can stand in an error.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(LONGEST).collect();
    short.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(parts: &[Reply]) -> Reply {
        Reply::List(parts.to_vec())
    }

    fn text(text: &str) -> Reply {
        Reply::Text(text.into())
    }

    #[test]
    fn what_others_have_written_is_repeated_in_part_and_without_control_characters() {
        for mode in ["\x1b[2J".to_owned(), "x".repeat(999)] {
            let said = read_write(&mode).to_string();
            assert!(!said.contains('\x1b') && said.len() < 400, "{said}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_no_answer() {
        for reply in [
            Reply::Nil,
            list(&[]),
            list(&[Reply::Int(1)]),
            list(&[Reply::Int(0), text("x")]),
            list(&[Reply::Int(9), Reply::Int(1)]),
        ] {
            assert!(Answer::read(&reply).unwrap_err().outcome_unknown());
        }
    }
}
