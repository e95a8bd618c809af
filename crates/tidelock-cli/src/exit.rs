//! Exit codes, which are an API, the error that carries one, and the writer for stderr.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use tidelock::{ErrorKind, Escaped};

/// Wrong usage: flags, names, durations, or an operation that the store does not support (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;
/// The store cannot be reached or cannot serve (`EX_UNAVAILABLE`).
pub(crate) const UNAVAILABLE: u8 = 69;
/// An internal error that no usage caused (`EX_SOFTWARE`).
pub(crate) const INTERNAL: u8 = 70;
/// The lock was not acquired in time (`EX_TEMPFAIL`: the same call may succeed later).
pub(crate) const NOT_ACQUIRED: u8 = 75;
/// The lock was lost while the command ran (`EX_PROTOCOL` in sysexits; here it only means this).
pub(crate) const LOST: u8 = 76;
/// The store refused the user, the password or a permission (`EX_NOPERM`): a retry cannot help.
pub(crate) const NO_PERMISSION: u8 = 77;
/// The command was found but cannot be executed; the code that shells use.
#[cfg_attr(windows, allow(dead_code))]
pub(crate) const CANNOT_EXECUTE: u8 = 126;
/// There is no such command; the code that shells use.
#[cfg_attr(windows, allow(dead_code))]
pub(crate) const NOT_FOUND: u8 = 127;

/// An error that ends the process: an exit code and one line of text.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
    /// The same request may succeed later, as after an outage of the store. The code does not tell: 69 also stands for a key that
    /// holds something else, which no retry changes.
    #[cfg_attr(
        not(feature = "screen"),
        allow(
            dead_code,
            reason = "only the screen goes on after a first look that failed"
        )
    )]
    pub(crate) is_retryable: bool,
}

pub(crate) type Outcome<T = ExitCode> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: u8, message: impl fmt::Display) -> Self {
        Self {
            code,
            message: message.to_string(),
            is_retryable: false,
        }
    }

    /// Puts the name of the lock before the message.
    pub(crate) fn on_lock(self, name: &str) -> Self {
        if name.is_empty() {
            return self;
        }
        Self {
            message: format!("{name}: {}", self.message),
            ..self
        }
    }

    /// An error of an operation on this lock. Most errors name their lock; the others get the name here.
    pub(crate) fn of_lock(error: tidelock::Error, name: &str) -> Self {
        let is_named = error.lock_name().is_some();
        let failure = Self::from(error);
        if is_named {
            failure
        } else {
            failure.on_lock(name)
        }
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
            ErrorKind::Refused => NO_PERMISSION,
            ErrorKind::Runtime | ErrorKind::Closed | ErrorKind::Cancelled => INTERNAL,
            // Unreachable, silent, or a foreign value at the key: this store does not serve this lock now.
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
        Self {
            code,
            message,
            is_retryable: error.is_retryable(),
        }
    }
}

/// Exit code 128 + n, which shells use for a death by signal.
pub(crate) fn by_signal(number: i32) -> u8 {
    u8::try_from(number)
        .unwrap_or(0)
        .checked_add(128)
        .unwrap_or(INTERNAL)
}

/// Ctrl-C, as shells count signals.
pub(crate) const SIGINT: i32 = 2;

/// The signal that has ended this process while it waited, and ran no command. Zero: none.
static INTERRUPTED_BY: AtomicI32 = AtomicI32::new(0);

/// The exit code of a process that this signal ends while it waits, and runs no command.
pub(crate) fn interrupted_by(number: i32) -> u8 {
    INTERRUPTED_BY.store(number, Ordering::SeqCst);
    by_signal(number)
}

/// Dies of Ctrl-C if that has ended this process while it waited. After an exit code, a script of bash would go on with its
/// next line, without the lock: bash takes Ctrl-C for something that this program has used, as an editor does.
///
/// Call it when everything else is done.
#[cfg(unix)]
pub(crate) fn die_if_interrupted() {
    // The kernel does not let the first process of a container die of it.
    if INTERRUPTED_BY.load(Ordering::SeqCst) == SIGINT && std::process::id() != 1 {
        // It returns only if it does not know the signal.
        let _ = signal_hook::low_level::emulate_default_handler(SIGINT);
    }
}

/// Writes one line to stderr, on a thread of its own. The reader of stderr (a pager, a stopped terminal) may have
/// stopped reading. A caller that blocked on that write would keep no deadline and terminate no command.
pub(crate) fn say(line: impl fmt::Display) {
    let line = format!("tidelock: {}\n", Escaped(line));
    // Not `eprintln!`, which panics when stderr is closed. We ignore the error: there is no other place to report it.
    let _ = Aside.write_all(line.as_bytes());
}

/// A writer to stderr that never blocks: a background thread does the write.
#[derive(Debug)]
pub(crate) struct Aside;

/// The queue of the writer thread. `None`: the thread could not be started, so callers write to stderr themselves.
static WRITER: OnceLock<Option<SyncSender<Said>>> = OnceLock::new();

enum Said {
    Text(Vec<u8>),
    /// Sent back once all earlier texts are written.
    End(SyncSender<()>),
}

/// Bounds the number of texts that wait for the writer thread. Later texts are dropped.
const UNREAD: usize = 1000;
/// Bounds the delay of the process's exit while the remaining texts are written.
const LAST_WORDS: Duration = Duration::from_secs(1);

fn writer() -> Option<&'static SyncSender<Said>> {
    let start = || {
        let (tell, told) = sync_channel(UNREAD);
        let write = move || {
            #[cfg(unix)]
            crate::run::signals::go_on_in_background();
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

/// Waits until the texts so far are written, but at most `LAST_WORDS`: stderr may have no reader.
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

/// As [`Aside`], for the log: an event is one line, whatever the store put into a name.
#[derive(Debug)]
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = format!("tidelock: {}\n", Escaped(text.trim_end_matches('\n')));
        Aside.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
