//! The job description that the wrapper sends to the supervisor. It goes through a pipe and not over the command line:
//! `pkill -f` matches every word of a command line, so the words of the command could get the supervisor killed.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

/// The command, and how it is terminated.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    /// Name of the lock.
    pub(crate) name: String,
    pub(crate) grace_ms: u64,
    /// `--on-lost warn`: a lost lock is reported, and the command runs on.
    pub(crate) merciful: bool,
    /// The command becomes the terminal's foreground group.
    pub(crate) terminal: bool,
    pub(crate) command: Vec<OsString>,
}

impl Orders {
    /// Returns the read end of the pipe. A thread writes to it: a command line may be longer than the pipe's buffer,
    /// and a supervisor that does not read must not block this process.
    pub(crate) fn send(self) -> io::Result<OwnedFd> {
        let (reader, writer) = io::pipe()?;
        std::thread::Builder::new()
            .name("orders".to_owned())
            .spawn(move || {
                let mut writer = BufWriter::new(writer);
                // A failure means that the supervisor is gone, which also shows as end of file on its socket.
                let _ = serde_json::to_writer(&mut writer, &self);
                let _ = writer.flush();
            })?;
        Ok(reader.into())
    }

    /// Reads the job description until end of file.
    pub(crate) fn read(from: OwnedFd) -> io::Result<Self> {
        Ok(serde_json::from_reader(BufReader::new(File::from(from)))?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn orders_arrive_as_they_were_sent() {
        let long = "x".repeat(1 << 18);
        let orders = Orders {
            name: "a\nb".to_owned(),
            grace_ms: u64::MAX,
            merciful: true,
            terminal: false,
            command: vec![OsString::from_vec(vec![b'\xff', b'"']), long.into()],
        };
        let command = orders.command.clone();
        let read = Orders::read(orders.send().unwrap()).unwrap();
        assert_eq!((read.name.as_str(), read.grace_ms), ("a\nb", u64::MAX));
        assert!(read.merciful && !read.terminal);
        assert_eq!(read.command, command);
    }
}
