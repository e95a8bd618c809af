//! The shared file that only the lock holder may write.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

const INSIDE: u64 = 0;
const COUNTER: u64 = 8;
const TOKEN: u64 = 16;

/// A file of three little-endian 64-bit numbers, shared by Java and Rust processes: the id of the process inside (0:
/// none), a counter, and the last fencing token. Each hold reads the counter, adds one and writes it, so overlapping
/// holds lose updates.
#[derive(Debug)]
pub struct WordFile(File);

impl WordFile {
    /// Makes a new file of zeros.
    ///
    /// # Errors
    /// Fails when the file cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        std::fs::write(path, [0; 24])?;
        Self::open(path)
    }

    /// Opens a file made by [`create`](Self::create).
    ///
    /// # Errors
    /// Fails when the file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().read(true).write(true).open(path)?))
    }

    /// Enters as `me` (not 0). Returns whether nobody was inside, and the counter for [`leave`](Self::leave).
    ///
    /// # Errors
    /// Fails when the file cannot be read or written.
    pub fn enter(&self, me: u64) -> io::Result<(bool, u64)> {
        let alone = self.get(INSIDE)? == 0;
        self.put(INSIDE, me)?;
        Ok((alone, self.get(COUNTER)?))
    }

    /// Leaves. Returns whether nobody else entered in the meantime.
    ///
    /// # Errors
    /// Fails when the file cannot be read or written.
    pub fn leave(&self, me: u64, counter: u64) -> io::Result<bool> {
        self.put(COUNTER, counter + 1)?;
        let alone = self.get(INSIDE)? == me;
        self.put(INSIDE, 0)?;
        Ok(alone)
    }

    /// Enters as a reader. Returns whether no writer was inside, and the counter for
    /// [`leave_reading`](Self::leave_reading).
    ///
    /// # Errors
    /// Fails when the file cannot be read.
    pub fn enter_reading(&self) -> io::Result<(bool, u64)> {
        Ok((self.get(INSIDE)? == 0, self.get(COUNTER)?))
    }

    /// Leaves as a reader. Returns whether no writer entered in the meantime.
    ///
    /// # Errors
    /// Fails when the file cannot be read.
    pub fn leave_reading(&self, counter: u64) -> io::Result<bool> {
        Ok(self.get(INSIDE)? == 0 && self.get(COUNTER)? == counter)
    }

    /// Whether that token is above the last one in the file.
    ///
    /// # Errors
    /// Fails when the file cannot be read.
    pub fn is_newer(&self, token: u64) -> io::Result<bool> {
        Ok(token > self.get(TOKEN)?)
    }

    /// Writes a holder's token. Returns whether it is above the last one.
    ///
    /// # Errors
    /// Fails when the file cannot be read or written.
    pub fn note_token(&self, token: u64) -> io::Result<bool> {
        let grew = token > self.get(TOKEN)?;
        self.put(TOKEN, token)?;
        Ok(grew)
    }

    /// The number of holds, if none overlapped.
    ///
    /// # Errors
    /// Fails when the file cannot be read.
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
