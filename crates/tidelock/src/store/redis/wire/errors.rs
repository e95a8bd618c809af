//! Maps the errors of servers and connections to an [`ErrorKind`]. The main question is whether the request certainly
//! did not run, or may have run.

use std::fmt;

use crate::error::{Error, ErrorKind, ReplyScope, Result};
use crate::store::errors;
pub(crate) use crate::store::errors::{after_a_change, unanswered, unsent};
use crate::store::redis::address::HostAddress;
use crate::store::redis::slots;

/// An error reply of the server, without the arguments of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerError {
    code: String,
    text: String,
}

impl ServerError {
    pub(crate) fn new(code: impl Into<String>, text: impl Into<String>) -> Self {
        let (code, mut text) = (code.into(), text.into());
        hide_arguments(&mut text);
        Self {
            code: meaning(&code, &text).map_or(code, str::to_owned),
            text,
        }
    }

    /// Parses an error text as a script sees it: the code is its first word.
    pub(crate) fn parse(text: &str) -> Self {
        let text = text.trim_start_matches('-');
        let (code, rest) = text.split_once(' ').unwrap_or((text, ""));
        Self::new(code, rest)
    }

    /// The reply to `SELECT` for a database that the server does not have.
    pub(crate) fn is_no_database(&self) -> bool {
        self.code == "ERR" && self.text.contains("DB index")
    }

    /// The server does not know the script's hash, so the script did not run.
    pub(crate) fn is_no_script(&self) -> bool {
        self.code == "NOSCRIPT"
    }

    /// The connection is no longer authenticated.
    pub(crate) fn ends_session(&self) -> bool {
        matches!(self.code.as_str(), "NOAUTH" | "WRONGPASS")
    }

    /// The redirection of a cluster node. If it names no host, it means the host of `asked`, the node that replied.
    pub(crate) fn redirection(&self, asked: &HostAddress) -> Option<Redirect> {
        let to = |kind: fn(u16, HostAddress) -> Redirect| {
            slots::redirection(&self.text, asked).map(|(slot, address)| kind(slot, address))
        };
        match self.code.as_str() {
            "MOVED" => to(Redirect::Moved),
            "ASK" => to(Redirect::Ask),
            _ => None,
        }
    }

    /// The server has refused one of the commands of a transaction, so it has run none of them.
    pub(crate) fn aborts(&self) -> bool {
        self.code == "EXECABORT"
    }

    /// The user lacks a right.
    pub(crate) fn names_right(&self) -> bool {
        self.code == "NOPERM"
    }

    /// The error is temporary and the request did not run: a retry, here or at another node, may succeed.
    pub(crate) fn passes(&self) -> bool {
        PASSING.contains(&self.code.as_str())
    }

    /// The server has become a replica. It rejects writes, and a retry here does not help soon.
    pub(crate) fn is_replica(&self) -> bool {
        matches!(self.code.as_str(), "READONLY" | "MASTERDOWN")
    }

    pub(crate) fn error(&self) -> Error {
        let Self { code, text } = self;
        let (kind, advice) = self.kind();
        let error = Error::new(kind)
            .because(format!("{advice} (server: {code} {text})"))
            .replied(self.scope());
        if self.passes() || matches!(code.as_str(), "MOVED" | "ASK") {
            // A cluster store reads the cause to follow the redirect or to retry.
            return error.caused_by(self.clone());
        }
        error
    }

    /// An unknown error concerns the request: it may be that of a proxy, which refuses keys of several slots in words of
    /// its own.
    fn scope(&self) -> ReplyScope {
        let is_full = self.code == "ERR" && self.text.contains(TOO_MANY_CLIENTS);
        if is_full || SERVER_WIDE.contains(&self.code.as_str()) {
            ReplyScope::Server
        } else {
            ReplyScope::Request
        }
    }

    /// The kind of the error, and what the user can do.
    fn kind(&self) -> (ErrorKind, &'static str) {
        match self.code.as_str() {
            "WRONGTYPE" => (
                ErrorKind::WrongType,
                "the key was not changed; use another name, or find the program that writes it",
            ),
            "NOPERM" => (
                ErrorKind::Refused,
                "give the user the rights that `tidelock doctor` lists",
            ),
            // The user may begin a transaction, and not execute it.
            "EXECABORT" if self.text.contains("because of: NOPERM") => (
                ErrorKind::Refused,
                "give the user the rights that `tidelock doctor` lists",
            ),
            // A node of a cluster, or a proxy in front of several servers. It has run nothing.
            "CROSSSLOT" => (
                ErrorKind::Refused,
                "the server refuses keys of several hash slots in one request",
            ),
            "NOAUTH" | "WRONGPASS" => (
                ErrorKind::Refused,
                "authentication: check user and password",
            ),
            "OOM" => (
                ErrorKind::Unavailable,
                "the server's memory is full; nothing was acquired",
            ),
            "MISCONF" => (
                ErrorKind::Unavailable,
                "the server cannot write its data to disk, and refuses changes",
            ),
            "READONLY" | "MASTERDOWN" => (ErrorKind::Unavailable, "this server is a replica now"),
            "LOADING" | "BUSY" | "CLUSTERDOWN" | "TRYAGAIN" | "NOREPLICAS" | "UNKILLABLE" => (
                ErrorKind::Unavailable,
                "the server refuses requests at the moment; retry",
            ),
            // A cluster store follows redirects and never reports them. A store with one server would be redirected
            // each time, so this is a configuration error.
            "MOVED" | "ASK" => (
                ErrorKind::InvalidOptions,
                "another node of the cluster has this lock; connect with redis+cluster:// (or redis::Topology::cluster)",
            ),
            "ERR" if self.text.contains(TOO_MANY_CLIENTS) => (
                ErrorKind::Unavailable,
                "the server has reached its limit of clients (maxclients)",
            ),
            "DENIED" => (
                ErrorKind::Refused,
                "the server is in protected mode and refuses clients from other machines; set a password or a bind address on it",
            ),
            "ERR" if self.text.contains("unknown command") => (
                ErrorKind::Refused,
                "the server does not have a command that locks need",
            ),
            // Any other error may have occurred after a part of the script had run.
            _ => (ErrorKind::OutcomeUnknown, "unknown error"),
        }
    }
}

/// A redirection by a cluster node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The slot has moved permanently.
    Moved(u16, HostAddress),
    /// The slot is migrating: the redirect is valid for this request only.
    Ask(u16, HostAddress),
}

/// The server lets a script use only keys that it declares, as Dragonfly does.
pub(crate) fn wants_keys_declared(error: &Error) -> bool {
    let detail = error.detail();
    detail.is_some_and(|detail| detail.contains("undeclared key"))
}

/// The server is too old to know this subcommand, and has run nothing. Redis 6.2 and 7 say it in words that differ in one
/// letter.
pub(crate) fn lacks_subcommand(error: &Error) -> bool {
    let detail = error.detail();
    detail.is_some_and(|detail| detail.contains("nknown subcommand"))
}

/// The server error that caused this error.
pub(crate) fn server_error(error: &Error) -> Option<&ServerError> {
    std::error::Error::source(error)?.downcast_ref()
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.text)
    }
}

impl std::error::Error for ServerError {}

/// Codes of temporary errors. A request with one of these certainly did not run.
const PASSING: [&str; 7] = [
    "TRYAGAIN",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "READONLY",
    "BUSY",
    "NOREPLICAS",
];

/// Codes of errors that concern the whole server or the session. Any other request would get the same error.
const SERVER_WIDE: [&str; 12] = [
    "NOAUTH",
    "WRONGPASS",
    "DENIED",
    "LOADING",
    "BUSY",
    "UNKILLABLE",
    "READONLY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "NOREPLICAS",
    "MISCONF",
    "OOM",
];

/// A part of the text of a server that has reached its limit of clients. That error has no code of its own.
const TOO_MANY_CLIENTS: &str = "max number of clients";

/// Codes that we recognize even if a script has wrapped them in text.
const CODES: [&str; 10] = [
    "CROSSSLOT",
    "WRONGTYPE",
    "NOPERM",
    "OOM",
    "MISCONF",
    "READONLY",
    "MASTERDOWN",
    "NOREPLICAS",
    "LOADING",
    "NOSCRIPT",
];

/// The actual code of an error with a generic code. Within a script some errors have no code of their own, and Redis
/// 6.2 wraps all of them in text.
fn meaning(code: &str, text: &str) -> Option<&'static str> {
    let own_code = !matches!(code, "ERR" | "Error") && !code.starts_with('@');
    if own_code {
        return None;
    }
    if text.contains("not an integer") {
        return Some("WRONGTYPE");
    }
    if text.contains("user executing the script") || text.contains("ACL failure in script") {
        return Some("NOPERM");
    }
    CODES.into_iter().find(|known| names_code(text, known))
}

/// Removes the arguments from the text of an unknown-command error. The server repeats them, and for a handshake they
/// are the user and the password.
pub(crate) fn hide_arguments(text: &mut String) {
    if let Some(at) = text.find("with args beginning with") {
        text.truncate(at);
        text.push('…');
    }
}

fn names_code(text: &str, code: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| word == code)
}

/// The error of a command that is forbidden or does not exist. `None`: another error.
pub(crate) fn forbids(server_error: &ServerError) -> Option<Error> {
    let error = server_error.error();
    (error.kind() == ErrorKind::Refused && !server_error.ends_session()).then_some(error)
}

/// Maps a refused or unknown command to `None`.
pub(crate) fn allowed<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::Refused || unknown_command(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Hosted servers rename or remove commands that they do not want to offer.
fn unknown_command(error: &Error) -> bool {
    error
        .detail()
        .is_some_and(|detail| detail.contains("unknown command"))
}

/// The error for a reply of an unexpected shape. Such a reply is never a success.
pub(crate) fn unexpected(reply: &impl std::fmt::Debug) -> Error {
    errors::unexpected(format_args!("{reply:?}"))
}

#[cfg(test)]
mod tests;
