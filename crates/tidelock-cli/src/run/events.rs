//! Events that reach the wrapper: messages from the supervisor, and the death of the command.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;

use super::boot;
use super::group::Group;
use super::link::{self, News, Word};

/// One event.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    /// A message from the supervisor.
    News(News),
    /// The kernel reports that the command is dead, whether or not the supervisor reports it.
    CommandIsDead,
    /// The socket is closed: the supervisor is dead.
    SupervisorIsGone,
}

/// Listens to the socket to the supervisor and to the pidfd of the command.
pub(crate) struct Events {
    link: UnixStream,
    /// A clone of the socket, registered with the runtime for readiness.
    ready: tokio::net::UnixStream,
    /// The pidfd of the command, until we have reported its death.
    command: Option<OwnedFd>,
}

impl Events {
    pub(crate) fn new(link: &UnixStream) -> io::Result<Self> {
        let ready = link.try_clone()?;
        ready.set_nonblocking(true)?;
        Ok(Self {
            link: link.try_clone()?,
            ready: tokio::net::UnixStream::from_std(ready)?,
            command: None,
        })
    }

    /// The next event that is already there. Messages come first: only the supervisor knows the exit status of the
    /// command.
    pub(crate) fn now(&mut self) -> Option<Event> {
        match link::hear(&self.link) {
            Word::News(news) => {
                if let News::Started(leader) = news {
                    self.command = Group::of(leader).and_then(|it| boot::end_of(it.leader()));
                }
                return Some(Event::News(news));
            }
            Word::End => return Some(Event::SupervisorIsGone),
            Word::Nothing => {}
        }
        let dead = self.command.as_ref().is_some_and(is_readable);
        dead.then(|| {
            self.command = None;
            Event::CommandIsDead
        })
    }

    /// Waits for the next event. Only messages wake it, so call [`now`](Self::now) as well to see the command's death.
    /// Cancel safe: dropped early, it has consumed nothing.
    pub(crate) async fn next(&mut self) -> Event {
        loop {
            if let Some(heard) = self.now() {
                return heard;
            }
            if self.ready.readable().await.is_err() {
                return Event::SupervisorIsGone;
            }
            // Clears the readiness, so that the runtime waits for the next message. The call of `now` above has read
            // all that was there before.
            let used_up = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            let _ = self.ready.try_io(Interest::READABLE, used_up);
        }
    }
}

fn is_readable(fd: &OwnedFd) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut polled = [PollFd::new(fd, PollFlags::IN)];
    matches!(poll(&mut polled, Some(&now)), Ok(1..))
}
