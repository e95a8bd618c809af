//! `tidelock once` runs a command once per slot; `tidelock history` shows what the last slots did.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::{Value, json};
use tidelock::once::{Mark, MarkState, OnceJob, Retry, Slot};
use tidelock::{Client, Escaped};

use crate::args::{CommandArgs, StoreArgs, duration};
use crate::covers::{self, Shown};
use crate::exit::{self, Outcome, say};
use crate::inspect::{print_line, print_object, program_of, with};
use crate::{store, table};

/// Exit code if the slot has had all its attempts, and none has succeeded.
const EXHAUSTED: u8 = 1;

/// What makes up a slot: exactly one of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false, id = "slot_rule")]
pub(crate) struct SlotArgs {
    /// One run in each period of this length, by the store's clock
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) every: Option<Duration>,
    /// One run for each time of this crontab line, by the store's clock
    #[arg(long, value_name = "LINE")]
    pub(crate) cron: Option<String>,
    /// One run for this text, for as long as --keep, 7 days by default: a file, a date, a version
    #[arg(long, value_name = "TEXT")]
    pub(crate) slot: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct OnceArgs {
    /// Name of the job, and of the lock that it holds while it runs
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) rule: SlotArgs,
    /// Time zone of --cron, such as Europe/Berlin. The same on all machines; otherwise they disagree about the slots
    #[arg(long, value_name = "ZONE", default_value = "UTC", requires = "cron")]
    pub(crate) tz: String,
    /// Terminate the command after this time, and count it as failed
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) max_run: Option<Duration>,
    /// How many times a later call may run the command again in the same slot, after it has failed or its machine died
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) retries: u32,
    /// Wait this long for a run on another machine to end, and take over if that machine dies; default: do not wait
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// Remember each slot for this time after its run; then the same --slot is run again. It must be longer than --every and
    /// than a run
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = duration)]
    pub(crate) keep: Duration,
    /// Exit code when this call ran nothing, instead of 0, 1 or 75
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) conflict_exit_code: Option<u8>,
    #[command(flatten)]
    pub(crate) child: CommandArgs,
}

impl OnceArgs {
    /// The job that the arguments describe.
    #[cfg_attr(windows, allow(dead_code))]
    pub(crate) fn job(&self, client: &Client) -> OnceJob {
        let SlotArgs { every, cron, slot } = &self.rule;
        let slot = match (every, cron, slot) {
            (Some(every), ..) => Slot::every(*every),
            (_, Some(cron), _) => Slot::cron(cron, &self.tz),
            (.., slot) => Slot::id(slot.as_deref().unwrap_or_default()),
        };
        let mut job = client
            .once(&self.name)
            .slot(slot)
            .if_crashed(match self.retries {
                0 => Retry::Never,
                more => Retry::InSlot(more),
            })
            .keep(self.keep);
        if let Some(limit) = self.max_run {
            job = job.max_run(limit);
        }
        if let Some(limit) = self.wait {
            job = job.wait(limit);
        }
        job
    }

    /// The call ran nothing, which has this exit code unless the user has chosen another one. A call that ends with 0 says why
    /// only to a reader. Otherwise cron would send a mail from each machine that came second, or, with `-E 0`, for each call in a
    /// slot that has had all its attempts.
    #[cfg_attr(windows, allow(dead_code))]
    pub(crate) fn ran_nothing(&self, store: &StoreArgs, code: u8, why: &str) -> ExitCode {
        let code = self.conflict_exit_code.unwrap_or(code);
        if code != 0 || covers::is_watched(store) {
            say(format!("{}: not run: {why}", self.name));
        }
        ExitCode::from(code)
    }

    /// The exit code of a call that found the lock of the job held. A caller that waits needs the run to have ended.
    #[cfg_attr(windows, allow(dead_code))]
    pub(crate) fn code_of_running(&self) -> u8 {
        match self.wait {
            Some(_) => exit::NOT_ACQUIRED,
            None => 0,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Name of the job
    pub(crate) name: String,
    /// Maximum number of slots to print
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub(crate) most: u32,
    /// One JSON object per slot
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tidelock history`.
pub(crate) async fn history(args: &StoreArgs, what: HistoryArgs) -> Outcome {
    let shown = Shown::of(args)?;
    let client = store::connect_to_look(args).await?;
    covers::tell_if_asked(args)?;
    with(&client, async |client| {
        let marks = client.once(&what.name).history(what.most).await?;
        if what.json {
            for mark in &marks {
                print_object(&shown, as_json(mark))?;
            }
        } else if table::is_wanted() && !marks.is_empty() {
            print_line(&table::of_marks(&marks))?;
        } else {
            for mark in &marks {
                print_line(&Escaped(as_text(mark)))?;
            }
        }
        if marks.is_empty() && !what.json {
            say(format!("{}: no slot has been run", what.name));
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

fn as_json(mark: &Mark) -> Value {
    json!({
        "slot": mark.slot,
        "state": mark.state.as_str(),
        "attempt": mark.attempt,
        "token": mark.token.get(),
        "owner": mark.owner,
        "program": mark.process.program,
        "user": mark.process.user,
        "host": mark.process.host,
        "pid": mark.process.pid,
        "started": time(mark.started),
        "ended": mark.ended.map(time),
        "error": mark.error,
    })
}

/// A mark as one line for people.
pub(crate) fn as_text(mark: &Mark) -> String {
    let (state, process) = (mark.state.as_str(), &mark.process);
    let ended = match mark.ended {
        Some(ended) => format!(", took {}", took(mark.started, ended)),
        None => String::new(),
    };
    let again = match mark.attempt {
        1 => String::new(),
        attempt => format!(", attempt {attempt}"),
    };
    let error = mark.error.as_ref();
    let error = error.map(|error| format!(": {error}")).unwrap_or_default();
    format!(
        "{}: {state} by {} (pid {} on {}) at {}{ended}{again}, token {}{error}",
        mark.slot,
        program_of(process),
        process.pid,
        process.host,
        time(mark.started),
        mark.token
    )
}

pub(crate) fn time(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string()
}

pub(crate) fn took(from: SystemTime, to: SystemTime) -> String {
    let took = to.duration_since(from).unwrap_or_default();
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    humantime::format_duration(Duration::from_millis(millis)).to_string()
}

/// Why a slot with this mark is not run again, and the exit code of the call.
#[cfg_attr(windows, allow(dead_code))]
pub(crate) fn why_done(mark: &Mark) -> (u8, String) {
    if mark.state == MarkState::Done {
        return (0, format!("the slot {}", as_text(mark)));
    }
    let why = format!("no attempt is left in the slot {}", as_text(mark));
    (EXHAUSTED, why)
}
