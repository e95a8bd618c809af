//! Man pages and completions are up to date.

use std::collections::BTreeMap;
use std::path::Path;

use crate::bench::Bench;

fn files(folder: &Path) -> BTreeMap<String, String> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect()
}

#[test]
fn man_pages_and_completions_are_made_from_the_arguments() {
    let bench = Bench::new();
    let fresh = bench.path("share");
    assert_eq!(bench.code(&["__pages", fresh.to_str().unwrap()]), 0);
    let kept = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("share"));
    let fresh = files(&fresh);
    assert_eq!(
        kept.keys().collect::<Vec<_>>(),
        fresh.keys().collect::<Vec<_>>()
    );
    for (name, text) in fresh {
        assert!(
            kept[&name] == text,
            "{name} is not current: run `cargo run -p tidelock-cli -- __pages crates/tidelock-cli/share`"
        );
        assert!(!text.contains("__supervise"), "{name} lists what is hidden");
    }
}

#[test]
fn completions_and_man_pages_are_printed() {
    let bench = Bench::new();
    for shell in ["bash", "zsh", "fish"] {
        let output = bench.output(&["completions", shell]);
        assert!(output.status.success());
        assert!(
            String::from_utf8(output.stdout)
                .unwrap()
                .contains("tidelock")
        );
    }
    for page in [&["man"][..], &["man", "run"]] {
        let output = bench.output(page);
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        for section in [".SH ENVIRONMENT", ".SH FILES", ".SH EXAMPLES"] {
            assert!(text.contains(section), "{page:?}: {section}");
        }
    }
    assert_eq!(bench.code(&["man", "frobnicate"]), 64);
}
