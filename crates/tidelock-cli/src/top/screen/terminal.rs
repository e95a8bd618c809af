//! The terminal of the screen: it is taken, put in order again, and watched until it is gone.
//!
//! Every write to a terminal that is gone fails, also one that tells of the failure. So nothing here prints or panics, as the
//! same functions of ratatui do: a panic while a value is dropped aborts the process.

use std::io::{Stdout, stdin, stdout};
use std::mem::ManuallyDrop;

use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::backend::CrosstermBackend;

use crate::other_end;

/// The terminal while the screen is on it. When this is dropped, the terminal is as it was.
pub(super) struct Terminal {
    /// It would print if it could not show the cursor.
    screen: ManuallyDrop<ratatui::Terminal<CrosstermBackend<Stdout>>>,
}

impl Terminal {
    pub(super) fn take() -> std::io::Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // First, or the message would be on the screen that goes.
            put_in_order();
            before(panic);
        }));
        let taken = enable_raw_mode().and_then(|()| {
            execute!(stdout(), EnterAlternateScreen)?;
            ratatui::Terminal::new(CrosstermBackend::new(stdout()))
        });
        match taken {
            Ok(screen) => Ok(Self {
                screen: ManuallyDrop::new(screen),
            }),
            Err(error) => {
                put_in_order();
                Err(error)
            }
        }
    }

    pub(super) fn screen(&mut self) -> &mut ratatui::Terminal<CrosstermBackend<Stdout>> {
        &mut self.screen
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // After a panic the hook has done it, before the message.
        if !std::thread::panicking() {
            put_in_order();
        }
    }
}

/// As much of it as can be done.
fn put_in_order() {
    let _ = disable_raw_mode();
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
}

/// Whether nobody is at the terminal any more.
pub(super) fn is_gone() -> bool {
    other_end::is_gone(&stdin())
}

/// Ends when the terminal is gone. Not every process at a terminal gets a signal then, and crossterm's reader of keys does
/// not end: it reads again and again, without a pause.
pub(super) fn gone() -> std::io::Result<impl Future<Output = ()>> {
    other_end::gone(stdin())
}
