//! The other end of a stream of this process: the reader of a pipe, the person at a terminal. A process that neither reads
//! nor writes does not notice that nobody is there any more.

use std::io;

#[cfg(unix)]
use {
    rustix::event::{PollFd, PollFlags, Timespec, poll},
    std::os::fd::AsFd,
};

/// Waits until nobody is there. `false`: the time is over, or this system does not tell.
#[cfg(unix)]
fn hung_up(stream: &impl AsFd, limit: Option<&Timespec>) -> rustix::io::Result<bool> {
    // No flag is asked for: an end is told without, and what there is to read is for another reader.
    let mut polled = [PollFd::new(stream, PollFlags::empty())];
    rustix::io::retry_on_intr(|| poll(&mut polled, limit))?;
    let told = polled[0].revents();
    Ok(told.intersects(PollFlags::HUP | PollFlags::ERR))
}

/// Whether nobody is there any more. `false` also if this system does not tell.
#[cfg(unix)]
pub(crate) fn is_gone(stream: &impl AsFd) -> bool {
    matches!(hung_up(stream, Some(&Timespec::default())), Ok(true))
}

#[cfg(not(unix))]
pub(crate) fn is_gone<T>(_: &T) -> bool {
    false
}

/// Ends when nobody is there any more.
#[cfg(unix)]
pub(crate) fn gone(stream: impl AsFd + Send + 'static) -> io::Result<impl Future<Output = ()>> {
    let (tell, told) = tokio::sync::oneshot::channel();
    // The wait blocks. The thread ends with the process.
    let wait = move || {
        if let Ok(true) = hung_up(&stream, None) {
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
#[allow(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "as on Unix"
)]
pub(crate) fn gone<T>(_: T) -> io::Result<impl Future<Output = ()>> {
    Ok(std::future::pending())
}
