//! Captures the library's log during a test that runs on one thread.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::subscriber::DefaultGuard;

/// Collects the log lines of this thread until it is dropped.
#[derive(Debug)]
pub struct Logs {
    text: Text,
    _scope: DefaultGuard,
}

#[derive(Debug, Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Logs {
    /// Starts to collect.
    pub fn gather() -> Self {
        Self::from(tracing::Level::INFO)
    }

    /// As [`gather`](Self::gather), with the debug lines.
    pub fn gather_debug() -> Self {
        Self::from(tracing::Level::DEBUG)
    }

    fn from(level: tracing::Level) -> Self {
        let text = Text::default();
        let writer = text.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        Self {
            text,
            _scope: tracing::subscriber::set_default(subscriber),
        }
    }

    /// The warnings so far.
    pub fn warnings(&self) -> Vec<String> {
        self.with(" WARN ")
    }

    /// The lines so far that contain `part`.
    pub fn with(&self, part: &str) -> Vec<String> {
        let bytes = self.text.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes)
            .lines()
            .filter(|line| line.contains(part))
            .map(str::to_owned)
            .collect()
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
