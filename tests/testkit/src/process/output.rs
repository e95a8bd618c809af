//! Reads the output of a child on one thread, which can be asked whether it has read all of it.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// What the reading thread tells.
#[derive(Debug)]
pub(super) enum Heard {
    Line(String),
    /// The answer to a byte in the question pipe: at this moment nothing was left to read.
    Empty,
}

/// Starts the thread. Each byte that is written to the pipe is a question.
pub(super) fn read(
    pipes: impl Iterator<Item = OwnedFd>,
) -> io::Result<(PipeWriter, Receiver<Heard>)> {
    let (questions, ask) = io::pipe()?;
    let (tell, heard) = channel();
    let streams = pipes.map(Stream::new).collect();
    let forward = move || {
        // It fails if the process that reads has no use for more lines, and then nobody misses them.
        let _ = forward(streams, questions, &tell);
    };
    thread::Builder::new()
        .name("output".to_owned())
        .spawn(forward)?;
    Ok((ask, heard))
}

struct Stream {
    pipe: File,
    /// The beginning of a line whose end has not been read.
    begun: Vec<u8>,
}

impl Stream {
    fn new(pipe: OwnedFd) -> Self {
        Self {
            pipe: File::from(pipe),
            begun: Vec::new(),
        }
    }

    /// Reads once, and tells the lines. False: the stream has ended.
    fn read(&mut self, tell: &Sender<Heard>) -> io::Result<bool> {
        let mut buffer = [0; 8192];
        let read = self.pipe.read(&mut buffer)?;
        self.begun
            .extend_from_slice(buffer.get(..read).unwrap_or_default());
        let has_ended = read == 0;
        while let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.begun.drain(..=end).collect();
            say(&line, tell)?;
        }
        if has_ended && !self.begun.is_empty() {
            say(&std::mem::take(&mut self.begun), tell)?;
        }
        Ok(!has_ended)
    }
}

fn say(line: &[u8], tell: &Sender<Heard>) -> io::Result<()> {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches(['\r', '\n']).to_owned();
    tell.send(Heard::Line(text)).map_err(io::Error::other)
}

fn forward(
    mut streams: Vec<Stream>,
    questions: PipeReader,
    tell: &Sender<Heard>,
) -> io::Result<()> {
    let mut questions = Some(questions);
    while !streams.is_empty() {
        let mut polled: Vec<PollFd<'_>> = streams
            .iter()
            .map(|stream| PollFd::new(&stream.pipe, PollFlags::IN))
            .chain(
                questions
                    .iter()
                    .map(|pipe| PollFd::new(pipe, PollFlags::IN)),
            )
            .collect();
        match poll(&mut polled, None) {
            Err(Errno::INTR) => continue,
            polled => polled?,
        };
        let ready = polled.iter().map(|fd| !fd.revents().is_empty());
        let ready: Vec<bool> = ready.collect();
        let (of_streams, asked) = ready.split_at(streams.len());
        if of_streams.contains(&true) {
            let mut is_ready = of_streams.iter();
            let mut failed = Ok(());
            streams.retain_mut(|stream| {
                if !is_ready.next().is_some_and(|ready| *ready) {
                    return true;
                }
                stream.read(tell).unwrap_or_else(|error| {
                    failed = Err(error);
                    false
                })
            });
            failed?;
        } else if asked.contains(&true) {
            let Some(pipe) = &mut questions else { continue };
            if pipe.read(&mut [0])? == 0 {
                // Nobody asks any more. A grandchild may still write, and its pipe stays open as long as it does.
                questions = None;
            } else {
                tell.send(Heard::Empty).map_err(io::Error::other)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn all_lines_come_before_the_answer() {
        for round in 0..1000 {
            let (out, mut written) = io::pipe().unwrap();
            let (mut ask, heard) = read([OwnedFd::from(out)].into_iter()).unwrap();
            for line in ["first\n", "last\n"] {
                written.write_all(line.as_bytes()).unwrap();
            }
            ask.write_all(b"?").unwrap();
            // The pipe is still open, as if a grandchild had it.
            let lines: Vec<String> = heard
                .iter()
                .map_while(|heard| match heard {
                    Heard::Line(line) => Some(line),
                    Heard::Empty => None,
                })
                .collect();
            assert_eq!(lines, ["first", "last"], "round {round}");
        }
    }

    #[test]
    fn the_end_of_the_output_ends_the_thread_and_its_last_line_needs_no_line_feed() {
        let (out, mut written) = io::pipe().unwrap();
        let (ask, heard) = read([OwnedFd::from(out)].into_iter()).unwrap();
        written.write_all(b"one\r\ntwo").unwrap();
        // Nobody asks any more, and the output goes on.
        drop(ask);
        written.write_all(b"\nthree").unwrap();
        drop(written);
        let lines: Vec<String> = heard
            .iter()
            .map(|heard| match heard {
                Heard::Line(line) => line,
                Heard::Empty => "nobody has asked".to_owned(),
            })
            .collect();
        assert_eq!(lines, ["one", "two", "three"]);
    }
}
