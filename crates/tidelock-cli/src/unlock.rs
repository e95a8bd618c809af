//! Forced release: the command `unlock`, and the gate for the viewers `top` and `web`.

use std::process::ExitCode;
#[cfg(any(feature = "screen", feature = "web"))]
use std::time::Duration;

use clap::Args;
use tidelock::{Client, Snapshot};

use crate::args::StoreArgs;
use crate::covers;
use crate::exit::{Failure, Outcome, say};
use crate::inspect::{as_text, with_client};

#[derive(Debug, Args)]
pub(crate) struct UnlockArgs {
    /// Name of the lock
    pub(crate) name: String,
    /// Confirm the release. The current holder may believe for up to a third of its lease that it still has the lock
    #[arg(long)]
    force: bool,
    /// Unlock only if this owner holds the lock, as `show` prints it; may be repeated, for readers. Exit code 1 if another
    /// one holds it
    #[arg(long = "owner", value_name = "OWNER")]
    owners: Vec<String>,
    /// Unlock only if this is still the newest fencing token
    #[arg(long, value_name = "N")]
    token: Option<u64>,
}

/// Exit code if the lock is held otherwise than expected.
const CHANGED: u8 = 1;

/// How a lock is expected to be held when it is unlocked. It may have gone to a holder that works since an operator looked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Expected {
    /// Each holder is one of them. Empty: any holder.
    pub(crate) owners: Vec<String>,
    /// The newest fencing token. `None`: any, or the store has none.
    pub(crate) token: Option<u64>,
}

impl Expected {
    fn fits(&self, seen: &Snapshot) -> bool {
        let mut holders = seen.holders.iter();
        let is_one = |owner| self.owners.is_empty() || self.owners.contains(owner);
        let token = seen.token.map(tidelock::FencingToken::get);
        holders.all(|holder| is_one(&holder.owner)) && (self.token.is_none() || self.token == token)
    }
}

/// What has come of it.
#[derive(Debug)]
pub(crate) enum Unlocked {
    Freed,
    WasFree,
    /// It is held otherwise than expected, and stays as it is.
    Changed(Box<Snapshot>),
}

/// Frees a lock if it is held as expected. The store decides it at the instant at which it frees the lock.
async fn unlock_if(client: &Client, name: &str, expected: &Expected) -> Outcome<Unlocked> {
    let lock = client.lock(name);
    let seen = lock.inspect().await?;
    if !seen.is_locked() {
        return Ok(Unlocked::WasFree);
    }
    if !expected.fits(&seen) {
        return Ok(Unlocked::Changed(Box::new(seen)));
    }
    if lock.force_release_if(&seen).await? {
        return Ok(Unlocked::Freed);
    }
    // It has changed since the look.
    let now = lock.inspect().await?;
    Ok(if now.is_locked() {
        Unlocked::Changed(Box::new(now))
    } else {
        Unlocked::WasFree
    })
}

/// `tidelock unlock --force`.
pub(crate) async fn unlock(args: &StoreArgs, what: UnlockArgs) -> Outcome {
    if !what.force {
        return Err(Failure::usage(format!(
            "{}: not unlocked: the holder would believe for up to a third of its lease that it still has the lock; repeat with --force to unlock it",
            what.name
        )));
    }
    with_client(args, async |client| {
        if args.verbose == 0 {
            covers::tell(args)?; // with -v everybody is told
        }
        let lock = client.lock(&what.name);
        let expected = Expected {
            owners: what.owners,
            token: what.token,
        };
        let unlocked = if expected == Expected::default() {
            if lock.force_release().await? {
                Unlocked::Freed
            } else {
                Unlocked::WasFree
            }
        } else {
            unlock_if(client, &what.name, &expected).await?
        };
        say(told(lock.name(), &unlocked));
        Ok(match unlocked {
            Unlocked::Changed(_) => ExitCode::from(CHANGED),
            Unlocked::Freed | Unlocked::WasFree => ExitCode::SUCCESS,
        })
    })
    .await
}

/// The message about it. Not escaped.
pub(crate) fn told(name: &str, unlocked: &Unlocked) -> String {
    match unlocked {
        Unlocked::Freed => format!("{name}: unlocked"),
        Unlocked::WasFree => format!("{name}: was free"),
        Unlocked::Changed(now) => {
            format!(
                "{name}: not unlocked, it is held otherwise now: {}",
                as_text(now)
            )
        }
    }
}

/// What a viewer that ends says of a request to unlock that has no answer yet.
#[cfg(any(feature = "screen", feature = "web"))]
pub(crate) const UNANSWERED: &str = "the store does not answer; it may have been unlocked or not";

/// Bounds how long a viewer that ends waits for the answer to such a request.
#[cfg(any(feature = "screen", feature = "web"))]
pub(crate) const LAST_ANSWER: Duration = Duration::from_secs(4);

/// A line of the log of what operators have unlocked, or tried to. Not escaped.
#[cfg(any(feature = "screen", feature = "web"))]
pub(crate) fn audited(name: &str, expected: &Expected, outcome: &Outcome<Unlocked>) -> String {
    let token = expected
        .token
        .map_or("-".to_owned(), |token| token.to_string());
    let what = match outcome {
        Ok(unlocked) => told(name, unlocked),
        Err(failure) => format!("{name}: {}", failure.message),
    };
    format!(
        "{} unlock, owner {}, token {token}: {what}",
        humantime::format_rfc3339_seconds(std::time::SystemTime::now()),
        expected.owners.join(" and "),
    )
}

/// The gate through which a viewer changes a lock. A viewer without `--write` has a closed one, and no other way: it looks at
/// the store by functions that change no lock.
#[cfg(any(feature = "screen", feature = "web"))]
#[derive(Debug)]
pub(crate) struct WriteGate {
    client: Client,
    prefix: String,
    is_open: bool,
}

#[cfg(any(feature = "screen", feature = "web"))]
impl WriteGate {
    /// `is_open`: the viewer was started with `--write`.
    pub(crate) fn new(client: &Client, prefix: String, is_open: bool) -> Self {
        Self {
            client: client.clone(),
            prefix,
            is_open,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Reads the present holders of a lock, for an operator that wants to unlock it. `name` includes the prefix.
    pub(crate) async fn look(&self, name: &str) -> Outcome<Snapshot> {
        Ok(self.client.lock(self.pass(name)?).inspect().await?)
    }

    /// Frees a lock, which `expected` names the holders of. `name` includes the prefix.
    pub(crate) async fn unlock(&self, name: &str, expected: &Expected) -> Outcome<Unlocked> {
        let own = self.pass(name)?;
        if expected.owners.is_empty() {
            return Err(Failure::usage(format!("{name}: no owner is expected")));
        }
        unlock_if(&self.client, own, expected).await
    }

    /// The name without the prefix, if the gate is open.
    fn pass<'n>(&self, name: &'n str) -> Outcome<&'n str> {
        if !self.is_open {
            return Err(Failure::usage("read-only: start it with --write to unlock"));
        }
        let own = name.strip_prefix(&self.prefix);
        own.ok_or_else(|| {
            Failure::usage(format!("{name}: its name does not begin with the prefix"))
        })
    }
}

#[cfg(test)]
#[cfg(any(feature = "screen", feature = "web"))]
mod tests {
    use tidelock::Client;

    use super::*;

    async fn held(client: &Client) -> (tidelock::Guard, Expected) {
        let held = client.lock("job").acquire().await.unwrap();
        let owners = vec![held.owner_id().clone()];
        let token = None;
        (held, Expected { owners, token })
    }

    #[tokio::test]
    async fn a_lock_is_unlocked_only_if_it_is_held_as_expected() {
        let client = Client::builder().prefix("shop:");
        let client = client.connect("memory:").await.unwrap();
        let gate = WriteGate::new(&client, "shop:".to_owned(), true);
        let (first, expected) = held(&client).await;
        first.release().await.unwrap();
        let free = gate.unlock("shop:job", &expected).await.unwrap();
        assert!(matches!(free, Unlocked::WasFree), "{free:?}");
        let (second, now) = held(&client).await;
        let changed = gate.unlock("shop:job", &expected).await.unwrap();
        assert!(matches!(changed, Unlocked::Changed(_)), "{changed:?}");
        assert!(second.is_held());
        let nobody = gate.unlock("shop:job", &Expected::default()).await;
        assert!(nobody.is_err(), "{nobody:?}");
        let other = gate.unlock("job", &now).await;
        assert!(other.is_err(), "without the prefix: {other:?}");
        let freed = gate.unlock("shop:job", &now).await.unwrap();
        assert!(matches!(freed, Unlocked::Freed), "{freed:?}");
        drop(second);
    }

    #[tokio::test]
    async fn a_closed_gate_lets_nothing_through() {
        let client = Client::connect("memory:").await.unwrap();
        let gate = WriteGate::new(&client, String::new(), false);
        let (held, expected) = held(&client).await;
        assert!(gate.unlock("job", &expected).await.is_err());
        assert!(gate.look("job").await.is_err());
        assert!(client.lock("job").inspect().await.unwrap().is_locked());
        held.release().await.unwrap();
    }

    /// A second way to unlock must change this test, so that its author thinks of the viewers.
    #[test]
    fn there_is_one_way_to_unlock() {
        let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let (mut folders, mut found) = (vec![source], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|end| end == "rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let call = concat!(".force_", "release");
                    let count = text.matches(call).count();
                    found.extend(std::iter::repeat_n(path, count));
                }
            }
        }
        let here = |path: &std::path::PathBuf| path.ends_with("unlock.rs");
        assert!(found.len() == 2 && found.iter().all(here), "{found:?}");
    }
}
