//! What wrapper and supervisor tell each other, over a pair of connected sockets. Its end is news too: the other one is gone.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// One thing told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// To the supervisor: the lock is proved until this instant of the boot clock.
    ProvedUntil(u64),
    /// To the supervisor: the lock is lost.
    Lost,
    /// To the supervisor: hand this signal to the command.
    Signal(i32),
    /// To the wrapper: the command runs, as leader of the group of this number.
    Started(i32),
    /// To the wrapper: the group is being ended, because the deadline came near or the lock was lost.
    Ending,
    /// To the supervisor: the command has the terminal.
    Foreground,
    /// To the wrapper: this signal stopped the command.
    Stopped(i32),
    /// To the wrapper: the command exited with this code, and its group is gone.
    Exited(i32),
    /// To the wrapper: this signal ended the command, and its group is gone.
    Killed(i32),
}

/// Bytes of one piece of news: a letter and a number.
pub(crate) const FRAME: usize = 9;

impl News {
    pub(crate) fn to_bytes(self) -> [u8; FRAME] {
        let number = |n: i32| u64::from(n.unsigned_abs());
        let (letter, value) = match self {
            Self::ProvedUntil(at) => (b'P', at),
            Self::Lost => (b'L', 0),
            Self::Signal(n) => (b'S', number(n)),
            Self::Started(n) => (b'G', number(n)),
            Self::Ending => (b'E', 0),
            Self::Foreground => (b'F', 0),
            Self::Stopped(n) => (b'T', number(n)),
            Self::Exited(n) => (b'X', number(n)),
            Self::Killed(n) => (b'K', number(n)),
        };
        let mut bytes = [letter; FRAME];
        bytes[1..].copy_from_slice(&value.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: [u8; FRAME]) -> Option<Self> {
        let [letter, value @ ..] = bytes;
        let value = u64::from_le_bytes(value);
        let number = i32::try_from(value).ok();
        Some(match letter {
            b'P' => Self::ProvedUntil(value),
            b'L' => Self::Lost,
            b'S' => Self::Signal(number?),
            b'G' => Self::Started(number?),
            b'E' => Self::Ending,
            b'F' => Self::Foreground,
            b'T' => Self::Stopped(number?),
            b'X' => Self::Exited(number?),
            b'K' => Self::Killed(number?),
            _ => return None,
        })
    }
}

/// Tells one thing. A failure means that the other one is gone, which shows as the end of its news as well.
pub(crate) fn tell(mut link: &UnixStream, news: News) {
    let _ = link.write_all(&news.to_bytes());
}

/// The next piece of news; `None` at the end.
pub(crate) fn hear(mut link: &UnixStream) -> Option<News> {
    let mut bytes = [0; FRAME];
    link.read_exact(&mut bytes).ok()?;
    News::from_bytes(bytes)
}

/// The first words: the deadline, and the standard input that is meant for the command.
///
/// The supervisor's own standard input is the link, because that is the one way to hand over a descriptor that needs no `unsafe`
/// on the other side and leaves no number behind that could leak into the command.
pub(crate) fn tell_first(link: &UnixStream, until: u64, input: BorrowedFd<'_>) -> io::Result<()> {
    let bytes = News::ProvedUntil(until).to_bytes();
    let fds = [input];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(
        link,
        &[IoSlice::new(&bytes)],
        &mut control,
        SendFlags::empty(),
    )?;
    Ok(())
}

/// Hears the first words.
pub(crate) fn hear_first(link: &UnixStream) -> io::Result<(u64, OwnedFd)> {
    let mut bytes = [0; FRAME];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    recvmsg(
        link,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        flags,
    )?;
    let input = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    match (News::from_bytes(bytes), input) {
        (Some(News::ProvedUntil(until)), Some(input)) => {
            #[cfg(not(target_os = "linux"))]
            rustix::io::fcntl_setfd(&input, rustix::io::FdFlags::CLOEXEC)?;
            Ok((until, input))
        }
        _ => Err(io::Error::other("not started by `tidelock run`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_arrive_as_they_were_told() {
        let (here, there) = UnixStream::pair().unwrap();
        let all = [
            News::ProvedUntil(u64::MAX),
            News::Lost,
            News::Signal(15),
            News::Started(i32::MAX),
            News::Ending,
            News::Foreground,
            News::Stopped(20),
            News::Exited(255),
            News::Killed(9),
        ];
        for news in all {
            tell(&here, news);
            assert_eq!(hear(&there), Some(news));
        }
        drop(here);
        assert_eq!(hear(&there), None);
    }

    #[test]
    fn a_descriptor_is_handed_over() {
        let (here, there) = UnixStream::pair().unwrap();
        let (read, mut write) = io::pipe().unwrap();
        tell_first(&here, 7, std::os::fd::AsFd::as_fd(&read)).unwrap();
        let (until, input) = hear_first(&there).unwrap();
        write.write_all(b"x").unwrap();
        drop(write);
        let mut text = String::new();
        std::fs::File::from(input)
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!((until, text.as_str()), (7, "x"));
    }
}
