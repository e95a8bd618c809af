//! Memcached's meta protocol: builds commands and parses answers. No I/O here.

/// One command, and the shape of its answer.
#[derive(Debug, Clone)]
pub(crate) struct Command {
    pub(crate) bytes: Vec<u8>,
    pub(crate) shape: Shape,
}

/// The shape of an answer, which determines its end.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    /// One line, and the value that it announces, if any.
    One,
    /// Lines up to `END`. Keeps the lines that pass the filter.
    Lines(fn(&str) -> bool),
}

/// The condition under which an item is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StoreMode {
    /// Only if the item does not exist.
    Add,
    /// Only if the item still has this CAS number.
    Replace(u64),
    /// Unconditionally.
    Set,
}

/// An item, with the fields that locks need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) value: Vec<u8>,
    /// CAS number. Each change of the item gives it a new one, within one server run.
    pub(crate) cas: u64,
    /// Whole seconds until the item expires, rounded up. `None`: it does not expire.
    pub(crate) left: Option<u64>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// `HD`: done. With the CAS number of the stored item, if the command requested it.
    Done(Option<u64>),
    /// `VA`: the item.
    Value(Item),
    /// `EN`, `NF`: the item does not exist.
    Missing,
    /// `NS`: not stored, because an item exists.
    NotStored,
    /// `EX`: the item has another CAS number.
    Changed,
    /// The lines that passed the filter.
    Lines(Vec<String>),
    /// Any other line.
    Text(String),
    /// A server error: it could not execute the command, or did not understand it.
    Server(String),
}

impl Command {
    /// Reads an item with value, CAS number and remaining time.
    pub(crate) fn get(key: &str) -> Self {
        Self::one(format!("mg {key} v c t\r\n").into_bytes())
    }

    /// Stores an item with a time to live; see [`ttl`](crate::store::memcached::ttl).
    pub(crate) fn store(key: &str, value: &[u8], ttl: u64, how: StoreMode) -> Self {
        let size = value.len();
        let mut bytes = match how {
            StoreMode::Add => format!("ms {key} {size} ME T{ttl} c\r\n"),
            StoreMode::Replace(cas) => format!("ms {key} {size} C{cas} T{ttl} c\r\n"),
            StoreMode::Set => format!("ms {key} {size} T{ttl}\r\n"),
        }
        .into_bytes();
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\n");
        Self::one(bytes)
    }

    /// Deletes an item if it still has this CAS number.
    pub(crate) fn delete(key: &str, cas: u64) -> Self {
        Self::one(format!("md {key} C{cas}\r\n").into_bytes())
    }

    /// Deletes an item unconditionally.
    pub(crate) fn delete_any(key: &str) -> Self {
        Self::one(format!("md {key}\r\n").into_bytes())
    }

    /// A command without a key.
    pub(crate) fn line(text: &str) -> Self {
        Self::one(format!("{text}\r\n").into_bytes())
    }

    /// A command whose answer has many lines, of which `keep` selects some.
    pub(crate) fn lines(text: &str, keep: fn(&str) -> bool) -> Self {
        Self {
            bytes: format!("{text}\r\n").into_bytes(),
            shape: Shape::Lines(keep),
        }
    }

    /// A command whose answer is one line and perhaps a value.
    pub(crate) fn one(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            shape: Shape::One,
        }
    }
}

/// Receive buffer that splits the bytes into answers.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    /// The lines so far of an answer with many lines.
    lines: Vec<String>,
}

/// Bounds a line, in bytes: a peer that sends a longer one does not speak this protocol.
const MAX_LINE_BYTES: usize = 1 << 16;

/// Bounds a value, in bytes: the most that memcached can be configured to store.
const LONGEST_VALUE: usize = 1 << 30;

const STRANGER: &str = "it does not speak memcached's protocol";

impl Inbox {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether all bytes have become answers.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next answer. `None`: it is incomplete. An error: the bytes are not a valid answer.
    pub(crate) fn next(&mut self, shape: Shape) -> Result<Option<Reply>, String> {
        match shape {
            Shape::One => self.one(),
            Shape::Lines(keep) => self.many(keep),
        }
    }

    /// The first line, without its end. `None`: it is incomplete.
    fn line(&self) -> Result<Option<&str>, String> {
        let Some(end) = self.bytes.windows(2).position(|pair| pair == b"\r\n") else {
            if self.bytes.len() > MAX_LINE_BYTES {
                return Err(STRANGER.to_owned());
            }
            return Ok(None);
        };
        match std::str::from_utf8(&self.bytes[..end]) {
            Ok(line) => Ok(Some(line)),
            Err(_) => Err(STRANGER.to_owned()),
        }
    }

    fn one(&mut self) -> Result<Option<Reply>, String> {
        let Some(line) = self.line()? else {
            return Ok(None);
        };
        let after = line.len() + 2;
        let Some(size) = value_size(line)? else {
            let reply = reply(line);
            self.bytes.drain(..after);
            return Ok(Some(reply));
        };
        let end = after + size;
        if self.bytes.len() < end + 2 {
            return Ok(None);
        }
        if &self.bytes[end..end + 2] != b"\r\n" {
            return Err("a value does not end where it should".to_owned());
        }
        let (cas, left) = flags(line);
        let value = self.bytes[after..end].to_vec();
        self.bytes.drain(..end + 2);
        Ok(Some(Reply::Value(Item { value, cas, left })))
    }

    fn many(&mut self, keep: fn(&str) -> bool) -> Result<Option<Reply>, String> {
        let mut used = 0;
        let mut whole = None;
        // The item list ends its lines with a line feed only.
        while let Some(end) = self.bytes[used..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.bytes[used..used + end]);
            let line = line.strip_suffix('\r').unwrap_or(&line);
            used += end + 1;
            if line == "END" {
                whole = Some(Reply::Lines(std::mem::take(&mut self.lines)));
            } else if let server_error @ Reply::Server(_) = reply(line) {
                // The lines before it are no part of the next answer.
                self.lines.clear();
                whole = Some(server_error);
            } else if keep(line) {
                self.lines.push(line.to_owned());
            }
            if whole.is_some() {
                break;
            }
        }
        // Remove the lines that were read. Otherwise a long list would fill the buffer and exceed the bound below.
        self.bytes.drain(..used);
        if whole.is_none() && self.bytes.len() > MAX_LINE_BYTES {
            return Err(STRANGER.to_owned());
        }
        Ok(whole)
    }
}

/// The length of the value that a line announces. `None`: it announces none.
fn value_size(line: &str) -> Result<Option<usize>, String> {
    let Some(rest) = line.strip_prefix("VA ") else {
        return Ok(None);
    };
    let size = rest.split(' ').next().unwrap_or_default();
    match size.parse() {
        Ok(size) if size <= LONGEST_VALUE => Ok(Some(size)),
        _ => Err(format!("a value of no size: {line}")),
    }
}

/// The CAS number and the remaining seconds in a line that announces a value.
fn flags(line: &str) -> (u64, Option<u64>) {
    let (mut cas, mut left) = (0, None);
    for flag in line.split(' ').skip(2) {
        match flag.split_at_checked(1) {
            Some(("c", number)) => cas = number.parse().unwrap_or(0),
            // -1: the item does not expire.
            Some(("t", number)) => left = number.parse().ok(),
            _ => {}
        }
    }
    (cas, left)
}

fn reply(line: &str) -> Reply {
    let mut words = line.split(' ');
    match words.next().unwrap_or_default() {
        "HD" => Reply::Done(
            words
                .find_map(|word| word.strip_prefix('c'))
                .and_then(|cas| cas.parse().ok()),
        ),
        "EN" | "NF" => Reply::Missing,
        "NS" => Reply::NotStored,
        "EX" => Reply::Changed,
        "ERROR" | "CLIENT_ERROR" | "SERVER_ERROR" | "BUSY" => Reply::Server(line.to_owned()),
        _ => Reply::Text(line.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_cut_wherever_they_were_torn() {
        let said = b"HD c7\r\nVA 4 t30 c9\r\na\r\nb\r\nEN\r\nVA 0 t-1 c1\r\n\r\nEX\r\nNS c0\r\nSERVER_ERROR out of memory\r\n";
        let whole = [
            Reply::Done(Some(7)),
            Reply::Value(Item {
                value: b"a\r\nb".to_vec(),
                cas: 9,
                left: Some(30),
            }),
            Reply::Missing,
            Reply::Value(Item {
                value: Vec::new(),
                cas: 1,
                left: None,
            }),
            Reply::Changed,
            Reply::NotStored,
            Reply::Server("SERVER_ERROR out of memory".to_owned()),
        ];
        for step in 1..said.len() {
            let (mut inbox, mut heard) = (Inbox::default(), Vec::new());
            for piece in said.chunks(step) {
                inbox.push(piece);
                while let Some(reply) = inbox.next(Shape::One).unwrap() {
                    heard.push(reply);
                }
            }
            assert_eq!(heard, whole);
        }
    }

    #[test]
    fn many_lines_are_kept_as_far_as_they_are_wanted() {
        let mut inbox = Inbox::default();
        let wanted: fn(&str) -> bool = |line| line.contains("pid");
        inbox.push(b"STAT pid 7\nSTAT x");
        assert_eq!(inbox.next(Shape::Lines(wanted)), Ok(None));
        inbox.push(b" 1\r\nEND\r\nMN\r\n");
        let lines = Reply::Lines(vec!["STAT pid 7".to_owned()]);
        assert_eq!(inbox.next(Shape::Lines(wanted)), Ok(Some(lines)));
        let next = inbox.next(Shape::One);
        assert_eq!(next, Ok(Some(Reply::Text("MN".to_owned()))));
    }

    #[test]
    fn an_error_in_place_of_the_last_line_ends_the_answer_and_its_lines() {
        let mut inbox = Inbox::default();
        let all: fn(&str) -> bool = |_| true;
        inbox.push(b"key=a exp=1\nkey=b exp=1\nSERVER_ERROR busy\r\nkey=c exp=1\nEND\r\n");
        let refused = Reply::Server("SERVER_ERROR busy".to_owned());
        assert_eq!(inbox.next(Shape::Lines(all)), Ok(Some(refused)));
        let lines = Reply::Lines(vec!["key=c exp=1".to_owned()]);
        assert_eq!(inbox.next(Shape::Lines(all)), Ok(Some(lines)));
        assert!(inbox.is_empty());
    }

    #[test]
    fn a_reply_that_is_no_answer_is_reported() {
        for size in ["many", "-1", "1073741825", "18446744073709551615"] {
            let mut inbox = Inbox::default();
            inbox.push(format!("VA {size} c1\r\nx").as_bytes());
            assert!(inbox.next(Shape::One).is_err(), "{size}");
        }
        let mut inbox = Inbox::default();
        inbox.push(&vec![b'x'; MAX_LINE_BYTES + 1]);
        assert!(inbox.next(Shape::One).is_err());
        for (junk, why) in [
            (
                &b"VA 1 c1\r\nxyz"[..],
                "a value does not end where it should",
            ),
            (b"\xff\r\n", STRANGER),
        ] {
            let mut inbox = Inbox::default();
            inbox.push(junk);
            assert_eq!(inbox.next(Shape::One), Err(why.to_owned()));
        }
    }

    #[test]
    fn a_reply_is_told_by_its_first_word() {
        let server = |text: &str| Reply::Server(text.to_owned());
        let text = |text: &str| Reply::Text(text.to_owned());
        for (line, expected) in [
            ("HD", Reply::Done(None)),
            ("HD O7 c5", Reply::Done(Some(5))),
            ("HD cx", Reply::Done(None)),
            ("EN", Reply::Missing),
            ("NF", Reply::Missing),
            ("NS", Reply::NotStored),
            ("EX", Reply::Changed),
            ("ERROR", server("ERROR")),
            ("CLIENT_ERROR bad", server("CLIENT_ERROR bad")),
            ("SERVER_ERROR bad", server("SERVER_ERROR bad")),
            ("BUSY now", server("BUSY now")),
            ("HDX", text("HDX")),
            ("VERSION 1.6.18", text("VERSION 1.6.18")),
            ("", text("")),
        ] {
            let mut inbox = Inbox::default();
            inbox.push(format!("{line}\r\n").as_bytes());
            assert!(!inbox.is_empty());
            assert_eq!(inbox.next(Shape::One), Ok(Some(expected)), "{line}");
            assert!(inbox.is_empty());
        }
    }

    #[test]
    fn an_item_has_the_number_and_the_time_that_its_line_tells() {
        for (flags, cas, left) in [
            ("c9 t30", 9, Some(30)),
            ("t30 c9", 9, Some(30)),
            ("t-1 c9 f0 s1", 9, None),
            ("t30", 0, Some(30)),
            ("c9 ü", 9, None),
        ] {
            let mut inbox = Inbox::default();
            inbox.push(format!("VA 1 {flags}\r\nx\r\n").as_bytes());
            let value = b"x".to_vec();
            let item = Reply::Value(Item { value, cas, left });
            assert_eq!(inbox.next(Shape::One), Ok(Some(item)), "{flags}");
        }
    }

    #[test]
    fn only_what_no_memcached_sends_is_too_long() {
        let all: fn(&str) -> bool = |_| true;
        for shape in [Shape::One, Shape::Lines(all)] {
            let mut inbox = Inbox::default();
            inbox.push(&vec![b'x'; MAX_LINE_BYTES]);
            assert_eq!(inbox.next(shape), Ok(None));
            inbox.push(b"x");
            assert_eq!(inbox.next(shape), Err(STRANGER.to_owned()));
        }
        // A list may be long.
        let mut inbox = Inbox::default();
        inbox.push(&b"key=a exp=-1\n".repeat(MAX_LINE_BYTES));
        assert_eq!(inbox.next(Shape::Lines(|_| false)), Ok(None));
        assert!(inbox.is_empty());
        // The largest value that a server may be configured to store.
        inbox.push(b"VA 1073741824 c1\r\nx");
        assert_eq!(inbox.next(Shape::One), Ok(None));
    }
}
