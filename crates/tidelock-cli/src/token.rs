//! The command `token`: shows and raises the fencing tokens of a lock.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use tidelock::{Escaped, FencingToken};

use crate::args::StoreArgs;
use crate::covers::{self, Shown};
use crate::exit::Outcome;
use crate::inspect::{print_line, print_object, with};
use crate::store;

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// Name of the lock
    pub(crate) name: String,
    /// Give the next holders tokens of at least this number; never lowers them, and may be repeated
    #[arg(long, value_name = "N")]
    pub(crate) at_least: Option<u64>,
    /// Print a JSON object: newest or next
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tidelock token`.
pub(crate) async fn token(args: &StoreArgs, what: TokenArgs) -> Outcome {
    let shown = Shown::of(args)?;
    // Raising is the first step of a move, so it may create the new store.
    let client = match what.at_least {
        None => store::connect_to_look(args).await?,
        Some(_) => store::connect_silently(args).await?,
    };
    covers::tell_if_asked(args)?;
    with(&client, async |client| {
        let lock = client.lock(&what.name).fenced();
        let name = lock.name();
        let (key, number, words) = match what.at_least {
            None => (
                "newest",
                lock.newest_token().await?,
                "no token yet".to_owned(),
            ),
            Some(number) => {
                if args.verbose == 0 {
                    covers::tell(args)?; // with -v everybody is told
                }
                let next = lock.raise_token(FencingToken::new(number)).await?;
                ("next", Some(next), String::new())
            }
        };
        if what.json {
            let number = number.map(FencingToken::get);
            print_object(&shown, json!({ "name": name, key: number }))?;
        } else {
            let words = number.map_or(words, |number| format!("{key} token {number}"));
            print_line(&format!("{}: {words}", Escaped(name)))?;
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}
