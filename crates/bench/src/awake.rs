//! Keeps the cores awake.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// One process for each core that spins at the lowest priority. With a single task a virtual machine's latency is set by
/// waking an idle core, not by code: the same program was measured at 150 µs without and 22 µs with such neighbours.
#[derive(Debug)]
pub(crate) struct Awake(Vec<Child>);

impl Awake {
    pub(crate) fn keep() -> Result<Self> {
        let cores = std::thread::available_parallelism()?.get();
        let mut spinners = Self(Vec::new());
        for _ in 0..cores {
            let spinner = Command::new("nice")
                .args(["-n", "19", "sh", "-c", "while :; do :; done"])
                .stdin(Stdio::null())
                .spawn()
                .context("starting a spinner with nice")?;
            spinners.0.push(spinner);
        }
        Ok(spinners)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for spinner in &mut self.0 {
            // It can only have gone already.
            let _ = spinner.kill();
            let _ = spinner.wait();
        }
    }
}
