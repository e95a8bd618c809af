//! The files of a lock file, and their identities. A file that was removed or replaced has the same path as before, but
//! another identity.

use std::path::{Path, PathBuf};

/// The paths of the database, of the two files that SQLite keeps beside it, and of our own `-lock` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DatabasePaths {
    pub(crate) main: PathBuf,
    pub(crate) wal: PathBuf,
    pub(crate) shm: PathBuf,
    /// Used by [`entry`](crate::store::sqlite::entry) and [`queue`](crate::store::sqlite::queue).
    pub(crate) lock: PathBuf,
}

impl DatabasePaths {
    pub(crate) fn of(main: PathBuf) -> Self {
        let beside = |ending| {
            let mut name = main.clone().into_os_string();
            name.push(ending);
            PathBuf::from(name)
        };
        Self {
            wal: beside("-wal"),
            shm: beside("-shm"),
            lock: beside("-lock"),
            main,
        }
    }
}

/// The identity of a file, independent of its path: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Id {
    device: u64,
    inode: u64,
}

impl Id {
    /// Never opens the file. On POSIX, closing any descriptor of a file drops all locks that this process has on it,
    /// including those that SQLite holds through another connection.
    #[cfg(unix)]
    pub(crate) fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path)
            .ok()
            .map(|meta| Self::in_meta(&meta))
    }

    /// As [`of`](Self::of), but a symbolic link has an identity of its own, also if it leads nowhere.
    #[cfg(unix)]
    pub(crate) fn of_entry(path: &Path) -> Option<Self> {
        let meta = std::fs::symlink_metadata(path).ok();
        meta.map(|meta| Self::in_meta(&meta))
    }

    #[cfg(unix)]
    fn in_meta(meta: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self {
            device: meta.dev(),
            inode: meta.ino(),
        }
    }

    /// On these systems an open file can be neither removed nor replaced, so existence is enough.
    #[cfg(not(unix))]
    pub(crate) fn of(path: &Path) -> Option<Self> {
        path.exists().then_some(Self {
            device: 0,
            inode: 0,
        })
    }

    #[cfg(not(unix))]
    pub(crate) fn of_entry(path: &Path) -> Option<Self> {
        Self::of(path)
    }

    fn written(id: Option<Self>) -> String {
        id.map_or_else(
            || "none".to_owned(),
            |id| format!("{}:{}", id.device, id.inode),
        )
    }
}

/// The identities of the files in use. `None`: the file does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Files {
    pub(crate) main: Option<Id>,
    pub(crate) wal: Option<Id>,
    pub(crate) shm: Option<Id>,
    pub(crate) lock: Option<Id>,
}

impl Files {
    /// Reads the identities of the files that are there now.
    pub(crate) fn at(paths: &DatabasePaths) -> Self {
        Self {
            main: Id::of(&paths.main),
            wal: Id::of(&paths.wal),
            shm: Id::of(&paths.shm),
            // We never follow a link in the place of `-lock`, because every user of the folder can put one there.
            lock: Id::of_entry(&paths.lock),
        }
    }

    /// True if both have the same database with the same log. Processes that use them see each other's writes.
    pub(crate) fn share_a_log_with(&self, other: &Self) -> bool {
        (self.main, self.wal, self.shm) == (other.main, other.wal, other.shm)
    }

    /// The record in `-lock` that says which log belongs to which database.
    pub(crate) fn as_line(&self) -> String {
        let [main, wal, shm] = [self.main, self.wal, self.shm].map(Id::written);
        format!("{main} {wal} {shm}\n")
    }

    pub(crate) fn are_complete(&self) -> bool {
        self.main.is_some() && self.wal.is_some() && self.shm.is_some()
    }

    /// True if the record names these files and all of them exist.
    pub(crate) fn are_those_of(&self, line: &str) -> bool {
        self.are_complete() && line == self.as_line()
    }

    /// True if none of the files that existed before was replaced.
    pub(crate) fn fit(&self, before: &Self) -> bool {
        let pairs = [
            (before.main, self.main),
            (before.wal, self.wal),
            (before.shm, self.shm),
        ];
        pairs.iter().all(|(was, is)| was.is_none() || was == is)
    }

    /// True if, by the record, the existing log belongs to another database, or the database to another log.
    pub(crate) fn have_a_foreign_log(&self, line: &str) -> bool {
        let mut words = line.split_whitespace();
        let mut is = |id| words.next().map(|word| word == Id::written(id));
        match (is(self.main), is(self.wal)) {
            (Some(main), Some(wal)) => self.wal.is_some() && main != wal,
            _ => false,
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_replaced_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let paths = DatabasePaths::of(folder.path().join("a.db"));
        for path in [&paths.main, &paths.wal, &paths.shm] {
            std::fs::write(path, "").unwrap();
        }
        let files = Files::at(&paths);
        let line = files.as_line();
        assert!(files.are_those_of(&line) && !files.have_a_foreign_log(&line));
        // We do not remove the old file first. Otherwise the new one might get its inode.
        std::fs::write(folder.path().join("new"), "").unwrap();
        std::fs::rename(folder.path().join("new"), &paths.wal).unwrap();
        let now = Files::at(&paths);
        assert!(!now.share_a_log_with(&files));
        assert!(!now.are_those_of(&line) && now.have_a_foreign_log(&line));
        std::fs::remove_file(&paths.wal).unwrap();
        let now = Files::at(&paths);
        assert!(!now.are_those_of(&now.as_line()), "a log that is not there");
        assert!(!now.have_a_foreign_log(&line) && !now.have_a_foreign_log(""));
        std::fs::write(&paths.wal, "").unwrap();
        std::fs::write(folder.path().join("new"), "").unwrap();
        let line = Files::at(&paths).as_line();
        std::fs::rename(folder.path().join("new"), &paths.main).unwrap();
        assert!(Files::at(&paths).have_a_foreign_log(&line));
    }

    /// Otherwise a file that was replaced while SQLite opened it would be recorded as the one in use.
    #[test]
    fn a_new_file_fits_and_one_that_was_replaced_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let paths = DatabasePaths::of(folder.path().join("a.db"));
        std::fs::write(&paths.main, "").unwrap();
        let before = Files::at(&paths);
        for path in [&paths.wal, &paths.shm] {
            std::fs::write(path, "").unwrap();
        }
        assert!(Files::at(&paths).fit(&before));
        for path in [&paths.main, &paths.wal, &paths.shm] {
            let before = Files::at(&paths);
            assert!(before.fit(&before));
            std::fs::write(folder.path().join("new"), "").unwrap();
            std::fs::rename(folder.path().join("new"), path).unwrap();
            assert!(!Files::at(&paths).fit(&before), "{}", path.display());
        }
    }
}
