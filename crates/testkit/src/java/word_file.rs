//! The shared word that only a holder may touch.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

const INSIDE: u64 = 0;
const COUNTER: u64 = 8;
const TOKEN: u64 = 16;

/// A file of three little-endian 64-bit numbers, shared by Java and Rust processes: who is inside (0 = nobody), a
/// counter raised by read-add-write so that overlaps lose updates, and the last fencing token.
#[derive(Debug)]
pub struct WordFile(File);

impl WordFile {
    /// Makes a new file of zeros.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        std::fs::write(path, [0; 24])?;
        Self::open(path)
    }

    /// Opens a file made by [`create`](Self::create).
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().read(true).write(true).open(path)?))
    }

    /// Steps in as `me` (not 0): whether nobody was there. Returns the counter to hand to [`leave`](Self::leave).
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn enter(&self, me: u64) -> io::Result<(bool, u64)> {
        let alone = self.get(INSIDE)? == 0;
        self.put(INSIDE, me)?;
        Ok((alone, self.get(COUNTER)?))
    }

    /// Steps out: whether nobody came in meanwhile.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn leave(&self, me: u64, counter: u64) -> io::Result<bool> {
        self.put(COUNTER, counter + 1)?;
        let alone = self.get(INSIDE)? == me;
        self.put(INSIDE, 0)?;
        Ok(alone)
    }

    /// Steps in to read: whether no writer was there. Returns the counter to hand to [`leave_reading`](Self::leave_reading).
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn enter_reading(&self) -> io::Result<(bool, u64)> {
        Ok((self.get(INSIDE)? == 0, self.get(COUNTER)?))
    }

    /// Steps out: whether no writer came in meanwhile.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn leave_reading(&self, counter: u64) -> io::Result<bool> {
        Ok(self.get(INSIDE)? == 0 && self.get(COUNTER)? == counter)
    }

    /// Whether that token is above the last one that was noted.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn is_newer(&self, token: u64) -> io::Result<bool> {
        Ok(token > self.get(TOKEN)?)
    }

    /// Notes a holder's token: whether it is above the last one.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn note_token(&self, token: u64) -> io::Result<bool> {
        let grew = token > self.get(TOKEN)?;
        self.put(TOKEN, token)?;
        Ok(grew)
    }

    /// How many holds there were, if none overlapped.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn counter(&self) -> io::Result<u64> {
        self.get(COUNTER)
    }

    fn get(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn put(&self, at: u64, value: u64) -> io::Result<()> {
        self.0.write_all_at(&value.to_le_bytes(), at)
    }
}
