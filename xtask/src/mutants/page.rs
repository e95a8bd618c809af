//! Writes the record and docs/mutants.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};

use super::build::LeftOut;
use super::list::Mutant;
use super::results::{Results, Through};
use super::survivors::{self, OPEN};
use super::trial::Outcome;
use crate::page::{self, percent};
use crate::rooms::{ROOMS, room};
use crate::sh::{command, quiet, root};

const PAGE: &str = "docs/mutants.md";

/// One line for each file: what is known of it, and since when.
const RECORD: &str = "xtask/mutants/record.tsv";

/// The numbers of mutants of a file or of a room, by outcome.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Figures {
    mutants: usize,
    unviable: usize,
    no_switch: usize,
    not_here: usize,
    own: usize,
    servers: usize,
    hung: usize,
    survived: usize,
}

impl Figures {
    const HEAD: &'static str =
        "mutants\tunviable\tno-switch\tnot-here\tcaught-own\tcaught-servers\thung\tsurvived";

    fn columns(&self) -> [usize; 8] {
        let Self {
            mutants,
            unviable,
            no_switch,
            not_here,
            own,
            servers,
            hung,
            survived,
        } = *self;
        [
            mutants, unviable, no_switch, not_here, own, servers, hung, survived,
        ]
    }

    fn of_columns(columns: [usize; 8]) -> Self {
        let [
            mutants,
            unviable,
            no_switch,
            not_here,
            own,
            servers,
            hung,
            survived,
        ] = columns;
        Self {
            mutants,
            unviable,
            no_switch,
            not_here,
            own,
            servers,
            hung,
            survived,
        }
    }

    fn add(&mut self, other: &Self) {
        let mut sum = self.columns();
        for (sum, more) in sum.iter_mut().zip(other.columns()) {
            *sum += more;
        }
        *self = Self::of_columns(sum);
    }

    fn tried(&self) -> usize {
        self.caught() + self.survived
    }

    fn caught(&self) -> usize {
        self.own + self.servers + self.hung
    }
}

/// A line of the record: the figures, the date, and the commit.
type Line = (Figures, String);

pub(super) fn write(mutants: &[Mutant], results: &Results) -> Result<()> {
    let path = root().join(RECORD);
    let mut record = read(&fs::read_to_string(&path).unwrap_or_default());
    let commit = quiet(command("git", &["rev-parse", "--short=9", "HEAD"]))?;
    let since = format!("{}\t{}", page::today()?, commit.trim());
    let listed: BTreeSet<&str> = mutants.iter().map(|it| it.file.as_str()).collect();
    record.retain(|file, _| listed.contains(file.as_str()));
    for (file, figures) in count(mutants, results) {
        // A file that was measured completely on another machine keeps its line until it has been tried as far here.
        let known = record.get(&file).map_or(0, |(figures, _)| figures.tried());
        let same = record
            .get(&file)
            .is_some_and(|(before, _)| *before == figures);
        let looked_at = figures.tried() + figures.unviable + figures.no_switch > 0;
        if figures.tried() >= known && looked_at && !same {
            record.insert(file, (figures, since.clone()));
        }
    }
    let mut text = format!("file\t{}\tdate\tcommit\n", Figures::HEAD);
    for (file, (figures, since)) in &record {
        let columns = figures.columns().map(|it| it.to_string()).join("\t");
        let _ = writeln!(text, "{file}\t{columns}\t{since}");
    }
    fs::create_dir_all(path.parent().context("no folder")?)?;
    fs::write(path, text)?;
    page::rewrite(PAGE, "Results", &body(mutants, &record)?)
}

/// The figures of each file, from what was tried here.
fn count(mutants: &[Mutant], results: &Results) -> BTreeMap<String, Figures> {
    let omitted = results.omitted(mutants);
    let mut files: BTreeMap<String, Figures> = BTreeMap::new();
    for mutant in mutants {
        let figures = files.entry(mutant.file.clone()).or_default();
        figures.mutants += 1;
        match omitted.get(&mutant.id) {
            Some(LeftOut::Unviable) => figures.unviable += 1,
            Some(LeftOut::NoSwitch) => figures.no_switch += 1,
            Some(LeftOut::NotHere) => figures.not_here += 1,
            None => {}
        }
        let Some(found) = results.found.get(&mutant.key()) else {
            continue;
        };
        match (&found.outcome, found.through) {
            (Outcome::Caught(_), Through::Own) => figures.own += 1,
            (Outcome::Caught(_), Through::Servers) => figures.servers += 1,
            (Outcome::Hung, _) => figures.hung += 1,
            (Outcome::Survived | Outcome::Unreached, _) => figures.survived += 1,
        }
    }
    files
}

fn read(text: &str) -> BTreeMap<String, Line> {
    let parse = |line: &str| {
        let (file, rest) = line.split_once('\t')?;
        let mut columns = rest.splitn(9, '\t');
        let mut numbers = [0; 8];
        for number in &mut numbers {
            *number = columns.next()?.parse().ok()?;
        }
        let figures = Figures::of_columns(numbers);
        Some((file.to_owned(), (figures, columns.next()?.to_owned())))
    };
    text.lines().filter_map(parse).collect()
}

fn body(mutants: &[Mutant], record: &BTreeMap<String, Line>) -> Result<String> {
    let list = survivors::read()?;
    let mut rooms: BTreeMap<&str, (Figures, usize)> = BTreeMap::new();
    let mut all = (Figures::default(), 0);
    let files: BTreeSet<&str> = mutants.iter().map(|it| it.file.as_str()).collect();
    for file in files {
        let total = mutants.iter().filter(|it| it.file == file).count();
        let unknown = Figures {
            mutants: total,
            ..Figures::default()
        };
        let mut figures = record.get(file).map_or(unknown, |line| line.0.clone());
        figures.mutants = total;
        let reasons = list.iter().filter(|(key, reason)| {
            let of = key.split_once(": ").map_or("", |it| it.0);
            of == file && *reason != OPEN
        });
        let reasons = reasons.count();
        for sum in [rooms.entry(room(file)).or_default(), &mut all] {
            sum.0.add(&figures);
            sum.1 += reasons;
        }
    }
    let mut text = String::from("Written by `cargo xtask mutants`.\n\n");
    text.push_str(
        "| room | mutants | do not compile | not tried | tried | caught without a server | caught on servers | hung | \
         survived | with a reason | caught of those tried |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for room in ROOMS {
        if let Some(figures) = rooms.get(room) {
            row(&mut text, room, figures);
        }
    }
    row(&mut text, "all", &all);
    reasons(&mut text, &list);
    Ok(text)
}

fn row(text: &mut String, name: &str, (figures, reasons): &(Figures, usize)) {
    let Figures {
        mutants,
        unviable,
        own,
        servers,
        hung,
        survived,
        ..
    } = figures;
    let tried = figures.tried();
    let open = mutants.saturating_sub(unviable + tried);
    let share = percent(figures.caught(), tried);
    let _ = writeln!(
        text,
        "| {name} | {mutants} | {unviable} | {open} | {tried} | {own} | {servers} | {hung} | {survived} | {reasons} | {share} |"
    );
}

/// The survivors that have a reason, by reason.
fn reasons(text: &mut String, list: &BTreeMap<String, String>) {
    let open = list.values().filter(|it| *it == OPEN).count();
    let _ = writeln!(
        text,
        "\n### Survivors with a reason\n\n{open} more are open: nobody has looked at them yet, or their test is still to be written. \
         All are in [`survivors.tsv`](../xtask/mutants/survivors.tsv).\n"
    );
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (key, reason) in list.iter().filter(|it| it.1 != OPEN) {
        by_reason.entry(reason).or_default().push(key);
    }
    if by_reason.is_empty() {
        return;
    }
    text.push_str("| mutant | why no test has to notice it |\n| --- | --- |\n");
    for (reason, keys) in by_reason {
        let keys: Vec<String> = keys
            .iter()
            .map(|key| format!("`{}`", key.replace('|', "\\|")))
            .collect();
        let _ = writeln!(text, "| {} | {reason} |", keys.join("<br>"));
    }
}
