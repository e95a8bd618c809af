//! Creates the files of a lock file with the right permissions, and opens `-lock`.

use std::fs::File;
use std::path::Path;

use crate::store::sqlite::files::Id;

/// The permissions of a new file in this folder: for its owner only, unless the folder has setgid. Then the group of
/// the folder has access too, regardless of the umask of the first user.
#[cfg(unix)]
pub(crate) fn rights_in(file: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    let folder = file.parent().and_then(|folder| folder.metadata().ok());
    let mode = folder.map_or(0, |meta| meta.permissions().mode());
    let group = if mode & 0o2000 == 0 { 0 } else { mode & 0o060 };
    0o600 | group
}

/// The permissions of a file, for the files created beside it. SQLite does the same.
#[cfg(unix)]
pub(crate) fn rights_of(file: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    let meta = file.metadata();
    meta.map_or(0o600, |meta| meta.permissions().mode() & 0o666)
}

#[cfg(not(unix))]
pub(crate) fn rights_in(_file: &Path) -> u32 {
    0o600
}

#[cfg(not(unix))]
pub(crate) fn rights_of(_file: &Path) -> u32 {
    0o600
}

/// Creates an empty file with exactly these permissions, unless one exists. Returns the identity of the file if this
/// call created it. Errors are ignored here: opening the file meets them again and explains them.
///
/// Never opens the file. On POSIX, closing any descriptor of a file drops all locks that this process has on it,
/// including those that SQLite holds through another connection.
#[cfg(target_os = "linux")]
pub(crate) fn make_file(path: &Path, rights: u32) -> Option<Id> {
    make(path, |new| prepare(new, rights))
}

/// Creates a file beside `main`, with the same permissions.
#[cfg(target_os = "linux")]
pub(crate) fn make_companion(path: &Path, main: &Path) -> Option<Id> {
    use rustix::fs::{AtFlags, CWD, Gid, Uid, chownat};
    use std::os::unix::fs::MetadataExt;
    make(path, |new| {
        // A file created by root would otherwise belong to root, and the owner of the lock file could not open it.
        // SQLite does the same.
        let owner = main
            .metadata()
            .ok()
            .filter(|_| rustix::process::geteuid().is_root());
        prepare(new, rights_of(main))?;
        owner.map_or(Ok(()), |meta| {
            let (uid, gid) = (Uid::from_raw(meta.uid()), Gid::from_raw(meta.gid()));
            chownat(CWD, new, Some(uid), Some(gid), AtFlags::empty())
        })
    })
}

#[cfg(target_os = "linux")]
fn prepare(path: &Path, rights: u32) -> rustix::io::Result<()> {
    use rustix::fs::{AtFlags, CWD, FileType, Mode, chmodat, mknodat};
    let mode = Mode::from_raw_mode(rights);
    mknodat(CWD, path, FileType::RegularFile, mode, 0)?;
    // The umask removed some permissions from the new file.
    chmodat(CWD, path, mode, AtFlags::empty())
}

#[cfg(target_os = "linux")]
fn make(path: &Path, prepare: impl Fn(&Path) -> rustix::io::Result<()>) -> Option<Id> {
    use rustix::fs::{AtFlags, CWD, RenameFlags, renameat_with, unlinkat};
    if Id::of(path).is_some() {
        return None;
    }
    // We rename the file when it is ready. Otherwise a user of the same group could find it before its permissions are
    // set, and fail to open it.
    let new = path.with_file_name(format!(".{}.new", uuid::Uuid::new_v4()));
    let made = prepare(&new).and_then(|()| {
        let id = Id::of(&new);
        renameat_with(CWD, &new, CWD, path, RenameFlags::NOREPLACE).map(|()| id)
    });
    let error = match made {
        Ok(id) => return id,
        Err(error) => error,
    };
    let _ = unlinkat(CWD, &new, AtFlags::empty());
    if error == rustix::io::Errno::INVAL || error == rustix::io::Errno::NOSYS {
        // This file system does not support a rename that never replaces.
        let _ = prepare(path);
    }
    None
}

/// SQLite creates the file, with the permissions that the umask leaves.
#[cfg(not(target_os = "linux"))]
pub(crate) fn make_file(_path: &Path, _rights: u32) -> Option<Id> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn make_companion(_path: &Path, _main: &Path) -> Option<Id> {
    None
}

/// Opens our own `-lock` file beside the database. Never use this for the database itself, nor for the `-wal` and
/// `-shm` of SQLite: closing the descriptor would drop SQLite's locks.
pub(crate) fn open_companion(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true);
    // On Linux, `make_companion` has already created it with the right permissions.
    options.create(!cfg!(target_os = "linux")).truncate(false);
    options.open(path)
}

/// True if the open file is still the one at this path.
#[cfg(unix)]
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    match (file.metadata(), path.metadata()) {
        (Ok(open), Ok(there)) => id(open) == id(there),
        _ => false,
    }
}

/// On these systems an open file cannot be removed.
#[cfg(not(unix))]
pub(crate) fn is_at(_file: &File, _path: &Path) -> bool {
    true
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_belongs_to_its_owner_or_to_the_group_of_the_folder() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        for (of_folder, of_file) in [(0o700, 0o600), (0o770, 0o600), (0o2770, 0o660)] {
            let rights = std::fs::Permissions::from_mode(of_folder);
            std::fs::set_permissions(folder.path(), rights).unwrap();
            make_file(&path, rights_in(&path));
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, of_file, "in {of_folder:o}");
            assert_eq!(rights_of(&path), of_file);
            // An existing file keeps its permissions.
            make_file(&path, 0o644);
            assert_eq!(rights_of(&path), of_file);
            std::fs::remove_file(&path).unwrap();
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_file_that_root_creates_beside_a_file_belongs_to_its_owner() {
        use std::os::unix::fs::MetadataExt;
        if !rustix::process::geteuid().is_root() {
            eprintln!("LEFT OUT: only root can make files of other users");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (main, lock) = (folder.path().join("a.db"), folder.path().join("a.db-lock"));
        std::fs::write(&main, "").unwrap();
        std::os::unix::fs::chown(&main, Some(12_345), Some(54_321)).unwrap();
        let made = make_companion(&lock, &main);
        assert!(made.is_some() && made == Id::of(&lock));
        let meta = lock.metadata().unwrap();
        assert_eq!((meta.uid(), meta.gid()), (12_345, 54_321));
        assert_eq!(make_companion(&lock, &main), None, "it is there");
    }
}
