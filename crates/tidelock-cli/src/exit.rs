//! Exit codes, which are an API, and the error that carries one.

use std::fmt;
use std::process::ExitCode;

use tidelock::ErrorKind;

/// Wrong usage: flags, names, durations, a store that cannot do that (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;
/// The store cannot be reached or cannot serve (`EX_UNAVAILABLE`).
pub(crate) const UNAVAILABLE: u8 = 69;
/// Something went wrong that is nobody's usage (`EX_SOFTWARE`).
pub(crate) const INTERNAL: u8 = 70;
/// The lock was not acquired in time (`EX_TEMPFAIL`: the same call may succeed later).
pub(crate) const NOT_ACQUIRED: u8 = 75;
/// The lock was lost while the command ran (`EX_PROTOCOL` in sysexits; here it has this one meaning).
pub(crate) const LOST: u8 = 76;
/// The command was found and cannot be executed, as shells say it.
#[cfg_attr(windows, allow(dead_code))]
pub(crate) const CANNOT_EXECUTE: u8 = 126;
/// There is no such command, as shells say it.
#[cfg_attr(windows, allow(dead_code))]
pub(crate) const NOT_FOUND: u8 = 127;

/// What ends the command with a message: an exit code and one line.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

pub(crate) type Outcome<T = ExitCode> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: u8, message: impl fmt::Display) -> Self {
        Self {
            code,
            message: message.to_string(),
        }
    }

    /// Says first which lock it was about.
    #[cfg_attr(windows, allow(dead_code))]
    pub(crate) fn on_lock(self, name: &str) -> Self {
        if name.is_empty() {
            return self;
        }
        Self::new(self.code, format!("{name}: {}", self.message))
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(USAGE, message)
    }

    pub(crate) fn internal(message: impl fmt::Display) -> Self {
        Self::new(INTERNAL, message)
    }
}

impl From<tidelock::Error> for Failure {
    fn from(error: tidelock::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::TimedOut => NOT_ACQUIRED,
            ErrorKind::Lost | ErrorKind::NotHeld => LOST,
            ErrorKind::InvalidName | ErrorKind::InvalidOptions | ErrorKind::Unsupported => USAGE,
            ErrorKind::Runtime | ErrorKind::Closed | ErrorKind::Cancelled => INTERNAL,
            // Out of reach, mute, refusing, or with something else at the key: this store does not serve this lock now.
            _ => UNAVAILABLE,
        };
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(source) = cause {
            let text = source.to_string();
            // Drivers repeat their source in their own text.
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            cause = source.source();
        }
        Self { code, message }
    }
}

/// Exit code 128 + n, as shells tell of a death by signal.
pub(crate) fn by_signal(number: i32) -> u8 {
    u8::try_from(number)
        .unwrap_or(0)
        .checked_add(128)
        .unwrap_or(INTERNAL)
}

/// One line on stderr. Not `eprintln!`, which panics when nobody reads stderr any more.
pub(crate) fn say(line: impl fmt::Display) {
    use std::io::Write;
    let line = line.to_string().replace('\n', " ");
    // Nobody reads: there is no other place to say it.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
