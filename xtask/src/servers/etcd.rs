use std::fs;
use std::os::unix::fs::symlink;

use anyhow::{Context, Result};

use crate::sh::{self, root};

/// An etcd that Debian does not have, built from its Go module.
#[derive(Debug)]
pub(crate) struct NewerEtcd {
    pub(crate) flavour: &'static str,
    version: &'static str,
}

/// The first one shows its status only to users with the role `root`.
pub(crate) const ALL: [NewerEtcd; 2] = [
    NewerEtcd {
        flavour: "etcd36",
        version: "v3.6.5",
    },
    NewerEtcd {
        flavour: "etcd37",
        version: "v3.7.3",
    },
];

impl NewerEtcd {
    /// Builds it into a folder of its own, which tests put in front of their `PATH`.
    pub(super) fn install(&self) -> Result<()> {
        let home = root().join("target/servers").join(self.flavour);
        let server = home.join("server");
        if server.is_file() {
            return Ok(());
        }
        println!("building etcd {}; once, and some minutes", self.version);
        // What an interrupted build has left.
        if home.exists() {
            fs::remove_dir_all(&home)?;
        }
        fs::create_dir_all(home.join("bin"))?;
        let module = "go.etcd.io/etcd/server/v3";
        let wanted = format!("{module}@{}", self.version);
        let steps: [&[&str]; 3] = [
            &["mod", "init", "tidelock/etcd"],
            &["get", &wanted],
            &["build", "-o", "bin/etcd", module],
        ];
        for step in steps {
            let mut go = sh::command("go", step);
            go.current_dir(&home);
            sh::quiet(go).with_context(|| format!("etcd {}", self.version))?;
        }
        // A relative link, so that a copy of the target directory still works. It comes last: it says that all is there.
        Ok(symlink("bin/etcd", &server)?)
    }
}
