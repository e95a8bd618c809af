#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn mutant(id: u32, genre: Genre, start: Position, replacement: &str) -> Mutant {
    Mutant {
        id,
        file: "lib.rs".to_owned(),
        change: format!("change {id}"),
        start,
        replacement: replacement.to_owned(),
        genre,
    }
}

/// The woven text without the comments that name mutants.
fn woven(code: &str, mutants: &[Mutant]) -> String {
    let text = weave(code, &mutants.iter().collect::<Vec<_>>(), "on").unwrap();
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some((before, mark)) = rest.split_once("/*") {
        plain.push_str(before);
        rest = mark.split_once("*/").unwrap().1;
    }
    plain + rest
}

#[test]
fn an_operator_gets_a_switch_with_the_original_in_it() {
    let code = "fn f() -> bool { a == b && c }";
    let changes = [
        mutant(1, Genre::Binary, (1, 20), "!="),
        mutant(2, Genre::Binary, (1, 25), "||"),
    ];
    assert_eq!(
        woven(code, &changes),
        "fn f() -> bool { (if on(2) { a == b || c } else { (if on(1) { a != b } else { a == b }) && c }) }"
    );
}

#[test]
fn a_body_a_guard_and_an_arm_get_switches() {
    let code = "fn f() -> u8 {\n    match x {\n        1 => 2,\n        y if !y => 3,\n        _ => 4,\n    }\n}";
    let changes = [
        mutant(1, Genre::Body, (2, 5), "0"),
        mutant(2, Genre::Arm, (3, 9), ""),
        mutant(3, Genre::Guard, (4, 14), "true"),
        mutant(4, Genre::Unary, (4, 14), ""),
    ];
    let text = woven(code, &changes);
    assert!(
        text.contains("{\n    if on(1) { return 0; } match x"),
        "{text}"
    );
    assert!(text.contains("1 if !on(2)  => 2"), "{text}");
    assert!(
        text.contains("if (if on(3) { true } else { (if on(4) { y } else { !y }) }) => 3"),
        "{text}"
    );
}

#[test]
fn a_chain_with_let_and_a_constant_function_are_left_alone() {
    let chain = "fn f() { if let Some(x) = y && x {} }";
    let change = mutant(1, Genre::Binary, (1, 29), "||");
    assert_eq!(woven(chain, &[change]), chain);
    let constant = "const fn f() -> u8 { 1 }";
    let change = mutant(1, Genre::Body, (1, 22), "0");
    assert_eq!(woven(constant, &[change]), constant);
}

#[test]
fn an_error_belongs_to_the_innermost_switch_around_it() {
    let code = "fn f() -> bool { a == b && c }\nfn g() {}";
    let changes = [
        mutant(1, Genre::Binary, (1, 20), "!="),
        mutant(2, Genre::Binary, (1, 25), "||"),
    ];
    let text = weave(code, &changes.iter().collect::<Vec<_>>(), "on").unwrap();
    let at = |part: &str| {
        let start = text.find(part).unwrap();
        culprits(&text, start..start + part.len())
    };
    assert_eq!(at("!="), [1]);
    assert_eq!(at("on(1)"), [1]);
    assert_eq!(at("||"), [2]);
    assert_eq!(at("fn g"), [1], "the last switch before it");
    assert!(at("fn f").is_empty());
}
