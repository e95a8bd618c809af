//! The resource of a fleet of processes: a file, to which each appends what it does.

use std::fs::File;
use std::io::{Result, Write as _};

/// Appends a line in one write, so that the lines of several processes do not mix.
pub fn append(mut resource: &File, line: &str) -> Result<()> {
    resource.write_all(format!("{line}\n").as_bytes())
}
