//! The doctor of the SQLite store: finds conditions of a lock file that weaken its locks.

use std::path::Path;

use rusqlite::Connection;

use crate::snapshot::{Finding, Severity};
use crate::store::doctor::DoctorCheck;
use crate::store::sqlite::file_system;
use crate::store::sqlite::files::DatabasePaths;

const JOURNAL: DoctorCheck = DoctorCheck {
    subject: "journal mode",
    good: "with the write-ahead log, looking never keeps anybody from renewing",
    severity: Severity::Danger,
    bad: "with the write-ahead log, looking never keeps anybody from renewing",
    advice: "let no other tool change the file; stop all that use it and connect again",
};

const LOG: DoctorCheck = DoctorCheck {
    subject: "log",
    good: "restarted regularly",
    severity: Severity::Advice,
    bad: "somebody reads the file in one long transaction, so the log cannot be restarted",
    advice: "end the tool that has the file open",
};

const FREE_SPACE: DoctorCheck = DoctorCheck {
    subject: "free space",
    good: "enough for the log to grow",
    severity: Severity::Danger,
    bad: "on a full disk nothing more is granted; what is held is kept as long as the file has room inside",
    advice: "make room",
};

#[cfg(unix)]
const RIGHTS: DoctorCheck = DoctorCheck {
    subject: "rights",
    good: "who may write the file may take and free its locks",
    severity: Severity::Danger,
    bad: "every user of this machine can take, free and forge locks",
    advice: "chmod o-rwx the file, its -wal and its -shm",
};

/// Bytes of free space below which we warn: the lock file may soon be unable to grow.
const LITTLE_SPACE: u64 = 64 << 20;
/// Log size in bytes from which we warn. SQLite restarts its log at 4 MB, so a log this large means that a reader
/// prevents the restart.
const LONG_LOG: u64 = 64 << 20;

/// Returns all findings about the file.
pub(crate) fn examine(paths: &DatabasePaths, connection: &Connection) -> Vec<Finding> {
    let path = &*paths.main;
    let mut findings = vec![
        Finding::new(
            Severity::Good,
            "reach",
            format!("the file {}", path.display()),
            "shared by the processes of this machine only",
        )
        .advise("for several machines use redis:// or another store made for them"),
        file_system(path),
        journal(connection),
        Finding::new(
            Severity::Good,
            "durability",
            "synchronous=FULL for grants",
            "a grant and its token are on the disk before they are reported, as far as the disk tells the truth",
        ),
        log_size(&paths.wal),
        Finding::new(
            Severity::Good,
            "version",
            format!("SQLite {}", rusqlite::version()),
            "the one built into this program",
        ),
    ];
    findings.extend(free_space(path));
    findings.extend(rights(path));
    findings
}

fn file_system(path: &Path) -> Finding {
    judge_type(&file_system::of(path.parent().unwrap_or(path)).kind)
}

/// `kind`: the type by its system name.
fn judge_type(kind: &str) -> Finding {
    match kind {
        "" => Finding::new(
            Severity::Advice,
            "file system",
            "of unknown type",
            "if it is shared over a network, two processes could have the same lock",
        )
        .advise("make sure that it is a local disk"),
        "tmpfs" | "ramfs" => Finding::new(
            Severity::Advice,
            "file system",
            kind,
            "in memory: fencing tokens begin anew after a restart of the machine",
        )
        .advise("put the file on a disk if tokens are compared with what a disk remembers"),
        _ => Finding::new(
            Severity::Good,
            "file system",
            kind,
            "local: SQLite's locks hold",
        ),
    }
}

fn journal(connection: &Connection) -> Finding {
    let mode = connection
        .query_row("PRAGMA journal_mode", [], |row| row.get::<_, String>(0))
        .unwrap_or_else(|error| error.to_string());
    JOURNAL.judge(mode.eq_ignore_ascii_case("wal"), mode)
}

fn log_size(wal: &Path) -> Finding {
    let size = std::fs::metadata(wal).map_or(0, |meta| meta.len());
    LOG.judge(size < LONG_LOG, format!("{} KB", size / 1024))
}

fn free_space(path: &Path) -> Option<Finding> {
    file_system::free_space(path).map(judge_space)
}

/// `free`: in bytes.
fn judge_space(free: u64) -> Finding {
    FREE_SPACE.judge(free >= LITTLE_SPACE, format!("{} MB free", free >> 20))
}

#[cfg(unix)]
fn rights(path: &Path) -> Option<Finding> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    Some(RIGHTS.judge(mode & 0o002 == 0, format!("{mode:o}")))
}

#[cfg(not(unix))]
fn rights(_path: &Path) -> Option<Finding> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_in_memory_or_of_unknown_type_is_told() {
        for (kind, severity, found) in [
            ("", Severity::Advice, "of unknown type"),
            ("tmpfs", Severity::Advice, "tmpfs"),
            ("ramfs", Severity::Advice, "ramfs"),
            ("ext4", Severity::Good, "ext4"),
        ] {
            let told = judge_type(kind);
            assert_eq!((told.severity, told.found.as_str()), (severity, found));
        }
    }

    #[test]
    fn little_free_space_is_told() {
        for (free, severity, found) in [
            (LITTLE_SPACE - 1, Severity::Danger, "63 MB free"),
            (LITTLE_SPACE, Severity::Good, "64 MB free"),
        ] {
            let told = judge_space(free);
            assert_eq!((told.severity, told.found.as_str()), (severity, found));
        }
    }

    #[test]
    fn a_long_log_is_told() {
        let log = tempfile::NamedTempFile::new().unwrap();
        for (length, severity, found) in [
            (LONG_LOG - 1, Severity::Good, "65535 KB"),
            (LONG_LOG, Severity::Advice, "65536 KB"),
        ] {
            log.as_file().set_len(length).unwrap();
            let told = log_size(log.path());
            assert_eq!((told.severity, told.found.as_str()), (severity, found));
        }
    }
}
