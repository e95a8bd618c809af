//! What the library logs on the thread of a test.

use std::io::{self, Write};
use std::sync::Arc;

use tracing::Level;
use tracing::dispatcher::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber, set_default};
use tracing_subscriber::fmt::MakeWriter;

use crate::engine::runtime::sync::Mutex;

/// The log of this thread from its start on. It ends when this is dropped.
pub(crate) struct ThreadLog {
    text: LogText,
    _scope: DefaultGuard,
    /// As long as there is only one subscriber in the process, a thread without one decides for all threads that nobody
    /// listens to a log statement.
    _other: Dispatch,
}

#[derive(Clone, Default)]
struct LogText(Arc<Mutex<Vec<u8>>>);

impl ThreadLog {
    pub(crate) fn start() -> Self {
        let text = LogText::default();
        let other = Dispatch::new(NoSubscriber::new());
        let subscriber = tracing_subscriber::fmt()
            .with_writer(text.clone())
            .with_max_level(Level::DEBUG)
            .with_ansi(false)
            .finish();
        Self {
            text,
            _scope: set_default(subscriber),
            _other: other,
        }
    }

    /// How many lines have these words.
    pub(crate) fn count(&self, words: &str) -> usize {
        let text = String::from_utf8(self.text.0.lock().clone()).unwrap();
        text.lines().filter(|line| line.contains(words)).count()
    }
}

impl Write for LogText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogText {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
