//! Says what a command waits for: at a terminal a line that changes, elsewhere with `-v` one line.

use std::convert::Infallible;
use std::io::IsTerminal;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tidelock::{Escaped, Lock, LockGuard, Snapshot};

use crate::args::StoreArgs;
use crate::covers;
use crate::exit::say;
use crate::inspect::as_text;

/// How long a wait lasts before we say anything. Most waits are shorter.
const QUIET: Duration = Duration::from_secs(1);
/// The pause between two questions to the store about the holder.
const EVERY: Duration = Duration::from_secs(2);
/// Bounds one question to the store.
const LOOK: Duration = Duration::from_secs(1);

/// Explains the wait for a lock until it is dropped.
pub(crate) async fn explain<G: LockGuard>(store: &StoreArgs, lock: &Lock<G>) -> Infallible {
    tokio::time::sleep(QUIET).await;
    if !covers::is_watched(store) {
        return std::future::pending().await;
    }
    let mut line = Line::new();
    loop {
        if let Ok(Ok(seen)) = tokio::time::timeout(LOOK, lock.inspect()).await {
            line.show(waiting_for(&seen));
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn waiting_for(seen: &Snapshot) -> String {
    format!("waiting for {}", as_text(seen))
}

/// The line about the wait.
enum Line {
    /// At a terminal, a thread draws the line: a terminal that was stopped with Ctrl-S blocks its writers, and this
    /// process must renew and release its lock.
    Drawn(Sender<String>),
    /// Elsewhere the first text is printed once, and later ones are not.
    Printed(bool),
}

impl Line {
    fn new() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Printed(false);
        }
        let (text, texts) = channel::<String>();
        let draw = move || {
            #[cfg(unix)]
            crate::run::signals::go_on_in_background();
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
                bar.set_style(style);
            }
            loop {
                match texts.recv_timeout(Duration::from_millis(120)) {
                    Ok(text) => bar.set_message(text),
                    Err(std::sync::mpsc::RecvTimeoutError::Timeout) => bar.tick(),
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                }
            }
            bar.finish_and_clear();
        };
        match std::thread::Builder::new()
            .name("waiting".to_owned())
            .spawn(draw)
        {
            Ok(_) => Self::Drawn(text),
            Err(_) => Self::Printed(false),
        }
    }

    fn show(&mut self, text: String) {
        match self {
            Self::Drawn(texts) => {
                let _ = texts.send(Escaped(text).to_string());
            }
            Self::Printed(done) => {
                if !std::mem::replace(done, true) {
                    say(text);
                }
            }
        }
    }
}
