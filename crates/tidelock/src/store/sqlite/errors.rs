//! Translates SQLite errors into errors of a lock.

use std::fmt;

use rusqlite::{ErrorCode, ffi};

use crate::error::{Error, ErrorKind};

/// The stage of the transaction in which the error occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionStage {
    /// Before the commit: nothing was changed.
    Before,
    /// In the commit: the change may be in the file.
    Commit,
}

/// The reason why the file cannot be opened right now. It is the cause of an [`Unavailable`](ErrorKind::Unavailable)
/// error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Busy {
    Opening,
    InUse,
    Replaced,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Opening => "other processes are opening the lock file (or one was stopped while it did)",
            Self::InUse => {
                "processes have the lock file open that do not use the -wal and -shm beside it (these were removed or replaced, \
                 or the file has another path), or a tool opened it first. Nobody else gets in until they have noticed, \
                 which takes a few seconds, or have ended"
            }
            Self::Replaced => "the lock file was replaced while it was being opened",
        })
    }
}

impl std::error::Error for Busy {}

/// True if other processes use the file and a later retry may succeed.
pub(crate) fn is_busy(error: &Error) -> bool {
    let Some(cause) = std::error::Error::source(error) else {
        return false;
    };
    let code = cause
        .downcast_ref::<rusqlite::Error>()
        .and_then(rusqlite::Error::sqlite_error_code);
    cause.is::<Busy>()
        || matches!(
            code,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
        )
}

/// Translates an SQLite error into one of ours.
#[rustfmt::skip] // a table, with one row a line
pub(crate) fn explain(error: rusqlite::Error, stage: TransactionStage) -> Error {
    use ErrorKind::{InvalidOptions, OutcomeUnknown, Refused, Unavailable, WrongType};

    let code = error.sqlite_error_code();
    let (kind, why) = match code {
        // The write to the log failed before the commit record, so nothing was committed.
        Some(ErrorCode::DiskFull) => (Unavailable, "the disk with the lock file is full; nothing was changed"),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (Unavailable,
            "another process has the lock file locked (stopped inside a transaction, or a tool that has it open); nothing was changed"),
        _ if stage == TransactionStage::Commit => (OutcomeUnknown, "writing to the lock file failed"),
        Some(
            ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::AuthorizationForStatementDenied,
        ) => (Refused, "the lock file (or its -wal or -shm companion, or its folder) may not be written by this user"),
        Some(ErrorCode::CannotOpen) => (Unavailable, "this user cannot open the lock file, or create files in its folder"),
        Some(ErrorCode::NotADatabase) => (InvalidOptions, "the file is not an SQLite database; it was not changed"),
        Some(ErrorCode::DatabaseCorrupt) => (Unavailable,
            "the lock file is damaged; stop all that use it, move it away with its -wal and -shm, and start again"),
        _ if is_unreadable(&error) => (WrongType,
            "another program has written a value of a wrong type into the lock file; delete that row, or force the release of the lock"),
        _ => (Unavailable, "SQLite reported an error"),
    };
    Error::new(kind).because(why).caused_by(error)
}

/// True if the connection must not be used again after this error.
pub(crate) fn spoils(error: &rusqlite::Error) -> bool {
    let is_busy = matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    );
    !is_busy && !has_no_room(error) && !is_unreadable(error)
}

/// Whether there was no room for a write. SQLite has a code for a full disk only; it reports a used-up quota as a failed write.
pub(crate) fn has_no_room(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
        || extended_code(error) == Some(ffi::SQLITE_IOERR_WRITE)
}

/// Whether the file or its log cannot be read.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(
        code,
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt)
    ) || matches!(
        extended_code(error),
        Some(ffi::SQLITE_IOERR_READ | ffi::SQLITE_IOERR_SHORT_READ)
    )
}

fn extended_code(error: &rusqlite::Error) -> Option<std::ffi::c_int> {
    error.sqlite_error().map(|error| error.extended_code)
}

/// True if a row has a value of a type that its column does not take. SQLite lets every program write any type into
/// any column.
pub(crate) fn is_unreadable(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::Utf8Error(..)
    )
}

/// What was read, or nothing if the row cannot be read.
pub(crate) fn unless_unreadable<T>(read: rusqlite::Result<T>) -> rusqlite::Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_unreadable(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;
    use rusqlite::types::Type;

    use super::*;

    fn failure(code: std::ffi::c_int) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    fn unreadable() -> rusqlite::Error {
        rusqlite::Error::InvalidColumnType(3, "ends".to_owned(), Type::Text)
    }

    #[test]
    fn each_error_says_what_has_become_of_the_request() {
        use ErrorKind::{InvalidOptions, OutcomeUnknown, Refused, Unavailable, WrongType};
        for (code, before, commit, why) in [
            (ffi::SQLITE_FULL, Unavailable, Unavailable, "is full"),
            (
                ffi::SQLITE_BUSY,
                Unavailable,
                Unavailable,
                "another process",
            ),
            (
                ffi::SQLITE_LOCKED,
                Unavailable,
                Unavailable,
                "another process",
            ),
            (
                ffi::SQLITE_READONLY,
                Refused,
                OutcomeUnknown,
                "not be written",
            ),
            (ffi::SQLITE_PERM, Refused, OutcomeUnknown, "not be written"),
            (ffi::SQLITE_AUTH, Refused, OutcomeUnknown, "not be written"),
            (
                ffi::SQLITE_CANTOPEN,
                Unavailable,
                OutcomeUnknown,
                "cannot open",
            ),
            (
                ffi::SQLITE_NOTADB,
                InvalidOptions,
                OutcomeUnknown,
                "not an SQLite",
            ),
            (
                ffi::SQLITE_CORRUPT,
                Unavailable,
                OutcomeUnknown,
                "is damaged",
            ),
            (ffi::SQLITE_IOERR, Unavailable, OutcomeUnknown, "reported"),
        ] {
            let error = explain(failure(code), TransactionStage::Before);
            assert_eq!(error.kind(), before, "{error}");
            assert!(error.to_string().contains(why), "{error}");
            let error = explain(failure(code), TransactionStage::Commit);
            assert_eq!(error.kind(), commit, "{error}");
        }
        let error = explain(unreadable(), TransactionStage::Before);
        assert_eq!(error.kind(), WrongType, "{error}");
    }

    #[test]
    fn a_connection_is_used_again_after_errors_that_say_nothing_about_it() {
        for (error, is_spoiled) in [
            (failure(ffi::SQLITE_FULL), false),
            (failure(ffi::SQLITE_IOERR_WRITE), false),
            (failure(ffi::SQLITE_BUSY), false),
            (failure(ffi::SQLITE_LOCKED), false),
            (unreadable(), false),
            (failure(ffi::SQLITE_CORRUPT), true),
            (failure(ffi::SQLITE_IOERR), true),
            (rusqlite::Error::InvalidQuery, true),
        ] {
            assert_eq!(spoils(&error), is_spoiled, "{error}");
        }
    }

    /// It may have a grant that nothing else has, so no error of a write ends it.
    #[test]
    fn a_log_is_given_up_only_if_it_cannot_be_read() {
        for (code, is_damaged) in [
            (ffi::SQLITE_NOTADB, true),
            (ffi::SQLITE_CORRUPT, true),
            (ffi::SQLITE_IOERR_READ, true),
            (ffi::SQLITE_IOERR_SHORT_READ, true),
            (ffi::SQLITE_IOERR_WRITE, false),
            (ffi::SQLITE_IOERR_FSYNC, false),
            (ffi::SQLITE_FULL, false),
            (ffi::SQLITE_NOMEM, false),
            (ffi::SQLITE_BUSY, false),
        ] {
            assert_eq!(is_damage(&failure(code)), is_damaged, "{code}");
        }
    }

    #[test]
    fn a_file_that_others_use_is_busy_and_one_that_is_full_is_not() {
        let of_sqlite = |code| explain(failure(code), TransactionStage::Before);
        let plain = || Error::new(ErrorKind::Unavailable);
        for (error, busy) in [
            (of_sqlite(ffi::SQLITE_BUSY), true),
            (of_sqlite(ffi::SQLITE_LOCKED), true),
            (plain().caused_by(Busy::Opening), true),
            (of_sqlite(ffi::SQLITE_FULL), false),
            (plain(), false),
        ] {
            assert_eq!(is_busy(&error), busy, "{error}");
        }
    }

    #[test]
    fn only_a_row_that_cannot_be_read_counts_as_none() {
        assert_eq!(unless_unreadable(Ok(5)).unwrap(), Some(5));
        assert_eq!(unless_unreadable::<i64>(Err(unreadable())).unwrap(), None);
        let busy = unless_unreadable::<i64>(Err(failure(ffi::SQLITE_BUSY)));
        assert!(busy.is_err());
    }
}
