//! Describes the machine and the server of a measurement.

use std::fmt::Write as _;
use std::process::Command;

use anyhow::Result;

/// Rows of (label, value).
///
/// # Errors
/// Fails if the machine does not say how many cores it has.
pub(crate) fn describe(servers: String) -> Result<Vec<(&'static str, String)>> {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism()?;
    Ok(vec![
        ("machine", format!("{cores} cores, {model}")),
        ("kernel", said("uname", &["-sr"])),
        ("server", servers),
        ("compiler", said("rustc", &["--version"])),
        ("commit", said("git", &["describe", "--always", "--dirty"])),
        ("date", said("date", &["-u", "+%F"])),
    ])
}

/// The same as the last table of a page.
pub(crate) fn table(rows: &[(&'static str, String)]) -> String {
    let mut table = String::from("\n\n| measured on | |\n| --- | --- |\n");
    for (what, is) in rows {
        // Writing to a string does not fail.
        let _ = writeln!(table, "| {what} | {is} |");
    }
    table
}

fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .current_dir(testkit::workspace())
        .output();
    output.map_or_else(
        |_| "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
