//! The replies of a scripted server.

use std::str::Split;

/// The reply with this text.
pub(crate) fn text(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// The reply with a list of these texts.
pub(crate) fn texts(all: &[&str]) -> String {
    let each: String = all.iter().map(|one| text(one)).collect();
    format!("*{}\r\n{each}", all.len())
}

/// The reply to `CLUSTER SLOTS` in a cluster whose only primary has this port and this id.
pub(crate) fn all_slots(port: u16, id: &str) -> String {
    encoded(&format!("[ [ 0 16383 [ 127.0.0.1 {port} '{id} ] ] ]"))
}

/// A reply in the protocol. `'text` is that text, and `+OK` and `-ERR no` are lines. Otherwise the words are values: numbers,
/// `nil`, texts, and lists between `[` and `]`. Among them `'7` is a text too, and `'` the empty one.
pub(crate) fn encoded(reply: &str) -> String {
    if let Some(all) = reply.strip_prefix('\'') {
        return text(all);
    }
    if reply.starts_with(['+', '-']) && reply.parse::<i64>().is_err() {
        return format!("{reply}\r\n");
    }
    let mut words = reply.split(' ');
    let first = words.next().unwrap_or_default();
    value(first, &mut words)
}

fn value(word: &str, rest: &mut Split<'_, char>) -> String {
    if word == "[" {
        let mut each = Vec::new();
        while let Some(word) = rest.next().filter(|word| *word != "]") {
            each.push(value(word, rest));
        }
        return format!("*{}\r\n{}", each.len(), each.concat());
    }
    match (word, word.parse::<i64>()) {
        ("nil", _) => "$-1\r\n".to_owned(),
        (_, Ok(number)) => format!(":{number}\r\n"),
        _ => text(word.strip_prefix('\'').unwrap_or(word)),
    }
}
