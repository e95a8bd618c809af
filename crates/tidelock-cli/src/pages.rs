//! Man pages and shell completions, generated from the arguments.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use crate::exit::{Failure, Outcome};

/// What every page ends with.
const ENVIRONMENT: [(&str, &str); 15] = [
    ("TIDELOCK_STORE", "The URL of the store, as --store."),
    (
        "TIDELOCK_CONFIG",
        "A configuration file instead of the ones below, as --config.",
    ),
    ("TIDELOCK_USER", "The user name for the store, as --user."),
    (
        "TIDELOCK_PASSWORD",
        "The password for the store. The command that `run` starts does not see it.",
    ),
    (
        "TIDELOCK_PASSWORD_FILE",
        "A file that contains the password, as --password-file.",
    ),
    (
        "TIDELOCK_PREFIX",
        "The prefix of every lock name, as --prefix.",
    ),
    (
        "TIDELOCK_LEASE_MS",
        "The lease in milliseconds; --lease wins.",
    ),
    (
        "TIDELOCK_RESPONSE_TIMEOUT_MS",
        "How long a request to the store may take, in milliseconds.",
    ),
    (
        "TIDELOCK_ACKNOWLEDGE",
        "How many replicas must acknowledge a lock: off, any, majority or all.",
    ),
    (
        "TIDELOCK_ACKNOWLEDGE_MS",
        "How long to wait for the replicas, in milliseconds.",
    ),
    (
        "TIDELOCK_TLS_CA",
        "Trusted certificate authorities, as --tls-ca.",
    ),
    (
        "TIDELOCK_TLS_CERT, TIDELOCK_TLS_KEY",
        "The client's certificate and its key, as --tls-cert and --tls-key.",
    ),
    (
        "TIDELOCK_NAME, TIDELOCK_OWNER, TIDELOCK_TOKEN",
        "Set for the command that `run`, `try`, `once` and `lead` start: the lock, its owner, and the fencing token; `run` and `try` set the token with --fenced only.",
    ),
    (
        "TIDELOCK_SLOT, TIDELOCK_ATTEMPT",
        "Set for the command that `once` starts: the slot, and how many times it has been run in this slot, this run included.",
    ),
    (
        "TIDELOCK_TERM",
        "Set for the command that `lead` starts: the term, the same number as TIDELOCK_TOKEN.",
    ),
];

const FILES: [(&str, &str); 3] = [
    (
        "~/.config/tidelock.toml, /etc/tidelock.toml",
        "Settings of a user and of a machine: store, lease, prefix, user, password-file, tls-ca, tls-cert and tls-key, \
         each with a text in quotes. A flag or a variable wins, then the file of the user. The login of a file is used \
         for the store that the files name, and for no other.",
    ),
    (
        "~/.local/state/tidelock/locks.db",
        "The default store: locks of one user on one machine.",
    ),
    (
        "/var/lib/tidelock/locks.db",
        "The store `sqlite:machine`: locks of a group of users on one machine.",
    ),
];

const EXAMPLES: [(&str, &str); 5] = [
    (
        "tidelock run nightly-report --wait 10s -- ./report.sh",
        "Run a report on one machine at a time.",
    ),
    (
        "tidelock try backup -- ./backup.sh",
        "Skip the run if another one is going on.",
    ),
    (
        "tidelock hold deploy --wait 5m < fifo",
        "Hold a lock from a script, until the script closes the pipe.",
    ),
    (
        "tidelock show nightly-report",
        "Who holds it, since when, and how many wait.",
    ),
    ("tidelock doctor", "Can this store keep its promises?"),
];

/// Writes a man page for each subcommand and completions for each shell into a folder.
pub(crate) fn write(folder: &Path) -> Outcome {
    let failed = |error| Failure::internal(format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let pages = all();
    for page in std::iter::once(&pages).chain(subcommands(&pages)) {
        let name = page.get_display_name().unwrap_or("tidelock");
        let file = folder.join(format!("{name}.1"));
        std::fs::write(file, rendered(page).map_err(failed)?).map_err(failed)?;
    }
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut public(), "tidelock", folder).map_err(failed)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `tidelock completions`.
pub(crate) fn completions(shell: Shell) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut public(), "tidelock", &mut text);
    print(&text)
}

/// `tidelock man`.
pub(crate) fn man(subcommand: Option<&str>) -> Outcome {
    let pages = all();
    let page = match subcommand {
        None => &pages,
        Some(name) => subcommands(&pages)
            .find(|page| page.get_name() == name)
            .ok_or_else(|| {
                let known: Vec<_> = subcommands(&pages).map(clap::Command::get_name).collect();
                Failure::usage(format!(
                    "no man page for {name}; there are: {}",
                    known.join(", ")
                ))
            })?,
    };
    print(&rendered(page).map_err(Failure::internal)?)
}

fn print(text: &[u8]) -> Outcome {
    match io::stdout().lock().write_all(text) {
        // `| head` has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Failure::internal(error)),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

/// The command with its subcommands, each with its full name.
fn all() -> clap::Command {
    let mut command = public().disable_help_subcommand(true);
    command.build();
    command
}

fn subcommands(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set())
}

fn rendered(command: &clap::Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    for (title, entries) in [
        ("ENVIRONMENT", &ENVIRONMENT[..]),
        ("FILES", &FILES[..]),
        ("EXAMPLES", &EXAMPLES[..]),
    ] {
        writeln!(page, ".SH {title}")?;
        for (name, meaning) in entries {
            writeln!(page, ".TP\n\\fB{}\\fR\n{}", roff(name), roff(meaning))?;
        }
    }
    Ok(page)
}

/// Text for roff: a hyphen that can be copied, and no request at the beginning of a line.
fn roff(text: &str) -> String {
    text.replace('\\', r"\e")
        .replace('-', r"\-")
        .replace('\'', r"\(aq")
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
