//! The commands `show`, `ls` and `doctor`: inspect locks.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use tidelock::{Client, ClientInfo, ErrorKind, Escaped, Holder, Mode, Severity, Snapshot};

use crate::args::{DoctorArgs, LsArgs, ShowArgs, StoreArgs};
use crate::covers::{self, Shown};
use crate::exit::{self, Failure, Outcome, say};
use crate::{store, table};

/// On stderr, so that a script that reads the names gets none.
const NO_LOCKS: &str = "no locks are held";

/// Stands for the mode and the holders of a lock that cannot be looked at.
const UNKNOWN: &str = "?";

/// Bounds the locks that `show` without names prints.
const MOST: usize = 1000;

/// Runs work with a client that publishes no details and creates no store.
pub(crate) async fn with_client(
    args: &StoreArgs,
    work: impl AsyncFnOnce(&Client) -> Outcome,
) -> Outcome {
    let client = store::connect_to_look(args).await?;
    covers::tell_if_asked(args)?;
    with(&client, work).await
}

/// Runs work with a client, then closes the client.
pub(crate) async fn with(client: &Client, work: impl AsyncFnOnce(&Client) -> Outcome) -> Outcome {
    let result = work(client).await;
    // If the store has just failed to answer, we close without waiting for it: nothing is held.
    let unavailable = matches!(&result, Err(failure) if failure.code == exit::UNAVAILABLE);
    if !unavailable {
        client.close(Duration::ZERO).await;
    }
    result
}

/// `tidelock show`.
pub(crate) async fn show(args: &StoreArgs, what: ShowArgs) -> Outcome {
    let (prefix, store) = (store::prefix(args), Shown::of(args)?);
    with_client(args, async |client| {
        let is_listed = what.names.is_empty();
        let names = if is_listed {
            store::refuse_to_list(args)?;
            client.list(&format!("{prefix}*")).limit(MOST).await?
        } else {
            what.names
        };
        if names.is_empty() {
            say(NO_LOCKS);
        }
        let (mut rows, mut unseen) = (Vec::new(), Vec::new());
        let count = names.len();
        for name in names {
            let seen = if is_listed {
                look_at_listed(client, &prefix, &name).await?
            } else {
                Ok(client.lock(&name).inspect().await?)
            };
            let seen = match seen {
                Ok(seen) => seen,
                Err(failure) => {
                    unseen.push(failure);
                    continue;
                }
            };
            if what.json {
                print_object(&store, as_json(&seen))?;
            } else if table::is_wanted() {
                rows.push(seen);
            } else {
                print_line(&as_text(&seen))?;
            }
        }
        if !rows.is_empty() {
            print_line(&table::of_locks(&rows))?;
        }
        let is_any_shown = unseen.len() < count;
        for failure in unseen {
            if !is_any_shown {
                // Without this, a user who may read none of the locks would think that there are none.
                return Err(failure);
            }
            say(failure.message);
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

/// Looks at a lock that a list has named. `Err`: this lock cannot be shown. Anybody may have written its name into the
/// store, so it must not hide the others.
async fn look_at_listed(
    client: &Client,
    prefix: &str,
    name: &str,
) -> Outcome<Result<Snapshot, Failure>> {
    // Listed names already include the prefix.
    let own = name.strip_prefix(prefix).unwrap_or(name);
    match client.lock(own).inspect().await {
        Err(error) if is_of_the_lock(error.kind()) => {
            let failure = Failure::from(error);
            let message = format!("{name}: cannot be shown: {}", failure.message);
            Ok(Err(Failure::new(failure.code, message)))
        }
        seen => Ok(Ok(seen?)),
    }
}

/// Whether another lock may be inspected after that error.
pub(crate) fn is_of_the_lock(error: ErrorKind) -> bool {
    matches!(
        error,
        ErrorKind::InvalidName | ErrorKind::WrongType | ErrorKind::Refused
    )
}

/// `tidelock ls`.
pub(crate) async fn ls(args: &StoreArgs, what: LsArgs) -> Outcome {
    let (prefix, store) = (store::prefix(args), Shown::of(args)?);
    store::refuse_to_list(args)?;
    with_client(args, async |client| {
        let mut rows = Vec::new();
        let mut count = 0;
        for name in client
            .list(&format!("{prefix}{}", what.pattern))
            .limit(what.most)
            .await?
        {
            let mut object = json!({ "name": name });
            let mut line = Escaped(&name).to_string();
            count += 1;
            if what.modes {
                let (mode, holders) = match look_at_listed(client, &prefix, &name).await? {
                    Ok(seen) => (mode_of_all(&seen), Some(seen.holders.len())),
                    Err(failure) => {
                        say(failure.message);
                        (Some(UNKNOWN), None)
                    }
                };
                object["mode"] = json!(mode);
                object["holders"] = json!(holders);
                let mode = mode.unwrap_or("free");
                let holders = holders.map_or(UNKNOWN.to_owned(), |count| count.to_string());
                line = format!("{line}\t{mode}\t{holders}");
                rows.push([Escaped(&name).to_string(), mode.to_owned(), holders]);
            }
            if what.json {
                print_object(&store, object)?;
            } else if !(what.modes && table::is_wanted()) {
                print_line(&line)?;
            }
        }
        if count == 0 {
            say(NO_LOCKS);
        } else if what.modes && table::is_wanted() && !what.json {
            print_line(&table::of_modes(rows))?;
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

/// `tidelock doctor`.
pub(crate) async fn doctor(args: &StoreArgs, what: DoctorArgs) -> Outcome {
    let store = Shown::of(args)?;
    with_client(args, async |client| {
        let findings = client.diagnose().await?;
        let in_a_table = table::is_wanted() && !what.json;
        if in_a_table {
            print_line(&table::of_findings(&findings))?;
        }
        for finding in findings.iter().filter(|_| !in_a_table) {
            let severity = match finding.severity {
                Severity::Good => "good",
                Severity::Advice => "advice",
                _ => "danger",
            };
            if what.json {
                let object = json!({
                    "severity": severity, "subject": finding.subject, "found": finding.found,
                    "meaning": finding.meaning, "advice": finding.advice,
                });
                print_object(&store, object)?;
            } else {
                let advice = finding
                    .advice
                    .as_ref()
                    .map(|advice| format!("\n        → {}", Escaped(advice)))
                    .unwrap_or_default();
                print_line(&format!(
                    "{severity:6}  {}: {}: {}{advice}",
                    Escaped(&finding.subject),
                    Escaped(&finding.found),
                    Escaped(&finding.meaning)
                ))?;
            }
        }
        let danger = findings
            .iter()
            .any(|finding| finding.severity >= Severity::Danger);
        Ok(ExitCode::from(u8::from(danger)))
    })
    .await
}

/// Prints an object on one line, together with its store.
pub(crate) fn print_object(store: &Shown, object: Value) -> Outcome<()> {
    print_line(&with_store(store, object))
}

/// An object on one line, together with its store. Safe for a terminal.
pub(crate) fn with_store(store: &Shown, mut object: Value) -> String {
    object["store"] = store.as_json();
    json_for_terminal(&object.to_string())
}

/// Prints an object on one line.
pub(crate) fn print_json(object: &Value) -> Outcome<()> {
    print_line(&json_for_terminal(&object.to_string()))
}

/// JSON that is safe for a terminal. JSON itself escapes only a part of the characters that [`Escaped`] escapes.
fn json_for_terminal(object: &str) -> String {
    let mut safe = String::with_capacity(object.len());
    for c in object.chars() {
        if Escaped(c).to_string().chars().eq([c]) {
            safe.push(c);
        } else {
            // None of these characters is above U+FFFF, and each stands within a string.
            let _ = write!(safe, "\\u{:04x}", u32::from(c));
        }
    }
    safe
}

/// Prints one line on stdout. A closed pipe (`| head`) is no failure.
pub(crate) fn print_line(line: &impl std::fmt::Display) -> Outcome<()> {
    use std::io::Write;
    match writeln!(std::io::stdout().lock(), "{line}") {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(unread()),
        other => other.map_err(Failure::internal),
    }
}

/// The end of a command whose output nobody reads any more: as if the signal PIPE had ended it.
pub(crate) fn unread() -> Failure {
    Failure::new(exit::by_signal(13), "nobody reads the output any more")
}

/// Formats a lock as one JSON object.
pub(crate) fn as_json(seen: &Snapshot) -> Value {
    json!({
        "name": seen.name,
        "locked": seen.is_locked(),
        "kind": kind_of(seen),
        "holders": seen.holders.iter().map(holder_as_json).collect::<Vec<_>>(),
        "expires_in_ms": seen.expires_in.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        "token": seen.token.map(tidelock::FencingToken::get),
        "waiters": seen.waiters,
        "queue": seen.queue,
        "permits": seen.permits.map(|count| json!({ "available": count.available, "total": count.total })),
        "latch": seen.latch,
    })
}

fn holder_as_json(holder: &Holder) -> Value {
    let client = holder.client.as_ref();
    json!({
        "owner": holder.owner,
        "mode": mode_of(holder.mode),
        "holds": holder.holds,
        "host": client.map(|client| &client.host),
        "pid": client.map(|client| client.pid),
        "program": client.map(|client| &client.program),
        "user": client.and_then(|client| client.user.as_ref()),
        "since": client.map(|client| humantime::format_rfc3339_seconds(client.since).to_string()),
    })
}

/// Formats a lock as one line for people, safe for a terminal.
pub(crate) fn as_text(seen: &Snapshot) -> String {
    let mut parts = Vec::new();
    if seen.is_locked() {
        let holders: Vec<_> = seen.holders.iter().map(holder_as_text).collect();
        let holders = holders.join(" and ");
        parts.push(match kind_of(seen) {
            Some(MIXED) => format!("held by {holders} as two kinds of lock, which do not exclude each other: use a name for one kind only"),
            _ => format!("held by {holders}"),
        });
        parts.push(match seen.expires_in {
            Some(time) => format!("{} left", humantime::format_duration(rounded(time))),
            None => "without an end".to_owned(),
        });
    } else if seen.latch.is_none() || seen.permits.is_some() {
        parts.push("free".to_owned());
    }
    parts.extend(permits_of(seen));
    if let Some(count) = seen.latch {
        let or = if seen.permits.is_some() { "or " } else { "" };
        parts.push(format!("{or}a latch with the count {count}"));
    }
    if let Some(token) = seen.token {
        parts.push(format!("token {token}"));
    }
    if let Some(waiters) = seen.waiters {
        parts.push(format!("{waiters} waiting"));
    }
    if !seen.queue.is_empty() {
        let places = (1..).zip(&seen.queue);
        let places: Vec<_> = places.map(|(n, owner)| format!("{n}. {owner}")).collect();
        parts.push(format!("queue: {}", places.join(", ")));
    }
    let text = format!("{}: {}", seen.name, parts.join(", "));
    Escaped(text).to_string()
}

/// How many permits of a semaphore are available.
pub(crate) fn permits_of(seen: &Snapshot) -> Option<String> {
    let count = seen.permits?;
    Some(format!(
        "{} of {} permits available",
        count.available, count.total
    ))
}

/// How many permits a holder has.
pub(crate) fn permits_held(holder: &Holder) -> String {
    match holder.holds {
        1 => "1 permit".to_owned(),
        many => format!("{many} permits"),
    }
}

/// Rounds to tenths of a second, which is enough for people.
pub(crate) fn rounded(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX) / 100 * 100)
}

pub(crate) fn holder_as_text(holder: &Holder) -> String {
    let who = match &holder.client {
        Some(client) => format!(
            "{} (pid {} on {}, connected since {})",
            program_of(client),
            client.pid,
            client.host,
            humantime::format_rfc3339_seconds(client.since)
        ),
        // Redisson stores the UUID of its client and the number of the thread.
        None => holder.owner.clone(),
    };
    let who = match holder.mode {
        Mode::Exclusive => who,
        Mode::Permits => return format!("{who} with {}", permits_held(holder)),
        Mode::UpgradeableRead => format!("{who} to read, upgradeable"),
        side => format!("{who} to {}", mode_of(side)),
    };
    match holder.holds {
        0 => format!("{who}, with an unreadable hold count"),
        1 => who,
        holds => format!("{who}, {holds} times"),
    }
}

/// The program of a client and the user who runs it, not escaped.
pub(crate) fn program_of(client: &ClientInfo) -> String {
    match &client.user {
        Some(user) => format!("{} as {user}", client.program),
        None => client.program.clone(),
    }
}

/// A plain lock and a read-write lock at the same key.
const MIXED: &str = "mixed";

/// The kind of the held lock, in one word. `None`: the lock is free.
pub(crate) fn kind_of(seen: &Snapshot) -> Option<&'static str> {
    if seen.holders.iter().any(|it| it.mode == Mode::Permits) {
        return Some("semaphore");
    }
    let sides = |holder: &Holder| holder.mode != Mode::Exclusive;
    let of_sides = seen.holders.iter().filter(|holder| sides(holder)).count();
    match (seen.holders.len(), of_sides) {
        (0, _) => None,
        (_, 0) => Some("lock"),
        (all, sides) if all == sides => Some("read-write"),
        _ => Some(MIXED),
    }
}

/// The mode of a lock over all its holders.
fn mode_of_all(seen: &Snapshot) -> Option<&'static str> {
    let modes = [
        Mode::Write,
        Mode::UpgradeableRead,
        Mode::Read,
        Mode::Exclusive,
        Mode::Permits,
    ];
    let held = |mode: &Mode| seen.holders.iter().any(|holder| holder.mode == *mode);
    match kind_of(seen) {
        Some(MIXED) => Some(MIXED),
        // The owner of the write side may hold the read side as well, so we check for the write side first.
        _ => modes.into_iter().find(held).map(mode_of),
    }
}

/// The mode in one word.
pub(crate) fn mode_of(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "read",
        Mode::Write => "write",
        Mode::UpgradeableRead => "upgradeable_read",
        Mode::Permits => "permits",
        _ => "exclusive",
    }
}
