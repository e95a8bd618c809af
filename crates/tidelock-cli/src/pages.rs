//! Man pages and shell completions, generated from the arguments.

use std::path::Path;

use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::{Failure, Outcome};

/// Writes a man page for each subcommand and completions for each shell into a folder.
pub(crate) fn write(folder: &Path) -> Outcome {
    let failed = |error| Failure::internal(format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(public(), folder).map_err(failed)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut public(), "tidelock", folder).map_err(failed)?;
    }
    Ok(std::process::ExitCode::SUCCESS)
}

/// The command without its hidden subcommands, which some generators would list.
fn public() -> clap::Command {
    let whole = Cli::command();
    let shown: Vec<_> = whole
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set())
        .cloned()
        .collect();
    // clap can add subcommands but not remove them, so we build a new command with the visible ones.
    let mut command = clap::Command::new("tidelock")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .args(whole.get_arguments().cloned())
        .subcommands(shown)
        .subcommand_required(true);
    if let Some(about) = whole.get_about() {
        command = command.about(about.clone());
    }
    if let Some(about) = whole.get_long_about() {
        command = command.long_about(about.clone());
    }
    command
}
