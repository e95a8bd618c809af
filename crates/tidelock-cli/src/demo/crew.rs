//! The selling processes, as the demo controls them.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::act::Stage;
use super::seller::Word;
use crate::args::Manner;
use crate::exit::{Failure, Outcome};
use crate::store;

/// One selling process. Dropping this value kills the process, frozen or not.
pub(crate) struct Seller {
    child: Child,
    orders: ChildStdin,
    words: Lines<BufReader<ChildStdout>>,
}

impl Seller {
    pub(crate) fn start(stage: &Stage<'_>, manner: Manner, name: &str) -> Outcome<Self> {
        let failed = |error| Failure::internal(format!("demo: cannot start a seller: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        store::hand_down(stage.store, &mut command)?;
        let manner = clap::ValueEnum::to_possible_value(&manner)
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default();
        let mut child = command
            .args(["__seller", "--manner", &manner, "--lock", name])
            .args(["--workers", &stage.what.workers.to_string()])
            .arg("--file")
            .arg(stage.file())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(orders), Some(words)) => Ok(Self {
                child,
                orders,
                words: BufReader::new(words).lines(),
            }),
            _ => Err(Failure::internal("demo: a seller without pipes")),
        }
    }

    /// Reads the seller's next message. If the process exits before it is done, returns an error with its exit code.
    pub(crate) async fn hear(&mut self) -> Outcome<Word> {
        let line = self.words.next_line().await.map_err(Failure::internal)?;
        if let Some(line) = line {
            return serde_json::from_str(&line).map_err(Failure::internal);
        }
        let status = self.child.wait().await.map_err(Failure::internal)?;
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        Err(Failure::new(
            code.filter(|code| *code != 0)
                .unwrap_or(crate::exit::INTERNAL),
            format!("demo: a seller ended early: {status}"),
        ))
    }

    pub(crate) async fn tell_to_go(&mut self) -> Outcome<()> {
        let told = self.orders.write_all(b"go\n").await;
        told.map_err(|error| Failure::internal(format!("demo: a seller has exited: {error}")))
    }

    /// Continues a seller that has frozen itself.
    #[cfg(unix)]
    pub(crate) fn thaw(&self) -> Outcome<()> {
        use rustix::process::{Pid, Signal, kill_process};
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
        match pid.and_then(Pid::from_raw) {
            Some(pid) => kill_process(pid, Signal::CONT).map_err(Failure::internal),
            None => Err(Failure::internal("demo: the late seller has ended early")),
        }
    }
}
