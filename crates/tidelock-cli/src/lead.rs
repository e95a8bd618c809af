//! `tidelock leader` shows who leads an election; the arguments of `tidelock lead`.

use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use serde_json::{Value, json};
use tidelock::Escaped;
use tidelock::election::ElectedLeader;

use crate::args::{CommandArgs, StoreArgs};
use crate::covers::Shown;
use crate::exit::{Failure, Outcome, say};
use crate::inspect::{self, print_line, print_object, program_of, with_client};
use crate::once::time;
use crate::{interrupt, other_end};

#[derive(Debug, Args)]
pub(crate) struct LeadArgs {
    /// Name of the election, and of the lock that its leader holds
    pub(crate) name: String,
    /// How others see this candidate; default: host and process id
    #[arg(long, value_name = "TEXT")]
    pub(crate) identity: Option<String>,
    /// Candidates with a higher priority follow a leader first; it deposes nobody
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    pub(crate) priority: i32,
    /// Lead in the order in which the candidates began; all candidates must choose the same
    #[arg(long)]
    pub(crate) in_order: bool,
    #[command(flatten)]
    pub(crate) child: CommandArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LeaderArgs {
    /// Name of the election
    pub(crate) name: String,
    /// Print every change until interrupted
    #[arg(long)]
    pub(crate) watch: bool,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tidelock leader`.
pub(crate) async fn leader(args: &StoreArgs, what: LeaderArgs) -> Outcome {
    let store = Shown::of(args)?;
    with_client(args, async |client| {
        let election = client.election(&what.name);
        if !what.watch {
            let leader = election.leader().await?;
            print(&store, &what, leader.as_ref())?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut changes = election.observe();
        // One future for the whole loop: a new one in each round would miss a signal that comes in between.
        let mut interrupted = std::pin::pin!(interrupt::interrupted()?);
        // As for `watch`.
        let unread = other_end::gone(std::io::stdout()).map_err(Failure::internal)?;
        let mut unread = std::pin::pin!(unread);
        loop {
            let change = tokio::select! {
                change = changes.next() => change,
                _ = &mut interrupted => return Ok(ExitCode::SUCCESS),
                () = &mut unread => return Err(inspect::unread()),
            };
            match change {
                Some(Ok(leader)) => print(&store, &what, leader.as_ref())?,
                Some(Err(error)) if error.is_retryable() => say(&error),
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(ExitCode::SUCCESS),
            }
        }
    })
    .await
}

fn print(store: &Shown, what: &LeaderArgs, leader: Option<&ElectedLeader>) -> Outcome<()> {
    let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    if what.json {
        let mut object = json!({ "name": what.name, "leader": leader.map(as_json) });
        if what.watch {
            object["at"] = json!(at);
        }
        return print_object(store, object);
    }
    let text = leader.map_or_else(|| "nobody leads".to_owned(), as_text);
    let line = format!("{}: {text}", what.name);
    if what.watch {
        print_line(&Escaped(format_args!("{at} {line}")))
    } else {
        print_line(&Escaped(line))
    }
}

fn as_json(leader: &ElectedLeader) -> Value {
    let process = leader.process.as_ref();
    json!({
        "identity": leader.identity,
        "term": leader.term,
        "since": leader.since.map(time),
        "owner": leader.owner,
        "program": process.map(|it| &it.program),
        "user": process.and_then(|it| it.user.as_ref()),
        "host": process.map(|it| &it.host),
        "pid": process.map(|it| it.pid),
    })
}

/// A leader as text for people.
fn as_text(leader: &ElectedLeader) -> String {
    let process = leader.process.as_ref().map_or_else(
        || leader.owner.clone(),
        |it| format!("{}, pid {} on {}", program_of(it), it.pid, it.host),
    );
    let Some(identity) = &leader.identity else {
        return format!("no candidate leads: its lock is held by {process}");
    };
    let term = match (leader.term, leader.since) {
        (Some(term), Some(since)) => format!(" in term {term} since {}", time(since)),
        _ => " since a moment ago".to_owned(),
    };
    format!("{identity} leads{term} ({process})")
}
