//! The terminal of the screen: it is taken, put in order again, and watched until it is gone.
//!
//! Every write to a terminal that is gone fails, also one that tells of the failure. So nothing here prints or panics, as the
//! same functions of ratatui do: a panic while a value is dropped aborts the process.

use std::io::{Stdout, stdout};
use std::mem::ManuallyDrop;

use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::backend::CrosstermBackend;

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
#[cfg(unix)]
pub(super) fn is_gone() -> bool {
    use rustix::event::Timespec;

    matches!(hung_up(Some(&Timespec::default())), Ok(true))
}

#[cfg(not(unix))]
pub(super) fn is_gone() -> bool {
    false
}

/// Waits until the terminal is gone. `false`: the time is over, or this system does not tell.
#[cfg(unix)]
fn hung_up(limit: Option<&rustix::event::Timespec>) -> rustix::io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, poll};

    let stdin = std::io::stdin();
    // No flag is asked for: an end is told without, and the keys are for another reader.
    let mut terminal = [PollFd::new(&stdin, PollFlags::empty())];
    rustix::io::retry_on_intr(|| poll(&mut terminal, limit))?;
    let told = terminal[0].revents();
    Ok(told.intersects(PollFlags::HUP | PollFlags::ERR))
}

/// Ends when the terminal is gone. Not every process at a terminal gets a signal then, and crossterm's reader of keys does
/// not end: it reads again and again, without a pause.
#[cfg(unix)]
pub(super) fn gone() -> std::io::Result<impl Future<Output = ()>> {
    let (tell, told) = tokio::sync::oneshot::channel();
    // The wait blocks. The thread ends with the process.
    let wait = move || {
        if let Ok(true) = hung_up(None) {
            let _ = tell.send(());
        }
    };
    let thread = std::thread::Builder::new().name("hang-up".to_owned());
    thread.spawn(wait)?;
    Ok(async {
        if told.await.is_err() {
            // This system does not tell.
            std::future::pending::<()>().await;
        }
    })
}

#[cfg(not(unix))]
#[allow(clippy::unnecessary_wraps, reason = "as on Unix")]
pub(super) fn gone() -> std::io::Result<impl Future<Output = ()>> {
    Ok(std::future::pending())
}
