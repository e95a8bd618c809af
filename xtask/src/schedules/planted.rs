//! Bugs that the search must find, planted into a copy of the library.
//!
//! All of them are in one build; the environment chooses the one that is there. So the sources that are published
//! contain none of it, and the search for each bug needs no build of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::sh::root;

/// A bug, and the story that must find it.
pub(super) struct Bug {
    pub(super) name: &'static str,
    pub(super) story: &'static str,
    changes: &'static [Change],
}

/// A place in the library. `to` has the bug where `planted` is true, and the original elsewhere.
struct Change {
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

pub(super) const BUGS: [Bug; 7] = [
    Bug {
        name: "a wake is lost on drop",
        story: "cancel",
        changes: &[Change {
            file: "engine/local_queue/waiter.rs",
            from: "drop(self.request.waiter().leave());",
            to: "let left = self.request.waiter().leave();
                if crate::schedules::planted(\"a wake is lost on drop\") { std::mem::forget(left) } else { drop(left) }",
        }],
    },
    Bug {
        name: "a hand-off to a cancelled waiter",
        story: "cancel",
        changes: &[Change {
            file: "engine/local_queue/waiter.rs",
            from: "if state.left {",
            to: "if state.left && !crate::schedules::planted(\"a hand-off to a cancelled waiter\") {",
        }],
    },
    Bug {
        name: "a leader leaves twice",
        story: "another process",
        changes: &[
            Change {
                file: "engine/local_queue/leader.rs",
                from: "queues.leave(&self.name, self.number, self.wake.take());",
                to: "queues.leave(&self.name, self.number, self.wake.take());
                    if crate::schedules::planted(\"a leader leaves twice\") { queues.leave(&self.name, self.number, None) }",
            },
            Change {
                file: "engine/local_queue/leadership.rs",
                from: ".filter(|queue| queue.is_led_by(leader));",
                to: ".filter(|queue| queue.is_led_by(leader) || crate::schedules::planted(\"a leader leaves twice\"));",
            },
        ],
    },
    Bug {
        name: "a listener reads before it registers",
        story: "close",
        changes: &[Change {
            file: "engine/runtime/event.rs",
            from: "self.register(cx);\n        read()",
            to: "if crate::schedules::planted(\"a listener reads before it registers\") {
                    let value = read();
                    self.register(cx);
                    return value.map_or(Poll::Pending, Poll::Ready);
                }
                self.register(cx);
                read()",
        }],
    },
    Bug {
        name: "a loss does not end the leader term",
        story: "loss",
        changes: &[Change {
            file: "engine/lease/status.rs",
            from: "if let Some(term) = self.term.upgrade() {",
            to: "if !crate::schedules::planted(\"a loss does not end the leader term\") && let Some(term) = self.term.upgrade() {",
        }],
    },
    Bug {
        name: "a close does not wait for a dropped guard",
        story: "close",
        changes: &[Change {
            file: "engine/lease/hold.rs",
            from: "let _in_flight = steward.in_flight();",
            to: "let _in_flight = (!crate::schedules::planted(\"a close does not wait for a dropped guard\")).then(|| steward.in_flight());",
        }],
    },
    Bug {
        name: "a hand-off keeps the listeners of the last holder",
        story: "loss",
        changes: &[Change {
            file: "engine/lease/table.rs",
            from: "if Arc::strong_count(status) > OWN {",
            to: "if Arc::strong_count(status) > OWN && !crate::schedules::planted(\"a hand-off keeps the listeners of the last holder\") {",
        }],
    },
];

/// Which bug is there.
const PLANTED: &str = "
/// Whether this bug is there.
pub(crate) fn planted(bug: &str) -> bool {
    use std::sync::LazyLock;
    static PLANTED: LazyLock<Option<String>> = LazyLock::new(|| std::env::var(\"PLANTED\").ok());
    PLANTED.as_deref() == Some(bug)
}
";

/// Copies the library and the stories to that folder, with all bugs.
///
/// # Errors
/// If a place is not there exactly once: the code has changed, and so must this list.
pub(super) fn plant(folder: &Path) -> Result<()> {
    let mut files = BTreeMap::new();
    for part in ["crates/tidelock", "tests/schedules"] {
        read(&root(), Path::new(part), &mut files)?;
    }
    let manifest = fs::read_to_string(root().join("Cargo.toml"))?;
    files.insert("Cargo.toml".into(), of_two_members(&manifest)?.into_bytes());
    files.insert("Cargo.lock".into(), fs::read(root().join("Cargo.lock"))?);
    let sources = Path::new("crates/tidelock/src");
    let mut edit = |file: &str, edit: &dyn Fn(&str) -> Result<String>| {
        let code = files.get_mut(&sources.join(file)).context("no such file")?;
        *code = edit(std::str::from_utf8(code)?)?.into_bytes();
        anyhow::Ok(())
    };
    for Change { file, from, to } in BUGS.iter().flat_map(|bug| bug.changes) {
        edit(file, &|code| {
            let found = code.matches(from).count();
            ensure!(found == 1, "found {found} times, not once: {from}");
            Ok(code.replace(from, to))
        })
        .with_context(|| (*file).to_owned())?;
    }
    edit("schedules.rs", &|code| Ok(format!("{code}{PLANTED}")))?;
    for (path, code) in files {
        write(&folder.join(path), &code)?;
    }
    Ok(())
}

/// The manifest of the workspace, with the two packages of the copy.
fn of_two_members(manifest: &str) -> Result<String> {
    let members = manifest.lines().find(|line| line.starts_with("members = "));
    let own = "members = [\"crates/tidelock\", \"tests/schedules\"]";
    let manifest = manifest.replace(members.context("no members in the manifest")?, own);
    Ok(manifest.replace("default-members = ", "# default-members = "))
}

/// Reads all files of a folder.
fn read(root: &Path, folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            read(root, &path, files)?;
        } else {
            files.insert(path, fs::read(entry.path())?);
        }
    }
    Ok(())
}

/// Writes a file if it differs. Otherwise cargo would build what has not changed.
fn write(path: &Path, code: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|before| before == code) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    Ok(fs::write(path, code)?)
}
