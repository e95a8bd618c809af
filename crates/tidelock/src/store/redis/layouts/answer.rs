//! Parses the replies of the scripts that acquire a lock, and the errors that both layouts share.

use crate::error::{Error, ErrorKind, Result};
use crate::store::redis::wire::errors::{unanswered, unexpected};
use crate::store::redis::wire::reply::Reply;
use crate::types::LostReason;

/// Error messages quote at most this many characters of a foreign value.
const MAX_QUOTED_CHARS: usize = 64;

/// The outcome of an acquire script.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AcquireAnswer<'r> {
    /// The owner of this request holds the lock. `last` and `more` are its tokens.
    Granted { last: i64, more: u32 },
    /// Another owner holds the lock.
    Held(HeldByOther<'r>),
}

/// Details of the lock that another owner holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldByOther<'r> {
    /// Milliseconds until the lease ends. Negative: the key has no time to live.
    pub(crate) left: i64,
    /// The holder is not a tidelock client, so its release may not be published to us.
    pub(crate) silent: bool,
    /// The first thread in the queue of Redisson's fair lock.
    pub(crate) head: Option<&'r str>,
}

impl<'r> AcquireAnswer<'r> {
    /// `counter`: the key of the lock's token counter, for the error message.
    pub(crate) fn read(reply: &'r Reply, counter: impl FnOnce() -> String) -> Result<Self> {
        if *reply == Reply::Int(1) {
            // The common case, without tokens.
            return Ok(Self::Granted { last: 0, more: 0 });
        }
        let parts = reply.list().unwrap_or_default();
        let text = |at: usize| parts.get(at).and_then(Reply::text);
        let number = |at: usize| parts.get(at).and_then(Reply::int);
        Ok(match (number(0), number(1)) {
            (Some(1), Some(last)) => Self::Granted {
                last,
                more: parts.get(2).map_or(0, Reply::count),
            },
            (Some(0), Some(left)) => Self::Held(HeldByOther {
                left,
                silent: parts.len() > 2,
                head: text(2).filter(|head| !head.is_empty()),
            }),
            (Some(2), None) => {
                return Err(
                    Error::new(ErrorKind::Cancelled).because("the attempt had been withdrawn")
                );
            }
            (Some(3), _) => return Err(text(1).map_or_else(unknown_reply, read_write)),
            (Some(5), None) => return Err(not_read_write()),
            (Some(6), None) => return Err(Error::lost(LostReason::Taken)),
            (Some(7), _) => return Err(not_semaphore(text(1).unwrap_or_default())),
            // With 1 the holder repeated its request, and another client has overwritten the counter in between.
            // Bytes that are not UTF-8 are not a number either.
            (Some(code @ (1 | 4)), _) if code == 4 || parts.len() > 1 => {
                return Err(no_token(&counter(), text(1).unwrap_or_default()));
            }
            _ => return Err(unexpected(reply)),
        })
    }
}

/// The error for a key of another type.
fn unknown_reply() -> Error {
    Error::new(ErrorKind::WrongType).because(
        "WRONGTYPE: the key is no plain lock, which is a string; it may be a lock of Redisson, a hash; it was left as it is",
    )
}

/// The error for a key that is a read-write lock.
pub(crate) fn read_write(mode: &str) -> Error {
    Error::new(ErrorKind::WrongType).because(format!(
        "the key is a read-write lock (RReadWriteLock, mode {}). It was not changed; use `read_write_lock`, or another name",
        shown(mode)
    ))
}

/// The error for a key that is a lock without sides.
fn not_read_write() -> Error {
    Error::new(ErrorKind::WrongType).because(
        "the key is a lock that is not a read-write lock (RLock). It was not changed; use `lock`, or another name",
    )
}

/// The error for a key of another type than a lock. `value`: what the key is.
pub(crate) fn not_lock(value: &str) -> Error {
    Error::new(ErrorKind::WrongType).because(format!(
        "the key is {} (WRONGTYPE), and a lock is a hash. It was not changed; use another name",
        shown(value)
    ))
}

/// The error for a key that does not count permits. `value`: what the key is.
pub(crate) fn not_semaphore(value: &str) -> Error {
    Error::new(ErrorKind::WrongType).because(format!(
        "the key is {} (WRONGTYPE) and no semaphore, which is a number. It was not changed; use another name",
        shown(value)
    ))
}

/// The error for a key that is not the count of a latch. `value`: what the key is.
pub(crate) fn not_latch(value: &str) -> Error {
    Error::new(ErrorKind::WrongType).because(format!(
        "the key is {} (WRONGTYPE) and no latch, which is a number. It was not changed; use another name",
        shown(value)
    ))
}

/// The error for a counter without a next token.
pub(crate) fn no_token(counter: &str, value: &str) -> Error {
    Error::new(ErrorKind::WrongType).because(format!(
        "its fencing counter {counter} holds {}, which has no next token. Nothing was changed; set the counter to a number between the largest token in use and {}",
        if value.is_empty() { "no number".to_owned() } else { format!("\"{}\"", shown(value)) },
        i64::MAX - 1
    ))
}

/// The error for a lock that is free but whose tombstone could not be written. A repeated release reports that the
/// lock is not held; without this error, the caller would conclude that another client had taken it.
pub(crate) fn unnoted() -> Error {
    unanswered(
        "freed, but a request on its way may still take it again: the server refuses to note that it must not",
    )
}

/// Shortens and escapes a foreign text for an error message.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(MAX_QUOTED_CHARS).collect();
    short.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::wire::tests::values::text;

    fn list(parts: &[Reply]) -> Reply {
        Reply::List(parts.to_vec())
    }

    #[test]
    fn a_grant_without_tokens_is_one_number() {
        let granted = AcquireAnswer::Granted { last: 0, more: 0 };
        let read = AcquireAnswer::read(&Reply::Int(1), String::new);
        assert_eq!(read.unwrap(), granted);
    }

    #[test]
    fn a_token_is_exact_beyond_what_numbers_of_scripts_are() {
        let reply = list(&[Reply::Int(1), text("9007199254740993"), Reply::Int(3)]);
        let granted = AcquireAnswer::Granted {
            last: 9_007_199_254_740_993,
            more: 3,
        };
        assert_eq!(AcquireAnswer::read(&reply, String::new).unwrap(), granted);
    }

    #[test]
    fn a_hold_of_another_client_may_end_without_a_word() {
        for (third, silent, head) in [
            (None, false, None),
            (Some(text("")), true, None),
            (Some(text("u:7")), true, Some("u:7")),
        ] {
            let mut parts = vec![Reply::Int(0), Reply::Int(-1)];
            parts.extend(third);
            let reply = Reply::List(parts);
            let refusal = HeldByOther {
                left: -1,
                silent,
                head,
            };
            assert_eq!(
                AcquireAnswer::read(&reply, String::new).unwrap(),
                AcquireAnswer::Held(refusal)
            );
        }
    }

    /// The script has looked at the key. The user acts on what it has found.
    #[test]
    fn each_refusal_of_a_script_says_what_is_in_the_way() {
        for (code, more, kind, said) in [
            (2, None, ErrorKind::Cancelled, "withdrawn"),
            (3, None, ErrorKind::WrongType, "the key is no plain lock"),
            (3, Some("write"), ErrorKind::WrongType, "mode write"),
            (5, None, ErrorKind::WrongType, "not a read-write lock"),
            (6, None, ErrorKind::Lost, ""),
            (7, Some("list"), ErrorKind::WrongType, "the key is list"),
            (
                4,
                Some("007"),
                ErrorKind::WrongType,
                "stock:n holds \"007\"",
            ),
            (4, None, ErrorKind::WrongType, "stock:n holds no number"),
            // A repeated request, and the counter was overwritten meanwhile.
            (1, Some("x"), ErrorKind::WrongType, "stock:n holds \"x\""),
        ] {
            let mut parts = vec![Reply::Int(code)];
            parts.extend(more.map(text));
            let reply = Reply::List(parts);
            let error = AcquireAnswer::read(&reply, || "stock:n".to_owned()).unwrap_err();
            assert_eq!(error.kind(), kind, "{reply:?}");
            assert!(error.to_string().contains(said), "{error}");
        }
    }

    #[test]
    fn the_error_of_a_counter_names_the_largest_number_that_helps() {
        let said = no_token("c", "-1").to_string();
        assert!(said.contains("and 9223372036854775806"), "{said}");
    }

    #[test]
    fn text_of_others_is_shortened_and_without_control_characters() {
        for error in [
            read_write("\x1b[2J"),
            no_token("c", "\x1b[2J"),
            no_token("c", &"x".repeat(999)),
        ] {
            let said = error.to_string();
            assert!(!said.contains('\x1b') && said.len() < 400, "{said}");
        }
        assert!(no_token("c", "").to_string().contains("holds no number"));
    }

    #[test]
    fn an_unknown_reply_is_no_answer() {
        for reply in [
            Reply::Nil,
            Reply::Int(0),
            Reply::Int(2),
            list(&[]),
            list(&[Reply::Int(1)]),
            list(&[Reply::Int(0), text("x")]),
            list(&[Reply::Int(9), Reply::Int(1)]),
        ] {
            let error = AcquireAnswer::read(&reply, String::new).unwrap_err();
            assert!(error.outcome_unknown());
        }
    }
}
