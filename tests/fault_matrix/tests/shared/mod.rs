//! Helpers of the tests of partitions and of storms.

use std::fs;
use std::process::Output;

use anyhow::Result;

/// All that a run said.
pub(crate) fn told(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout);
    format!("{said}{}", String::from_utf8_lossy(&output.stderr))
}

/// Removes the histories that a red run has kept. The test that wants it to be red calls this last, so that they stay
/// if the test fails.
pub(crate) fn remove_histories(told: &str) -> Result<()> {
    let lines = told.lines().map(str::trim_start);
    let kept: Vec<&str> = lines
        .filter_map(|line| line.strip_prefix("histories: "))
        .collect();
    assert!(!kept.is_empty(), "no histories were kept: {told}");
    kept.into_iter().try_for_each(fs::remove_dir_all)?;
    Ok(())
}
