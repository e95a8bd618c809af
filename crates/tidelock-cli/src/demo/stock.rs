//! The stock: a plain file that sellers read and write back after some work, as a careless service does.
//!
//! With tokens it acts as a fenced resource: under a short file lock it records the highest token that has read or
//! written it, and refuses a lower one.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// The stock file. Its content has a fixed width, so that one write replaces it and no reader sees half a number.
#[derive(Debug)]
pub(crate) struct Stock(File);

const WIDTH: usize = 20;

/// The content of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) pieces: u64,
    /// The highest token that has read or written the stock. Zero: none.
    pub(crate) token: u64,
}

/// The result of an operation with a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checked<T> {
    Done(T),
    /// A higher token has used the stock already.
    Refused,
}

impl Stock {
    /// A new stock.
    pub(crate) fn create(path: &Path, pieces: u64) -> io::Result<()> {
        let mut file = File::create(path)?;
        put(&mut file, Content { pieces, token: 0 })
    }

    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map(Self)
    }

    /// The number of pieces left, as the last writer left it.
    pub(crate) fn read(&mut self) -> io::Result<u64> {
        Ok(get(&mut self.0)?.pieces)
    }

    /// Writes the number of pieces without any check. This is the lost-update bug that the demo shows.
    pub(crate) fn write(&mut self, pieces: u64) -> io::Result<()> {
        put(&mut self.0, Content { pieces, token: 0 })
    }

    /// Reads with a token.
    pub(crate) fn read_as(&mut self, token: u64) -> io::Result<Checked<u64>> {
        self.checked(token, |content| content)
            .map(|checked| match checked {
                Checked::Done(content) => Checked::Done(content.pieces),
                Checked::Refused => Checked::Refused,
            })
    }

    /// Writes with a token.
    pub(crate) fn write_as(&mut self, token: u64, pieces: u64) -> io::Result<Checked<()>> {
        self.checked(token, |content| Content { pieces, ..content })
            .map(|checked| match checked {
                Checked::Done(_) => Checked::Done(()),
                Checked::Refused => Checked::Refused,
            })
    }

    fn checked(
        &mut self,
        token: u64,
        change: impl FnOnce(Content) -> Content,
    ) -> io::Result<Checked<Content>> {
        // The operating system releases the file lock when the file is closed, even if the process is killed.
        self.0.lock()?;
        let result = self.check(token, change);
        self.0.unlock()?;
        result
    }

    fn check(
        &mut self,
        token: u64,
        change: impl FnOnce(Content) -> Content,
    ) -> io::Result<Checked<Content>> {
        let content = get(&mut self.0)?;
        if token < content.token {
            return Ok(Checked::Refused);
        }
        let new = change(Content { token, ..content });
        put(&mut self.0, new)?;
        Ok(Checked::Done(new))
    }
}

fn get(file: &mut File) -> io::Result<Content> {
    let mut text = [0; 2 * WIDTH + 2];
    file.seek(SeekFrom::Start(0))?;
    file.read_exact(&mut text)?;
    let text = std::str::from_utf8(&text).map_err(io::Error::other)?;
    let mut numbers = text
        .split_whitespace()
        .map(|word| word.parse().map_err(io::Error::other));
    let mut next = || {
        numbers
            .next()
            .unwrap_or_else(|| Err(io::Error::other("the stock file is cut short")))
    };
    Ok(Content {
        pieces: next()?,
        token: next()?,
    })
}

fn put(file: &mut File, content: Content) -> io::Result<()> {
    let text = format!("{:>WIDTH$} {:>WIDTH$}\n", content.pieces, content.token);
    file.seek(SeekFrom::Start(0))?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_token_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stock");
        Stock::create(&path, 5).unwrap();
        let mut early = Stock::open(&path).unwrap();
        let mut late = Stock::open(&path).unwrap();
        assert_eq!(early.read_as(1).unwrap(), Checked::Done(5));
        assert_eq!(late.read_as(2).unwrap(), Checked::Done(5));
        assert_eq!(early.write_as(1, 4).unwrap(), Checked::Refused);
        assert_eq!(late.write_as(2, 4).unwrap(), Checked::Done(()));
        assert_eq!(late.read().unwrap(), 4);
    }
}
