//! Locks on single bytes of a file (open file description locks). A process that waits for one sleeps in the kernel, a
//! release wakes one waiter, and the end of a process frees its locks.

/// One open file. Its locks exclude those of every other open file, even within this process.
#[derive(Debug)]
pub(crate) struct ByteLocks(#[cfg(target_os = "linux")] std::fs::File);

#[cfg(target_os = "linux")]
mod linux {
    use std::io::Result;
    use std::path::Path;

    use nix::errno::Errno;
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc::{self, c_int, c_short};

    use super::ByteLocks;
    use crate::store::sqlite::creation;

    fn byte(what: c_int, at: i64) -> libc::flock {
        let short = |number: c_int| c_short::try_from(number).unwrap_or_default();
        #[allow(
            clippy::unnecessary_fallible_conversions,
            clippy::useless_conversion,
            reason = "of 32 bits on some systems"
        )]
        let start = libc::off_t::try_from(at).or_else(|_| libc::off_t::try_from(at & 0x7fff_ffff));
        libc::flock {
            l_type: short(what),
            l_whence: short(libc::SEEK_SET),
            l_start: start.unwrap_or_default(),
            l_len: 1,
            // These locks belong to an open file, not to a process; the kernel requires 0 here.
            l_pid: 0,
        }
    }

    impl ByteLocks {
        pub(crate) fn on(file: &Path) -> Result<Self> {
            creation::open_companion(file).map(Self)
        }

        /// Blocks until the byte is locked.
        pub(crate) fn lock(&self, at: i64) -> Result<()> {
            let byte = byte(libc::F_WRLCK, at);
            loop {
                match fcntl(&self.0, FcntlArg::F_OFD_SETLKW(&byte)) {
                    Ok(_) => return Ok(()),
                    Err(Errno::EINTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }

        /// Returns false if another open file has locked the byte.
        pub(crate) fn try_lock(&self, at: i64) -> Result<bool> {
            match fcntl(&self.0, FcntlArg::F_OFD_SETLK(&byte(libc::F_WRLCK, at))) {
                Ok(_) => Ok(true),
                Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
                Err(error) => Err(error.into()),
            }
        }

        pub(crate) fn unlock(&self, at: i64) {
            // Unlocking a byte that is not locked is no error, and no other error can occur.
            let _ = fcntl(&self.0, FcntlArg::F_OFD_SETLK(&byte(libc::F_UNLCK, at)));
        }

        /// True if another open file has locked the byte.
        pub(crate) fn is_taken(&self, at: i64) -> bool {
            let mut found = byte(libc::F_WRLCK, at);
            fcntl(&self.0, FcntlArg::F_OFD_GETLK(&mut found)).is_ok()
                && c_int::from(found.l_type) != libc::F_UNLCK
        }
    }
}

/// Other systems lack locks that last as long as the open file. Theirs end when any descriptor of the file is closed.
#[cfg(not(target_os = "linux"))]
impl ByteLocks {
    pub(crate) fn on(_file: &std::path::Path) -> std::io::Result<Self> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn lock(&self, _at: i64) -> std::io::Result<()> {
        Ok(())
    }

    pub(crate) fn try_lock(&self, _at: i64) -> std::io::Result<bool> {
        Ok(true)
    }

    pub(crate) fn unlock(&self, _at: i64) {}

    pub(crate) fn is_taken(&self, _at: i64) -> bool {
        false
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::fs::{FlockOperation, fcntl_lock};

    use super::ByteLocks;

    /// SQLite's locks on `-shm` belong to the process: they end when it closes any descriptor of the file.
    #[test]
    fn a_link_in_the_place_of_the_companion_ends_no_lock_on_its_target() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (target, link) = (path("a.db-shm"), path("a.db-lock"));
        std::fs::write(&target, "").unwrap();
        let others = ByteLocks::on(&target).unwrap();
        let mut options = std::fs::File::options();
        let sqlite = options.read(true).write(true).open(&target).unwrap();
        fcntl_lock(&sqlite, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(others.is_taken(0));
        std::fs::hard_link(&target, &link).unwrap();
        ByteLocks::on(&link).unwrap_err();
        assert!(others.is_taken(0), "the lock of this process has ended");
    }
}
