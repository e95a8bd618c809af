//! Captures the library's log during a test that runs on one thread.

use std::cell::RefCell;
use std::io::Write;
use std::sync::{Arc, Mutex, Once, PoisonError};

use tracing::Level;

thread_local! {
    /// The collector of this thread's lines.
    static COLLECTOR: RefCell<Option<Text>> = const { RefCell::new(None) };
}

/// Collects the log lines of this thread until it is dropped.
#[derive(Debug)]
pub struct Logs {
    text: Text,
    level: Level,
}

#[derive(Debug, Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Logs {
    /// Starts to collect.
    pub fn gather() -> Self {
        Self::from(Level::INFO)
    }

    /// As [`gather`](Self::gather), with the debug lines.
    pub fn gather_debug() -> Self {
        Self::from(Level::DEBUG)
    }

    /// One subscriber serves the process. With a subscriber for each thread, `tracing` may remember from another thread
    /// that nobody wants a line, and the line is missing.
    fn from(level: Level) -> Self {
        static SUBSCRIBED: Once = Once::new();
        SUBSCRIBED.call_once(|| {
            tracing_subscriber::fmt()
                .with_max_level(Level::DEBUG)
                .with_ansi(false)
                .with_writer(|| COLLECTOR.with_borrow(|text| text.clone().unwrap_or_default()))
                .init();
        });
        let text = Text::default();
        COLLECTOR.set(Some(text.clone()));
        Self { text, level }
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
            .filter(|line| self.level == Level::DEBUG || !line.contains(" DEBUG "))
            .filter(|line| line.contains(part))
            .map(str::to_owned)
            .collect()
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        COLLECTOR.set(None);
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
