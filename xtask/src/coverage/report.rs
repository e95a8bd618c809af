//! The table of the page, and the list of places that no test has reached.

use std::fmt::Write as _;

use super::lines::File;
use crate::page::percent;
use crate::rooms::{ROOMS, room};

/// How many places `--show` lists.
const LONGEST: usize = 60;

/// The table of the page: a row for each room.
pub(super) fn table(files: &[File]) -> String {
    let mut text = String::from(
        "| room | files | lines with code | reached | not reached | share |\n\
         | --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for name in ROOMS {
        let files = files.iter().filter(|file| room(&file.name) == name);
        row(&mut text, name, files);
    }
    row(&mut text, "all", files.iter());
    text
}

fn row<'a>(text: &mut String, name: &str, files: impl Iterator<Item = &'a File>) {
    let (mut count, mut lines, mut reached) = (0, 0, 0);
    for file in files {
        count += 1;
        lines += file.lines.len();
        reached += file.lines.values().filter(|reached| **reached).count();
    }
    let _ = writeln!(
        text,
        "| {name} | {count} | {lines} | {reached} | {} | {} |",
        lines - reached,
        percent(reached, lines)
    );
}

/// The places of a room that no test has reached, the longest first.
pub(super) fn unreached(files: &[File], wanted: &str) -> String {
    let files = files.iter().filter(|file| room(&file.name) == wanted);
    let mut places: Vec<(usize, String)> = files.flat_map(places).collect();
    places.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let mut text = String::new();
    for (lines, place) in places.iter().take(LONGEST) {
        let _ = writeln!(text, "{lines:>4} lines  {place}");
    }
    text
}

/// The places of a file without a reached line in between: how many lines each has, and where it begins and ends.
fn places(file: &File) -> Vec<(usize, String)> {
    let lines: Vec<(usize, bool)> = file.lines.iter().map(|(at, seen)| (*at, *seen)).collect();
    let runs = lines.chunk_by(|a, b| a.1 == b.1).filter(|run| !run[0].1);
    let named = runs.map(|run| {
        let (from, to) = (run[0].0, run[run.len() - 1].0);
        (run.len(), format!("{}:{from}-{to}", file.name))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, reached: &[bool]) -> File {
        File {
            name: name.to_owned(),
            lines: (1..).zip(reached.iter().copied()).collect(),
        }
    }

    #[test]
    fn rooms_are_summed() {
        let files = [
            file("engine/a.rs", &[true, false, true, false]),
            file("engine/b.rs", &[true]),
            file("lock.rs", &[false]),
        ];
        let text = table(&files);
        assert!(
            text.contains("| engine | 2 | 5 | 3 | 2 | 60.0 % |"),
            "{text}"
        );
        assert!(text.contains("| redis | 0 | 0 | 0 | 0 | – |"), "{text}");
        assert!(
            text.ends_with("| all | 3 | 6 | 3 | 3 | 50.0 % |\n"),
            "{text}"
        );
    }

    #[test]
    fn the_longest_place_comes_first() {
        let files = [
            file("engine/a.rs", &[false, true, false, false]),
            file("lock.rs", &[false]),
        ];
        let expected = "   2 lines  engine/a.rs:3-4\n   1 lines  engine/a.rs:1-1\n";
        assert_eq!(unreached(&files, "engine"), expected);
    }
}
