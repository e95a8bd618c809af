//! The manifests in docs/kubernetes, checked against the schemas of Kubernetes.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::Tally;
use crate::sh::{self, root};
use crate::tools;

/// The oldest version that upstream still maintained when the manifests were written.
const KUBERNETES: &str = "1.31";

pub(super) fn manifests(_: &mut Tally) -> Result<()> {
    let folder = root().join("docs/kubernetes");
    let mut paths = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        paths.push(entry?.path().to_string_lossy().into_owned());
    }
    ensure!(!paths.is_empty(), "no manifests in {}", folder.display());
    let program = tools::kubernetes_validate()?;
    // Strict: a misspelt field is an error. The server of a cluster would ignore it.
    let mut check = sh::command(
        &program.to_string_lossy(),
        &["--strict", "--kubernetes-version", KUBERNETES],
    );
    check.args(paths);
    sh::run(check)
}
