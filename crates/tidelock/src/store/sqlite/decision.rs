//! What the rows say to an attempt, and what the caller is told.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::store::kinds::{is_lock, is_semaphore};
use crate::store::{Attempt, Grant};
use crate::types::{FencingToken, LostReason};

/// The answer to an attempt.
#[derive(Debug)]
pub(crate) enum Decision {
    /// The token, and the number of tokens reserved after it.
    Granted(Option<i64>, u32),
    Held(Duration),
    Withdrawn,
    /// The name is a semaphore, and the ticket is for a lock.
    IsSemaphore,
    /// The name is a lock, and the ticket is for permits.
    IsLock,
    /// The hold that the ticket follows has ended: that of a writer, or of an upgradeable reader.
    NotFollowed,
    /// The counter has this value, which has no next token. Nothing was written.
    NoToken(String),
}

impl Decision {
    /// The answer to the caller. `held`: that of a refusal, with the rest of the holder's lease.
    pub(crate) fn answer(self, held: impl FnOnce(Duration) -> Attempt) -> Result<Attempt> {
        match self {
            Self::Granted(token, more) => Ok(Attempt::Acquired(Grant {
                token: token.map(|token| FencingToken::new(token.unsigned_abs())),
                more,
                ..Grant::default()
            })),
            Self::Held(left) => Ok(held(left)),
            Self::Withdrawn => {
                Err(Error::new(ErrorKind::Cancelled).because("the attempt was withdrawn before"))
            }
            Self::IsSemaphore => Err(is_semaphore()),
            Self::IsLock => Err(is_lock()),
            Self::NotFollowed => Err(Error::lost(LostReason::Taken)),
            Self::NoToken(value) => Err(no_token(&value)),
        }
    }
}

/// The error for a counter without a next token.
pub(crate) fn no_token(value: &str) -> Error {
    Error::new(ErrorKind::WrongType).because(format!(
        "the counter of the fencing tokens in the lock file holds {value}, which has no next token. Nothing was changed; set the counter to a number between the largest token in use and {}",
        i64::MAX - 1
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_largest_number_that_has_a_next_token() {
        let said = no_token("seven").to_string();
        assert!(said.contains("holds seven,"), "{said}");
        assert!(said.ends_with("9223372036854775806"), "{said}");
    }
}
