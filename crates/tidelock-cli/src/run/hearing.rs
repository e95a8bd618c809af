//! What the wrapper hears of the supervisor and of the command.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;

use super::boot;
use super::group::Group;
use super::link::{self, News, Word};

/// One thing heard.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Heard {
    /// From the supervisor.
    News(News),
    /// From the kernel: the command is dead, whether or not the supervisor says so.
    CommandIsDead,
    /// The supervisor says nothing any more, because it is dead.
    SupervisorIsGone,
}

/// The link to the supervisor, and the command itself.
pub(crate) struct Ears {
    link: UnixStream,
    /// The same link, of which the runtime knows when it can be read.
    ready: tokio::net::UnixStream,
    /// Until it has been heard that it is dead.
    command: Option<OwnedFd>,
}

impl Ears {
    pub(crate) fn new(link: &UnixStream) -> io::Result<Self> {
        let ready = link.try_clone()?;
        ready.set_nonblocking(true)?;
        Ok(Self {
            link: link.try_clone()?,
            ready: tokio::net::UnixStream::from_std(ready)?,
            command: None,
        })
    }

    /// What can be heard without waiting. News first: how the command ended, only the supervisor can say.
    pub(crate) fn now(&mut self) -> Option<Heard> {
        match link::hear(&self.link) {
            Word::News(news) => {
                if let News::Started(leader) = news {
                    self.command = Group::of(leader).and_then(|it| boot::end_of(it.leader()));
                }
                return Some(Heard::News(news));
            }
            Word::End => return Some(Heard::SupervisorIsGone),
            Word::Nothing => {}
        }
        let dead = self.command.as_ref().is_some_and(is_readable);
        dead.then(|| {
            self.command = None;
            Heard::CommandIsDead
        })
    }

    /// The next thing; the command's death only if [`now`](Self::now) is asked. Dropped early, it has taken nothing.
    pub(crate) async fn next(&mut self) -> Heard {
        loop {
            if let Some(heard) = self.now() {
                return heard;
            }
            if self.ready.readable().await.is_err() {
                return Heard::SupervisorIsGone;
            }
            // Has the runtime wait for what comes after this; what was there already is seen by the look above.
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
