//! What has been found out so far, in `xtask/mutants`. It is committed, so a run of hours can be done in parts, and on
//! several machines.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::build::{LeftOut, Omitted};
use super::list::Mutant;
use super::project::Project;
use super::trial::Outcome;
use crate::sh::{command, quiet};

/// The tests that have been tried on a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Through {
    /// Those of the library, without a server.
    Own,
    /// Those on real servers as well.
    Servers,
}

/// What became of a mutant, and how hard was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) outcome: Outcome,
    pub(super) through: Through,
}

/// The findings about the files as they are now.
#[derive(Debug)]
pub(super) struct Results {
    path: PathBuf,
    hashes: HashMap<String, String>,
    pub(super) found: BTreeMap<String, Finding>,
    left_out: PathBuf,
}

impl Results {
    pub(super) fn read(project: &Project, mutants: &[Mutant]) -> Result<Self> {
        let folder = project.home.join("xtask/mutants");
        let mut results = Self {
            path: folder.join("results.tsv"),
            hashes: hashes(project, mutants)?,
            found: BTreeMap::new(),
            left_out: folder.join("left-out.tsv"),
        };
        for line in fs::read_to_string(&results.path)
            .unwrap_or_default()
            .lines()
        {
            if let Some((key, finding)) = results.parse(line) {
                results.found.insert(key, finding);
            }
        }
        Ok(results)
    }

    /// A line about a file that has changed since then says nothing.
    fn parse(&self, line: &str) -> Option<(String, Finding)> {
        let columns: Vec<&str> = line.split('\t').collect();
        let [hash, key, through, outcome, by] = columns.as_slice() else {
            return None;
        };
        let (file, _) = key.split_once(": ")?;
        let outcome = match *outcome {
            "caught" => Outcome::Caught((*by).to_owned()),
            "hung" => Outcome::Hung,
            "survived" => Outcome::Survived,
            "unreached" => Outcome::Unreached,
            _ => return None,
        };
        let through = match *through {
            "own" => Through::Own,
            _ => Through::Servers,
        };
        let known = self.hashes.get(file)? == hash;
        known.then(|| ((*key).to_owned(), Finding { outcome, through }))
    }

    pub(super) fn add(&mut self, mutant: &Mutant, finding: Finding) -> Result<()> {
        let key = mutant.key();
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)?;
        file.write_all(self.line(&mutant.file, &key, &finding).as_bytes())?;
        self.found.insert(key, finding);
        Ok(())
    }

    fn line(&self, file: &str, key: &str, finding: &Finding) -> String {
        let (outcome, by) = match &finding.outcome {
            Outcome::Caught(by) => ("caught", by.as_str()),
            Outcome::Hung => ("hung", ""),
            Outcome::Survived => ("survived", ""),
            Outcome::Unreached => ("unreached", ""),
        };
        let through = match finding.through {
            Through::Own => "own",
            Through::Servers => "servers",
        };
        let hash = &self.hashes[file];
        format!("{hash}\t{key}\t{through}\t{outcome}\t{by}\n")
    }

    /// Deletes the lines about files that have changed, and sorts the others: [`add`](Self::add) appends, so that a run that
    /// is killed has kept its findings.
    pub(super) fn tidy(&self) -> Result<()> {
        let lines = self.found.iter().filter_map(|(key, finding)| {
            let (file, _) = key.split_once(": ")?;
            Some(self.line(file, key, finding))
        });
        Ok(fs::write(&self.path, lines.collect::<String>())?)
    }

    /// The mutants that an earlier run has found not to compile here.
    pub(super) fn omitted(&self, mutants: &[Mutant]) -> Omitted {
        let ids: HashMap<String, u32> = mutants.iter().map(|it| (it.key(), it.id)).collect();
        let lines = fs::read_to_string(&self.left_out).unwrap_or_default();
        let read = |line: &str| {
            let mut columns = line.split('\t');
            let (hash, key, class) = (columns.next()?, columns.next()?, columns.next()?);
            let (file, _) = key.split_once(": ")?;
            let known = self.hashes.get(file)? == hash;
            let class = LeftOut::ALL.iter().find(|it| it.1 == class)?.0;
            known.then_some((*ids.get(key)?, class))
        };
        lines.lines().filter_map(read).collect()
    }

    pub(super) fn keep_omitted(&self, mutants: &[Mutant], omitted: &Omitted) -> Result<()> {
        let mut text = String::new();
        for mutant in mutants {
            let Some(class) = omitted.get(&mutant.id) else {
                continue;
            };
            let name = LeftOut::ALL.iter().find(|it| it.0 == *class);
            let name = name.map_or("", |it| it.1);
            let hash = &self.hashes[&mutant.file];
            let _ = writeln!(text, "{hash}\t{}\t{name}", mutant.key());
        }
        Ok(fs::write(&self.left_out, text)?)
    }

    /// The files that were sorted out already have one mutant or more that is in the build or left out; so we keep a list.
    pub(super) fn sorted(&self) -> Vec<String> {
        let path = self.left_out.with_extension("done");
        let text = fs::read_to_string(path).unwrap_or_default();
        let same = |line: &&str| {
            let parts = line.split_once('\t');
            parts.is_some_and(|(hash, file)| self.hashes.get(file).is_some_and(|it| it == hash))
        };
        let lines = text.lines().filter(same);
        lines
            .filter_map(|line| Some(line.split_once('\t')?.1.to_owned()))
            .collect()
    }

    pub(super) fn keep_sorted(&self, mutants: &[&Mutant]) -> Result<()> {
        let mut files = self.sorted();
        files.extend(mutants.iter().map(|it| it.file.clone()));
        files.sort_unstable();
        files.dedup();
        let lines = files
            .iter()
            .map(|file| format!("{}\t{file}\n", self.hashes[file]));
        let path = self.left_out.with_extension("done");
        Ok(fs::write(path, lines.collect::<String>())?)
    }
}

/// The first digits of the name that git gives to the content of each file.
fn hashes(project: &Project, mutants: &[Mutant]) -> Result<HashMap<String, String>> {
    let mut files: Vec<&str> = mutants.iter().map(|it| it.file.as_str()).collect();
    files.sort_unstable();
    files.dedup();
    let mut git = command("git", &["hash-object", "--"]);
    git.args(&files);
    git.current_dir(project.home.join(&project.sources));
    let said = quiet(git)?;
    let hashes: Vec<&str> = said.lines().collect();
    ensure!(hashes.len() == files.len(), "git hash-object said {said}");
    let pairs = files.iter().zip(hashes);
    Ok(pairs
        .map(|(file, hash)| ((*file).to_owned(), hash.chars().take(12).collect()))
        .collect())
}
