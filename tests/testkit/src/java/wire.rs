//! Sends command lines to the peer, and assigns its answer lines to the callers.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::marker::PhantomData;
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The error of a command to a peer.
#[derive(Debug, thiserror::Error)]
pub enum JavaError {
    /// The Java side threw.
    #[error("{class}: {message}")]
    Thrown {
        /// The exception's class name.
        class: String,
        /// Its message.
        message: String,
    },
    /// The process ended.
    #[error("the Java peer has gone")]
    Gone,
    /// No answer within the timeout in the peer's options.
    #[error("no answer from the Java peer within {0:?}")]
    Silent(Duration),
    /// An answer in an unexpected form.
    #[error("cannot read the Java peer's answer: {0}")]
    Garbled(#[from] serde_json::Error),
}

impl JavaError {
    /// Whether the error is `IllegalMonitorStateException`: Redisson's error for a lock that the caller does not hold.
    pub fn is_not_held(&self) -> bool {
        matches!(self, Self::Thrown { class, .. } if class == "java.lang.IllegalMonitorStateException")
    }
}

/// The result of a command, with times in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<T> {
    /// The result.
    pub value: T,
    /// The time at which the Java thread began.
    pub started_at_ns: u64,
    /// The time at which the Redisson call returned.
    pub done_at_ns: u64,
}

impl<T> Answer<T> {
    /// The time that the Java thread was busy.
    pub fn took(&self) -> Duration {
        Duration::from_nanos(self.done_at_ns.saturating_sub(self.started_at_ns))
    }
}

#[derive(Debug, Deserialize)]
struct Line {
    id: u64,
    started_at_ns: u64,
    done_at_ns: u64,
    #[serde(default)]
    value: Value,
    error: Option<Thrown>,
}

#[derive(Debug, Deserialize)]
struct Thrown {
    class: String,
    message: String,
}

/// A command in flight. Drop does not stop the command.
#[derive(Debug)]
pub struct Pending<T> {
    answer: Receiver<Line>,
    limit: Duration,
    kind: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Pending<T> {
    /// Waits for the answer, at most for the timeout in the peer's options.
    ///
    /// # Errors
    /// Fails when Java threw, the peer has ended, or it is stuck.
    pub fn wait(self) -> Result<Answer<T>, JavaError> {
        let line = self
            .answer
            .recv_timeout(self.limit)
            .map_err(|error| match error {
                RecvTimeoutError::Timeout => JavaError::Silent(self.limit),
                RecvTimeoutError::Disconnected => JavaError::Gone,
            })?;
        if let Some(Thrown { class, message }) = line.error {
            return Err(JavaError::Thrown { class, message });
        }
        let value = serde_json::from_value(line.value)?;
        Ok(Answer {
            value,
            started_at_ns: line.started_at_ns,
            done_at_ns: line.done_at_ns,
        })
    }

    /// As [`wait`](Self::wait), but returns only the value.
    ///
    /// # Errors
    /// The same as [`wait`](Self::wait).
    pub fn value(self) -> Result<T, JavaError> {
        Ok(self.wait()?.value)
    }
}

#[derive(Debug)]
struct Desk {
    next_id: u64,
    /// `None` once the peer has closed its output: no answer can come any more.
    waiting: Option<HashMap<u64, Sender<Line>>>,
}

/// The two pipes of a peer, shared by all its locks.
#[derive(Debug)]
pub(super) struct Link {
    stdin: Mutex<ChildStdin>,
    desk: Arc<Mutex<Desk>>,
    limit: Duration,
}

impl Link {
    /// Takes the child's pipes. The second value is the client id from the peer's handshake.
    pub(super) fn new(
        child: &mut Child,
        limit: Duration,
    ) -> anyhow::Result<(Arc<Self>, Pending<String>)> {
        let stdin = child
            .stdin
            .take()
            .context("the peer's stdin is not a pipe")?;
        let stdout = child
            .stdout
            .take()
            .context("the peer's stdout is not a pipe")?;
        let (sender, answer) = channel();
        let waiting = Some(HashMap::from([(0, sender)]));
        let desk = Arc::new(Mutex::new(Desk {
            next_id: 1,
            waiting,
        }));
        let readers_desk = Arc::clone(&desk);
        thread::Builder::new()
            .name("java peer".into())
            .spawn(move || read(stdout, &readers_desk))?;
        let link = Self {
            stdin: Mutex::new(stdin),
            desk,
            limit,
        };
        Ok((
            Arc::new(link),
            Pending {
                answer,
                limit,
                kind: PhantomData,
            },
        ))
    }

    /// Sends a command for this worker, and does not wait for the answer.
    pub(super) fn begin<T>(
        &self,
        worker: &str,
        command: &str,
        mut request: Map<String, Value>,
    ) -> Result<Pending<T>, JavaError> {
        // We register the request before we write its line. Otherwise the answer could arrive before the reader
        // knows the receiver, and would be discarded.
        let (sender, answer) = channel();
        let id = {
            let mut desk = locked(&self.desk);
            let id = desk.next_id;
            desk.next_id += 1;
            desk.waiting
                .as_mut()
                .ok_or(JavaError::Gone)?
                .insert(id, sender);
            id
        };
        request.insert("id".into(), id.into());
        request.insert("worker".into(), worker.into());
        request.insert("do".into(), command.into());
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        locked(&self.stdin)
            .write_all(&line)
            .map_err(|_| JavaError::Gone)?;
        Ok(Pending {
            answer,
            limit: self.limit,
            kind: PhantomData,
        })
    }
}

fn read(stdout: ChildStdout, desk: &Mutex<Desk>) {
    for text in BufReader::new(stdout).lines() {
        let Ok(line) = text
            .map_err(anyhow::Error::from)
            .and_then(|text| Ok(serde_json::from_str::<Line>(&text)?))
        else {
            break;
        };
        let waiter = locked(desk)
            .waiting
            .as_mut()
            .and_then(|waiting| waiting.remove(&line.id));
        if let Some(waiter) = waiter {
            // The caller may have dropped its `Pending`.
            let _ = waiter.send(line);
        }
    }
    // We drop the senders, so that the remaining waiters get an error instead of a timeout.
    locked(desk).waiting = None;
}

/// A panic in another test thread leaves maps and pipes usable, so we ignore the poison.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
