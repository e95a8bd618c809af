//! Runs a program beside a fresh server, with its URL in `DATABASE_URL`:
//! `cargo run -p testkit --example with_server -- postgres PROGRAM`.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use testkit::servers::{MariaDb, PostgresServer};

fn main() -> Result<ExitCode> {
    let mut args = std::env::args().skip(1);
    let store = args.next().unwrap_or_default();
    let program = args.next();
    let program = program.context("write: with_server postgres|mysql PROGRAM [ARGUMENTS]")?;
    let run = |url: String| {
        let mut command = Command::new(&program);
        command.args(args).env("DATABASE_URL", url).status()
    };
    // The server ends with the value that started it.
    let status = match &*store {
        "postgres" => {
            let server = PostgresServer::start()?;
            run(server.url())
        }
        "mysql" => {
            let server = MariaDb::start()?;
            run(server.url())
        }
        other => bail!("no server of this name: {other}; there are postgres and mysql"),
    };
    let status = status.with_context(|| format!("starting {program}"))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
