//! Exit codes, which are an API, and the error that carries one.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

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

/// One line on stderr. Another thread writes it: nobody may read any more what stderr leads to (a pager, a terminal that was
/// stopped), and who waits for that there neither keeps a deadline nor ends a command.
pub(crate) fn say(line: impl fmt::Display) {
    let mut line = line.to_string().replace('\n', " ");
    line.push('\n');
    // Not `eprintln!`, which panics when nobody has stderr open any more; there is no other place to say it.
    let _ = Aside.write_all(line.as_bytes());
}

/// What is written here goes to stderr in its time, and holds up nobody.
#[derive(Debug)]
pub(crate) struct Aside;

/// The thread that writes. `None`: it cannot be had, so everybody writes for himself.
static WRITER: OnceLock<Option<SyncSender<Said>>> = OnceLock::new();

enum Said {
    Text(Vec<u8>),
    /// All before it was written.
    End(SyncSender<()>),
}

/// How much may wait to be read by somebody; what comes after it is left out.
const UNREAD: usize = 1000;
/// How long the end of the process is put off until what was said is written.
const LAST_WORDS: Duration = Duration::from_secs(1);

fn writer() -> Option<&'static SyncSender<Said>> {
    let start = || {
        let (tell, told) = sync_channel(UNREAD);
        let write = move || {
            for said in told {
                match said {
                    Said::Text(text) => drop(std::io::stderr().write_all(&text)),
                    Said::End(written) => drop(written.send(())),
                }
            }
        };
        let thread = std::thread::Builder::new().name("stderr".to_owned());
        thread.spawn(write).is_ok().then_some(tell)
    };
    WRITER.get_or_init(start).as_ref()
}

/// Waits for what was said until now, but not for a reader who does not come.
pub(crate) fn wait_until_said() {
    if let Some(Some(writer)) = WRITER.get() {
        let (written, is_written) = sync_channel(1);
        if writer.try_send(Said::End(written)).is_ok() {
            let _ = is_written.recv_timeout(LAST_WORDS);
        }
    }
}

impl Write for Aside {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        match writer() {
            Some(writer) => {
                let _ = writer.try_send(Said::Text(text.to_owned()));
                Ok(text.len())
            }
            None => std::io::stderr().write(text),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
