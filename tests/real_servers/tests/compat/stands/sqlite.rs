//! SQLite: the statements that make the file.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use super::{Stand, WAITERS_LIVE, output};
use crate::scenario::Has;

pub(crate) struct File(TempDir);

impl File {
    fn path(&self) -> PathBuf {
        self.0.path().join("locks.db")
    }

    fn python(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut python = Command::new("python3");
        python
            .args(["-c", program])
            .arg(self.path())
            .args(arguments);
        output(&mut python)
    }
}

impl Stand for File {
    const NAME: &'static str = "sqlite";
    const HAS: Has = Has::ALL_SIDES;

    fn start() -> Result<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    fn dump(&self) -> Result<String> {
        let program = "import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
for name in 'application_id', 'user_version':
    print(f'PRAGMA {name} = {db.execute(\"PRAGMA \" + name).fetchone()[0]};')
print('\\n'.join(line for line in db.iterdump() if line not in ('BEGIN TRANSACTION;', 'COMMIT;')))";
        self.python(program, &[])
    }

    /// Stamps of another boot stay as they are: the store handles them. Only waiters get a stamp of this one, because
    /// they do not outlive a boot for long. Marks have times of the wall clock.
    fn load(&self, text: &str, age: Duration) -> Result<()> {
        let program = "import sqlite3, sys, time
boot = open('/proc/sys/kernel/random/boot_id').read().strip()
offsets = [line.split() for line in open('/proc/self/timens_offsets')]
offset = next('.'.join(words[1:]) for words in offsets if words[0] == 'boottime')
alive = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + int(sys.argv[3]) * 10**9
db = sqlite3.connect(sys.argv[1])
db.executescript(sys.argv[2])
db.execute('UPDATE waiters SET ends = ?, domain = ?', (alive, f'{boot}+{offset}'))
db.commit()";
        let moved = format!(
            "{text}\nUPDATE marks SET ends = ends + {};",
            age.as_millis()
        );
        let live = WAITERS_LIVE.as_secs().to_string();
        self.python(program, &[&moved, &live]).map(drop)
    }
}
