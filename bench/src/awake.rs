//! Keeps the cores awake while a latency is measured.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// One process per core that spins at the lowest priority. With a single task, a virtual machine's latency depends on
/// how fast an idle core wakes, not on the code: the same program measured 150 µs without the spinners and 22 µs with
/// them.
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
            // These fail only if the spinner has already exited.
            let _ = spinner.kill();
            let _ = spinner.wait();
        }
    }
}
