//! The error codes of MySQL and MariaDB, as an [`ErrorKind`].

use std::fmt;

use crate::error::{Error, ErrorKind};
use crate::store::errors;
use crate::store::errors::ErrorReply;
pub(crate) use crate::store::errors::{unanswered, unsent};

/// Why a text of statements got no answer.
pub(crate) type RequestError = errors::RequestError<MysqlError>;

/// The server refused a statement.
#[derive(Debug)]
pub(crate) struct MysqlError {
    pub(crate) code: u16,
    pub(crate) text: String,
    /// Nothing of the text has happened: it was the first statement, or its transaction was rolled back.
    pub(crate) undone: bool,
}

/// The error of an attempt whose ticket was withdrawn.
pub(crate) fn withdrawn() -> Error {
    Error::new(ErrorKind::Cancelled).because("the attempt was withdrawn before")
}

impl RequestError {
    /// A deadlock with other transactions: nothing has happened, so the text may be repeated at once.
    pub(crate) fn is_contended(&self) -> bool {
        self.undone() == Some(1213)
    }

    /// Another transaction blocks a row that we need, so nothing has happened.
    pub(crate) fn is_kept_waiting(&self) -> bool {
        matches!(self.undone(), Some(1205 | 1213))
    }

    /// One of our tables is missing, so nothing has happened.
    pub(crate) fn is_no_table(&self) -> bool {
        self.undone() == Some(1146)
    }

    /// The name of the table of ours that is missing.
    pub(crate) fn missing_table(&self) -> Option<&str> {
        let Self::Server(error) = self else {
            return None;
        };
        // The server names the database before the table, and that may have the name of another table of ours.
        let is_apart = |c: char| !c.is_alphanumeric() && c != '_';
        let mut words = error.text.rsplit(is_apart);
        let table = words.find(|word| word.starts_with("tidelock_"));
        table.filter(|_| self.is_no_table())
    }

    /// This table is missing, or out of the user's reach, so nothing has happened. A server that may not tell the two
    /// apart refuses the user.
    pub(crate) fn lacks_table(&self, table: &str) -> bool {
        let Self::Server(error) = self else {
            return false;
        };
        error.undone && matches!(error.code, 1142 | 1146) && error.text.contains(table)
    }

    /// A table of an earlier tidelock lacks a column.
    pub(crate) fn is_no_column(&self) -> bool {
        self.undone() == Some(1054)
    }

    /// The user may not create tables.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, Self::Server(error) if matches!(error.code, 1044 | 1142 | 1227))
    }

    /// The connection can serve the next request. An error that is not in the table may have ended the session, and the
    /// outcome of the next request would be unknown.
    pub(crate) fn spares_connection(&self) -> bool {
        // A session keeps the format of the binary log that it began with. The next one may have another.
        let ends = [IDLE_ENDED, LOGS_STATEMENTS];
        let undone = self.undone();
        self.is_certain()
            && !self.is_read_only()
            && undone.is_some_and(|code| !ends.contains(&code))
    }

    /// The server takes no changes: it has become a replica, or its node has left the cluster. By now the address may lead to
    /// a server that takes them, but only a new connection reaches that one.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, Self::Server(error) if TAKES_NO_CHANGES.contains(&error.code))
    }

    /// The code of an error after which nothing has happened.
    pub(crate) fn undone(&self) -> Option<u16> {
        match self {
            Self::Server(error) if error.undone => Some(error.code),
            _ => None,
        }
    }
}

impl MysqlError {
    fn meaning(&self) -> (ErrorKind, &'static str) {
        if self.undone {
            meaning(self.code)
        } else {
            (ErrorKind::OutcomeUnknown, "a part of the work was done")
        }
    }
}

impl ErrorReply for MysqlError {
    fn kind(&self) -> ErrorKind {
        self.meaning().0
    }
}

impl fmt::Display for MysqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, text, .. } = self;
        write!(f, "{} (server: {code} {text})", self.meaning().1)
    }
}

/// The server has ended a session that was idle for too long.
const IDLE_ENDED: u16 = 4031;

/// The server writes statements into its binary log, and `InnoDB` refuses that under READ COMMITTED, before it changes a row.
const LOGS_STATEMENTS: u16 = 1665;

/// Errors of a server that takes no changes. The last one is that of a node without its cluster.
const TAKES_NO_CHANGES: [u16; 4] = [1290, 1792, 1836, 1047];

/// The text for a row that another transaction has locked.
const KEPT: &str = "another transaction keeps the lock's row; nothing was changed";

/// The error of a renewal that has passed over the row of its lock.
pub(crate) fn kept_row() -> Error {
    unsent(KEPT)
}

#[rustfmt::skip] // a table, with one row a line
fn meaning(code: u16) -> (ErrorKind, &'static str) {
    use ErrorKind::{InvalidOptions, OutcomeUnknown, Refused, Unavailable, Unsupported, WrongType};

    match code {
        1205 | 1213 | 3572 | 1020 => (Unavailable, KEPT),
        1040 | 1203 | 1226 => (Unavailable, "the server takes no more connections"),
        1290 | 1792 | 1836 => (Unavailable, "the server takes no changes; it may be a replica"),
        1021 | 1037 | 1038 | 1041 | 1114 => (Unavailable, "the server has no room left; nothing was acquired"),
        1047 => (Unavailable, "the node does not belong to its cluster just now"),
        // The server sends this to a connection that was idle for too long, before it executes anything.
        IDLE_ENDED => (Unavailable, "the server had ended the idle connection"),
        1045 | 1130 | 1129 | 1251 | 1698 | 1820 | 1862 => (Refused,
            "authentication: check user, password, from where the user may connect, and whether with TLS only (ssl-mode=VERIFY_IDENTITY)"),
        1044 | 1142 | 1143 | 1227 => (Refused, "the user may not use this database or its tables: check the database in the URL; the user needs SELECT, INSERT, UPDATE and DELETE"),
        3159 => (Refused, "the server requires TLS: write ssl-mode=VERIFY_IDENTITY"),
        1049 => (InvalidOptions, "the server has no such database; name one that exists in the URL"),
        1054 | 1064 | 1136 | 1193 | 1231 | 1364 => (Unsupported, "the server is too old, or the tables differ from those that tidelock creates"),
        1146 => (Refused, "tidelock's tables do not exist"),
        LOGS_STATEMENTS => (Unsupported, "the server can write none of our changes into its binary log: set binlog_format to ROW or MIXED; nothing was changed"),
        // Nothing else is counted up.
        1690 => (WrongType,
            "the fencing token of this lock has no next token. The lock was not acquired; set the counter in the tables to the largest token in use"),
        // Anything else may have come after a part of the work.
        _ => (OutcomeUnknown, "unknown error"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A refusal with this text.
    fn refusal(code: u16, undone: bool, text: &str) -> RequestError {
        let text = text.to_owned();
        RequestError::Server(MysqlError { code, text, undone })
    }

    fn kind(code: u16, undone: bool) -> ErrorKind {
        refusal(code, undone, "x").error().kind()
    }

    #[test]
    fn a_connection_to_a_server_that_takes_no_changes_is_not_kept() {
        let failure = |code, undone| refusal(code, undone, "x");
        for code in TAKES_NO_CHANGES {
            assert_eq!(kind(code, true), ErrorKind::Unavailable, "{code}");
            for undone in [true, false] {
                let failure = failure(code, undone);
                assert!(failure.is_read_only() && !failure.spares_connection());
            }
        }
        let waited = failure(1205, true);
        assert!(waited.spares_connection() && !waited.is_read_only());
    }

    /// Their outcome is unknown, and their session may be over: one that was killed has another code on each server.
    #[test]
    fn an_error_that_is_not_in_the_table_is_certain_of_nothing() {
        for code in [1053, 1152, 1180, 1317, 1927, 1969, 3024, 3169, 9999] {
            assert_eq!(kind(code, true), ErrorKind::OutcomeUnknown, "{code}");
            let failure = refusal(code, true, "x");
            assert!(!failure.spares_connection(), "{code}");
        }
        assert_eq!(kind(IDLE_ENDED, true), ErrorKind::Unavailable);
        assert!(!refusal(IDLE_ENDED, true, "x").spares_connection());
    }

    /// A new one has the format that the administrator has set since. Others that are open may have begun with one that works.
    #[test]
    fn a_session_that_cannot_log_its_changes_is_refused_and_not_kept() {
        let text = "Cannot execute statement: impossible to write to binary log";
        let failure = refusal(LOGS_STATEMENTS, true, text);
        assert!(failure.is_certain() && !failure.is_read_only() && !failure.spares_connection());
        let error = failure.error();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("binlog_format"), "{error}");
        assert_eq!(kind(LOGS_STATEMENTS, false), ErrorKind::OutcomeUnknown);
    }

    #[test]
    fn the_table_that_is_missing_is_found_in_the_words_of_the_server() {
        for text in [
            "Table 'locks.tidelock_clients' doesn't exist",
            "Table 'tidelock_locks.tidelock_clients' doesn't exist",
            "Tabelle 'locks.tidelock_clients' existiert nicht",
            "table tidelock_clients does not exist in locks",
        ] {
            let missing = refusal(1146, true, text);
            assert_eq!(missing.missing_table(), Some("tidelock_clients"), "{text}");
        }
        let other = refusal(1146, true, "Table 'shop.orders' doesn't exist");
        assert_eq!(other.missing_table(), None);
        let text = "Table 'locks.tidelock_clients' doesn't exist";
        assert_eq!(refusal(1146, false, text).missing_table(), None);
        assert_eq!(refusal(1142, true, text).missing_table(), None);
    }

    #[test]
    fn a_certain_rollback_did_not_happen() {
        for code in [1205, 1213, 1290, 1040] {
            assert_eq!(kind(code, true), ErrorKind::Unavailable, "{code}");
            assert_eq!(kind(code, false), ErrorKind::OutcomeUnknown, "{code}");
        }
        assert_eq!(kind(1142, true), ErrorKind::Refused);
        assert_eq!(kind(1690, true), ErrorKind::WrongType);
        assert!(
            RequestError::Broken(String::new())
                .error()
                .outcome_unknown()
        );
    }

    #[test]
    fn an_error_says_whether_a_retry_may_help_and_what_to_do() {
        use ErrorKind::{InvalidOptions, Refused, Unavailable, Unsupported, WrongType};

        for (codes, expected, words) in [
            (&[1205, 1213, 3572, 1020][..], Unavailable, "transaction"),
            (&[1040, 1203, 1226], Unavailable, "no more connections"),
            (&[1290, 1792, 1836], Unavailable, "replica"),
            (&[1021, 1037, 1038, 1041, 1114], Unavailable, "no room left"),
            (&[1047], Unavailable, "cluster"),
            (&[4031], Unavailable, "idle connection"),
            (&[1045, 1130, 1129, 1251], Refused, "check user"),
            (&[1698, 1820, 1862], Refused, "check user"),
            (&[1044, 1142, 1143, 1227], Refused, "SELECT, INSERT"),
            (&[3159], Refused, "ssl-mode=VERIFY_IDENTITY"),
            (&[1049], InvalidOptions, "no such database"),
            (&[1054, 1064, 1136], Unsupported, "too old"),
            (&[1193, 1231, 1364], Unsupported, "too old"),
            (&[1146], Refused, "do not exist"),
            (&[1665], Unsupported, "binlog_format"),
            (&[1690], WrongType, "no next token"),
        ] {
            for code in codes {
                let error = refusal(*code, true, "its own words").error();
                let told = error.to_string();
                assert_eq!(error.kind(), expected, "{told}");
                assert!(told.contains(words), "{told}");
                let server = format!("(server: {code} its own words)");
                assert!(told.contains(&server), "{told}");
            }
        }
        assert_eq!(kept_row().kind(), Unavailable);
        assert_eq!(withdrawn().kind(), ErrorKind::Cancelled);
    }

    /// A text that was refused may be sent again only if nothing of it has happened.
    #[test]
    fn only_a_certain_rollback_is_a_reason_to_send_again() {
        type Reason = fn(&RequestError) -> bool;
        let reasons: [(Reason, &[u16]); 4] = [
            (RequestError::is_contended, &[1213]),
            (RequestError::is_kept_waiting, &[1205, 1213]),
            (RequestError::is_no_table, &[1146]),
            (RequestError::is_no_column, &[1054]),
        ];
        for (is_reason, codes) in reasons {
            for code in [1205, 1213, 1146, 1054, 1142] {
                let is_one = is_reason(&refusal(code, true, "x"));
                assert_eq!(is_one, codes.contains(&code), "{code}");
                assert!(!is_reason(&refusal(code, false, "x")), "{code}");
            }
            assert!(!is_reason(&RequestError::Broken("x".to_owned())));
        }
    }

    #[test]
    fn a_user_without_the_right_to_create_is_told_from_one_whose_table_is_missing() {
        for (code, is_denied) in [(1044, true), (1142, true), (1227, true), (1146, false)] {
            for undone in [true, false] {
                let failure = refusal(code, undone, "x");
                assert_eq!(failure.is_denied(), is_denied, "{code}");
            }
        }
        assert!(!RequestError::Broken("x".to_owned()).is_denied());
    }

    #[test]
    fn a_table_out_of_reach_counts_as_missing_only_by_its_own_name() {
        let table = "tidelock_sides";
        let text = "SELECT command denied to user 'a'@'b' for table 'tidelock_sides'";
        for (code, undone, text, lacks) in [
            (1142, true, text, true),
            (1146, true, text, true),
            (1142, false, text, false),
            (1044, true, text, false),
            (1142, true, "for table 'tidelock_waiters'", false),
        ] {
            let failure = refusal(code, undone, text);
            assert_eq!(failure.lacks_table(table), lacks, "{code} {undone} {text}");
        }
        assert!(!RequestError::Broken(text.to_owned()).lacks_table(table));
    }
}
