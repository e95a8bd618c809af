//! Messages between wrapper and supervisor, over a pair of connected sockets. End of file means that the peer is gone.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, send, sendmsg,
};

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// To the supervisor: the lock is proved until this instant of the boot clock.
    ProvedUntil(u64),
    /// To the supervisor: the lock is lost.
    Lost,
    /// To the supervisor: forward this signal to the command.
    Signal(i32),
    /// To the wrapper: the command runs, as leader of the group with this number.
    Started(i32),
    /// To the wrapper: the supervisor terminates the group, because the deadline is near or the lock was lost.
    Ending,
    /// To the supervisor: the command has the terminal.
    Foreground,
    /// To the wrapper: this signal stopped the command.
    Stopped(i32),
    /// To the wrapper: the command exited with this code. Its group is gone when the socket closes.
    Exited(i32),
    /// To the wrapper: this signal ended the command. Its group is gone when the socket closes.
    Killed(i32),
}

/// Length of one message in bytes: a letter and a 64-bit number.
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

/// Sends a message without blocking. The peer may be frozen, and a sender that waits for it would miss the deadline.
/// `false`: the socket's buffer is full, or the peer is gone. A peer that is gone also shows as end of file.
pub(crate) fn tell(link: &UnixStream, news: News) -> bool {
    #[cfg(target_os = "linux")]
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    #[cfg(not(target_os = "linux"))]
    let flags = SendFlags::DONTWAIT;
    send(link, &news.to_bytes(), flags).is_ok()
}

/// The result of a read that does not block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    News(News),
    /// No message is there yet.
    Nothing,
    /// The peer is gone.
    End,
}

/// Reads the next message without blocking. A message is sent in one write, so it is read as a whole.
pub(crate) fn hear(link: &UnixStream) -> Word {
    let mut bytes = [0; FRAME];
    let heard = loop {
        match recv(link, &mut bytes, RecvFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Word::Nothing,
            heard => break heard,
        }
    };
    match heard {
        Ok((FRAME, _)) => News::from_bytes(bytes).map_or(Word::End, Word::News),
        _ => Word::End,
    }
}

/// Sends the first message: the deadline, the command's standard input, and the pipe with the job description.
///
/// The socket is the supervisor's own standard input. This is the only way to pass a descriptor that needs no `unsafe`
/// on the other side and leaves no descriptor number behind that could leak into the command.
pub(crate) fn tell_first(
    link: &UnixStream,
    until: u64,
    fds: [BorrowedFd<'_>; 2],
) -> io::Result<()> {
    let bytes = News::ProvedUntil(until).to_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
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

/// Receives the first message.
pub(crate) fn hear_first(link: &UnixStream) -> io::Result<(u64, [OwnedFd; 2])> {
    let mut bytes = [0; FRAME];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
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
    let fds = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => Some([fds.next()?, fds.next()?]),
        _ => None,
    });
    match (News::from_bytes(bytes), fds) {
        (Some(News::ProvedUntil(until)), Some(fds)) => {
            #[cfg(not(target_os = "linux"))]
            for fd in &fds {
                rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC)?;
            }
            Ok((until, fds))
        }
        _ => Err(io::Error::other("not started by `tidelock run`")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

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
            assert!(tell(&here, news));
            assert_eq!(hear(&there), Word::News(news));
        }
        assert_eq!(hear(&there), Word::Nothing);
        drop(here);
        assert_eq!(hear(&there), Word::End);
    }

    #[test]
    fn descriptors_are_handed_over() {
        let (here, there) = UnixStream::pair().unwrap();
        let pipes = ["x", "y"].map(|text| {
            let (read, mut write) = io::pipe().unwrap();
            write.write_all(text.as_bytes()).unwrap();
            read
        });
        tell_first(&here, 7, [pipes[0].as_fd(), pipes[1].as_fd()]).unwrap();
        let (until, fds) = hear_first(&there).unwrap();
        let said = fds.map(|fd| {
            let mut text = String::new();
            let mut file = std::fs::File::from(fd);
            file.read_to_string(&mut text).unwrap();
            text
        });
        assert_eq!((until, said), (7, ["x".to_owned(), "y".to_owned()]));
    }

    #[test]
    fn a_peer_that_does_not_read_delays_nobody() {
        let (here, there) = UnixStream::pair().unwrap();
        let mut told = 0;
        while tell(&here, News::ProvedUntil(told)) {
            told += 1;
        }
        assert!(told > 0);
        for at in 0..told {
            assert_eq!(hear(&there), Word::News(News::ProvedUntil(at)));
        }
        assert!(tell(&here, News::Lost), "there is room again");
    }
}
