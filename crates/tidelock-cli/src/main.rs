//! The `tidelock` command: parses the arguments, runs one subcommand, and maps errors to exit codes.

mod acquire;
mod args;
mod config;
mod covers;
mod demo;
mod exit;
mod hold;
mod inspect;
mod interrupt;
mod lead;
mod left_out;
mod once;
mod other_end;
mod pages;
mod release;
mod run;
mod secret;
mod settings;
mod shell;
mod store;
mod table;
mod token;
mod top;
mod unlock;
mod waiting;
mod watch;
mod web;
mod which;

use std::future::Future;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::args::{Cli, Command};
use crate::exit::{Failure, Outcome, say};

/// How long the exit waits for calls that block on a thread, such as the search for a host.
const BLOCKED: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(told) => return ExitCode::from(print_usage(&told)),
    };
    log_to_stderr(cli.store.verbose);
    let code = act(cli).unwrap_or_else(|failure| {
        say(&failure.message);
        ExitCode::from(failure.code)
    });
    exit::wait_until_said();
    #[cfg(unix)]
    exit::die_if_interrupted();
    code
}

/// Prints what is wrong with the arguments, or the help that they ask for. Returns the exit code.
fn print_usage(told: &clap::Error) -> u8 {
    // clap reads some of the variables itself, and does not say which one is not UTF-8.
    if told.kind() == clap::error::ErrorKind::InvalidUtf8
        && let Err(failure) = settings::check_texts()
    {
        let _ = writeln!(std::io::stderr(), "tidelock: {}", failure.message);
        return failure.code;
    }
    // We ignore a failed write: a closed stdout must not change the exit code.
    let _ = match told.render().to_string().strip_prefix("error: ") {
        // Every message begins with the name of the program, so that a log of several programs can be read.
        Some(message) => write!(std::io::stderr(), "tidelock: {message}"),
        None => told.print(),
    };
    if told.use_stderr() { exit::USAGE } else { 0 }
}

fn act(cli: Cli) -> Outcome {
    let mut store = cli.store;
    if cli.command.reads_settings() {
        settings::complete(&mut store)?;
        store::read_password_of_pipe(&mut store)?;
        // A job is told to a reader only. Otherwise cron would send a mail for each run of a job whose name just begins so.
        if !cli.command.acquires() || covers::is_watched(&store) {
            store::tell_of_second_prefix(&store, &cli.command.names());
        }
    }
    match cli.command {
        Command::Run(args) => run::run(&store, args.wait, &args.job),
        Command::Try(args) => run::run(&store, Some(Duration::ZERO), &args.job),
        Command::Once(args) => run::once(&store, &args),
        Command::Lead(args) => run::lead(&store, &args),
        Command::Leader(args) => block_on(lead::leader(&store, args)),
        Command::History(args) => block_on(once::history(&store, args)),
        Command::Hold(args) => hold::hold(&store, args),
        Command::Show(args) => block_on(inspect::show(&store, args)),
        Command::Ls(args) => block_on(inspect::ls(&store, args)),
        Command::Watch(args) => block_on(watch::watch(&store, args)),
        Command::Top(args) => block_on(top::top(&store, args)),
        Command::Web(args) => block_on(web::web(&store, args)),
        Command::Token(args) => block_on(token::token(&store, args)),
        Command::Unlock(args) => block_on(unlock::unlock(&store, args)),
        Command::Doctor(args) => block_on(inspect::doctor(&store, args)),
        Command::Config(args) => block_on(async { config::config(&store, &args) }),
        Command::Demo(args) => block_on(demo::demo(&store, args)),
        Command::Completions(args) => pages::completions(args.shell),
        Command::Man(args) => pages::man(args.command.as_deref()),
        Command::Supervise => run::supervise(),
        Command::Exec(args) => run::exec(args),
        Command::Seller(args) => block_on(demo::seller::sell(&store, args)),
        Command::Pages(args) => pages::write(&args.folder),
    }
}

pub(crate) fn block_on<T>(work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::internal)?;
    let outcome = runtime.block_on(work);
    // A runtime that is dropped waits for such calls without a limit: a name server that does not answer would hold up
    // the exit for half a minute.
    runtime.shutdown_timeout(BLOCKED);
    outcome
}

/// The log of the library, and of nothing else: drivers log what does not help a user.
fn log_to_stderr(verbose: u8) {
    let at_least = |times| {
        if verbose >= times {
            LevelFilter::DEBUG
        } else {
            // Warnings of the library address its users. The command prints the relevant messages itself.
            // The command reports a loss itself. With the library's error line each loss would be told twice.
            LevelFilter::OFF
        }
    };
    let targets = Targets::new()
        .with_target("tidelock", at_least(1))
        .with_target("tidelock::requests", at_least(2));
    let lines = tracing_subscriber::fmt::layer()
        .with_target(false)
        // Shows how long the steps take. The date would fill the line and help less.
        .with_timer(tracing_subscriber::fmt::time::uptime())
        .with_ansi(false)
        .with_writer(|| exit::Log)
        .with_filter(targets);
    tracing_subscriber::registry().with(lines).init();
}
