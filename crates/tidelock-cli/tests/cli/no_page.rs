//! `tidelock web` in a build without it. The page itself is tested on servers.

use crate::bench::Bench;

#[test]
fn a_build_without_the_page_says_how_to_get_it() {
    let bench = Bench::with_a_store();
    let said = bench.output(&["web"]);
    assert_eq!(said.status.code(), Some(64));
    let errors = String::from_utf8(said.stderr).unwrap();
    assert!(errors.contains("--features web"), "{errors}");
}
