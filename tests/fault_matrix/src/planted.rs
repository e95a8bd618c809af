//! The bugs that tests plant, for the pages that list them.

/// Each bug that a file of tests plants, with the test that must find it. Such a test calls `finds`, and names the bug first.
pub(crate) fn in_tests(file: &str) -> Vec<(&str, &str)> {
    let found = file.split("\nfn ").filter_map(|test| {
        let (name, body) = test.split_once('(')?;
        let (_, call) = body.split_once("    finds(\"")?;
        let (bug, _) = call.split_once('"')?;
        Some((bug, name))
    });
    found.collect()
}
