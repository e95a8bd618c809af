//! Translates SQLite errors into errors of a lock.

use std::fmt;

use rusqlite::ErrorCode;

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
    let passes = matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::DiskFull)
    );
    !passes && !is_unreadable(error)
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
