//! An incremental RESP decoder: turns bytes into replies and pushes, wherever the stream splits them.
//!
//! The algorithm: a stack of open lists. Each complete part, a scalar or the header of a list, is consumed and stored
//! in the innermost open list. A list without missing items closes and becomes an item of the list around it. The
//! outermost one is the reply. An incomplete part is not consumed; the caller passes its bytes again, with more
//! appended. We remember how far we have searched for the end of a line, so a long line is not searched twice.
//!
//! Invariant: memory grows only with bytes that have arrived. A length in a header is only a claim, so we reserve no
//! memory for it, and depth, text, line and total size have limits.

#[cfg(test)]
mod noise;

use crate::store::redis::wire::errors::ServerError;
use crate::store::redis::wire::reply::{Reply, RequestError};

/// The deepest nesting that we accept. No reply that we request goes deeper than a few lists.
const DEEPEST: usize = 32;

/// The longest text that we accept. `INFO`, and the slots of a large cluster, are far shorter.
const MAX_BULK_BYTES: usize = 16 << 20;

/// The longest line that we accept. The longest useful lines are error texts.
const MAX_LINE_BYTES: usize = 64 << 10;

/// The most memory that one reply may take.
const HEAVIEST: usize = 64 << 20;

/// A complete message of the server.
#[derive(Debug, PartialEq)]
pub(crate) enum Frame {
    Answer(Result<Reply, RequestError>),
    /// A push: a published message, or the confirmation of a subscription.
    Push(Vec<Reply>),
}

/// Why the bytes are not RESP, or exceed a limit.
pub(crate) type ProtocolError = &'static str;

/// The state of a reply that is not complete yet.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The incomplete lists, outermost first. Invariant: between two calls each of them misses an item.
    open: Vec<OpenList>,
    /// The memory that the reply takes so far. Above `HEAVIEST` decoding fails.
    weight: usize,
    /// The first error within the reply. It replaces the whole reply.
    last_error: Option<RequestError>,
    /// How many bytes of the current line we have searched for its end.
    searched: usize,
}

#[derive(Debug)]
struct OpenList {
    push: bool,
    left: usize,
    items: Vec<Reply>,
}

/// One part: a scalar, or the header of a list.
enum Part {
    Whole(Reply),
    List {
        push: bool,
        length: usize,
    },
    /// An error reply, or a RESP type that we never request.
    Wrong(RequestError),
}

impl Decoder {
    /// Returns the number of consumed bytes and the message that they complete. Without a message, the caller passes
    /// the remaining bytes again, with more appended.
    pub(crate) fn next(&mut self, bytes: &[u8]) -> Result<(usize, Option<Frame>), ProtocolError> {
        let mut at = 0;
        while let Some((length, part)) = self.part(&bytes[at..])? {
            at += length;
            if let Some(said) = self.take(part)? {
                self.weight = 0;
                return Ok((at, Some(said)));
            }
        }
        Ok((at, None))
    }

    fn take(&mut self, part: Part) -> Result<Option<Frame>, ProtocolError> {
        let item = match part {
            Part::Whole(item) => item,
            Part::Wrong(failure) => {
                self.last_error.get_or_insert(failure);
                Reply::Nil
            }
            Part::List { push, length } => {
                if self.open.len() >= DEEPEST {
                    return Err("an answer that is nested too deeply");
                }
                if push && !self.open.is_empty() {
                    return Err("a push within an answer");
                }
                let items = Vec::with_capacity(length.min(16));
                let left = length;
                self.open.push(OpenList { push, left, items });
                return Ok(self.close());
            }
        };
        let Some(list) = self.open.last_mut() else {
            return Ok(Some(Frame::Answer(self.outcome(item))));
        };
        list.items.push(item);
        list.left -= 1;
        Ok(self.close())
    }

    /// Moves complete lists into the lists around them. Returns the message once the outermost one is complete.
    fn close(&mut self) -> Option<Frame> {
        while let Some(list) = self.open.pop_if(|list| list.left == 0) {
            match self.open.last_mut() {
                Some(around) => {
                    around.items.push(Reply::List(list.items));
                    around.left -= 1;
                }
                None if list.push => {
                    self.last_error = None;
                    return Some(Frame::Push(list.items));
                }
                None => return Some(Frame::Answer(self.outcome(Reply::List(list.items)))),
            }
        }
        None
    }

    fn outcome(&mut self, whole: Reply) -> Result<Reply, RequestError> {
        self.last_error.take().map_or(Ok(whole), Err)
    }

    /// The first part and its length in bytes, if it has arrived completely.
    fn part(&mut self, bytes: &[u8]) -> Result<Option<(usize, Part)>, ProtocolError> {
        let Some((&sign, rest)) = bytes.split_first() else {
            return Ok(None);
        };
        let Some(line) = self.line(rest)? else {
            return Ok(None);
        };
        let head = line.len() + 3;
        let part = match sign {
            b':' => Part::Whole(Reply::Int(number(line)?)),
            b'+' => Part::Whole(Reply::Text(line.to_vec())),
            b'$' | b'=' | b'!' => {
                let Some(length) = length(line)? else {
                    return self.whole(head, Part::Whole(Reply::Nil));
                };
                if length > MAX_BULK_BYTES {
                    return Err("an answer that is too long");
                }
                let Some(rest) = bytes[head..].get(..length + 2) else {
                    return Ok(None);
                };
                let text = rest
                    .strip_suffix(b"\r\n")
                    .ok_or("a text that does not end where it should")?;
                let part = match sign {
                    b'$' => Part::Whole(Reply::Text(text.to_vec())),
                    b'!' => Part::Wrong(unexpected(text)),
                    _ => Part::Wrong(strange()),
                };
                return self.whole(head + length + 2, part);
            }
            b'*' | b'>' | b'~' | b'%' => {
                let Some(length) = length(line)? else {
                    return self.whole(head, Part::Whole(Reply::Nil));
                };
                // We read a map as a list of keys and values; only the reply to HELLO is a map. A set is never
                // requested.
                if sign == b'~' {
                    self.last_error.get_or_insert_with(strange);
                }
                if length > HEAVIEST / size_of::<Reply>() {
                    return Err("a list that is too long");
                }
                Part::List {
                    push: sign == b'>',
                    length: if sign == b'%' { length * 2 } else { length },
                }
            }
            b'-' => Part::Wrong(unexpected(line)),
            b'_' => Part::Whole(Reply::Nil),
            b',' | b'#' | b'(' => Part::Wrong(strange()),
            _ => return Err("bytes that are not RESP"),
        };
        self.whole(head, part)
    }

    fn whole(&mut self, length: usize, part: Part) -> Result<Option<(usize, Part)>, ProtocolError> {
        self.weight += length + size_of::<Reply>();
        if self.weight > HEAVIEST {
            return Err("an answer that is too large");
        }
        Ok(Some((length, part)))
    }

    /// The bytes before the first CRLF.
    fn line<'b>(&mut self, bytes: &'b [u8]) -> Result<Option<&'b [u8]>, ProtocolError> {
        let mut from = self.searched;
        while let Some(end) = bytes[from..].iter().position(|byte| *byte == b'\r') {
            let end = from + end;
            match bytes.get(end + 1) {
                Some(b'\n') => {
                    self.searched = 0;
                    return Ok(Some(&bytes[..end]));
                }
                Some(_) => from = end + 1,
                None => break,
            }
        }
        if bytes.len() > MAX_LINE_BYTES {
            return Err("a line that does not end");
        }
        // The last byte may be the CR of a split CRLF, so we search it again.
        self.searched = bytes.len().saturating_sub(1);
        Ok(None)
    }
}

fn number(line: &[u8]) -> Result<i64, ProtocolError> {
    // The common case: one digit.
    if let [digit @ b'0'..=b'9'] = line {
        return Ok(i64::from(digit - b'0'));
    }
    let text = std::str::from_utf8(line).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or("a number that is none")
}

/// `None`: RESP null.
fn length(line: &[u8]) -> Result<Option<usize>, ProtocolError> {
    match number(line)? {
        -1 => Ok(None),
        length => usize::try_from(length)
            .map(Some)
            .map_err(|_| "a length below zero"),
    }
}

fn unexpected(line: &[u8]) -> RequestError {
    let line = String::from_utf8_lossy(line);
    let (code, text) = line.split_once(' ').unwrap_or((&line, ""));
    RequestError::Server(ServerError::new(code, text))
}

fn strange() -> RequestError {
    RequestError::Broken("an answer of a kind that was not asked for".to_owned())
}

#[cfg(test)]
mod tests {
    use super::noise::{answer, whole};
    use super::*;

    fn junk(bytes: &[u8]) -> ProtocolError {
        whole(bytes).1.expect("it is junk")
    }

    #[test]
    fn an_error_within_a_list_is_the_answer() {
        let (said, _) = whole(b"*3\r\n:1\r\n-OOM first\r\n*1\r\n-ERR second\r\n:7\r\n");
        let first = ServerError::new("OOM", "first");
        let expected = [
            Frame::Answer(Err(RequestError::Server(first))),
            answer(Reply::Int(7)),
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn an_unrequested_reply_is_no_answer_and_hides_none() {
        for strange in [
            "~1\r\n:1\r\n",
            ",1.5\r\n",
            "#t\r\n",
            "(12\r\n",
            "=5\r\ntxt:a\r\n",
        ] {
            let (said, junk) = whole(format!("{strange}:7\r\n").as_bytes());
            assert_eq!(junk, None);
            assert_eq!(said[0], Frame::Answer(Err(super::strange())), "{strange:?}");
            assert_eq!(said[1], answer(Reply::Int(7)), "{strange:?}");
        }
    }

    #[test]
    fn a_claim_costs_nothing() {
        for claim in ["*2000000\r\n", "*2000000\r\n*2000000\r\n", "$16000000\r\n"] {
            let mut decoder = Decoder::default();
            assert_eq!(decoder.next(claim.as_bytes()).unwrap().1, None);
            let reserved: usize = decoder.open.iter().map(|list| list.items.capacity()).sum();
            assert!(reserved < 100);
        }
    }

    #[test]
    fn a_reply_of_the_wrong_shape_is_refused() {
        assert!(junk("*1\r\n".repeat(1_000_000).as_bytes()).contains("deep"));
        assert!(junk(b"$17000000\r\n").contains("long"));
        assert!(junk(b"%9223372036854775807\r\n").contains("long"));
        assert!(junk(&vec![b'+'; MAX_LINE_BYTES + 2]).contains("line"));
        let endless = format!("*2000000\r\n{}", "*1\r\n_\r\n".repeat(2_000_000));
        assert!(junk(endless.as_bytes()).contains("large"));
    }

    #[test]
    fn a_reply_up_to_the_limits_is_read() {
        let most = HEAVIEST / size_of::<Reply>();
        for (part, is_read) in [
            (format!("${MAX_BULK_BYTES}\r\n"), true),
            (format!("${}\r\n", MAX_BULK_BYTES + 1), false),
            (format!("*{most}\r\n"), true),
            (format!("*{}\r\n", most + 1), false),
            (format!("+{}", "x".repeat(MAX_LINE_BYTES)), true),
            (format!("+{}", "x".repeat(MAX_LINE_BYTES + 1)), false),
        ] {
            let next = Decoder::default().next(part.as_bytes());
            assert_eq!(next.is_ok(), is_read, "{part:.20}");
        }
    }

    #[test]
    fn a_reply_may_take_as_much_memory_as_the_limit_says() {
        let long = "x".repeat(15 << 20);
        let text = format!("${}\r\n{long}\r\n", long.len());
        for (count, is_read) in [(4, true), (5, false)] {
            let mut decoder = Decoder::default();
            let head = format!("*{count}\r\n");
            assert_eq!(decoder.next(head.as_bytes()), Ok((head.len(), None)));
            let mut texts = (0..count).map(|_| decoder.next(text.as_bytes()));
            assert_eq!(texts.all(|next| next.is_ok()), is_read, "{count}");
        }
    }

    /// A connection lives for months.
    #[test]
    fn the_limit_of_one_reply_is_not_that_of_all() {
        let long = "x".repeat(3 << 20);
        let bytes = format!("${}\r\n{long}\r\n", long.len());
        let mut decoder = Decoder::default();
        for _ in 0..12 {
            let (used, said) = decoder.next(bytes.as_bytes()).unwrap();
            assert_eq!(used, bytes.len());
            let expected = answer(Reply::Text(long.clone().into_bytes()));
            assert!(said == Some(expected), "it is another text");
        }
    }

    #[test]
    fn every_form_of_an_error_and_of_nothing_is_understood() {
        let error = || RequestError::Server(ServerError::new("OOM", "no memory"));
        for (bytes, expected) in [
            ("-OOM no memory\r\n", Err(error())),
            ("!13\r\nOOM no memory\r\n", Err(error())),
            ("_\r\n", Ok(Reply::Nil)),
            ("$-1\r\n", Ok(Reply::Nil)),
            ("*-1\r\n", Ok(Reply::Nil)),
        ] {
            let said = whole(bytes.as_bytes());
            assert_eq!(said, (vec![Frame::Answer(expected)], None), "{bytes:?}");
        }
    }

    #[test]
    fn bytes_that_no_redis_sends_are_refused() {
        let tls_alert = b"\x15\x03\x03\x00\x02\x02\x46\r\n";
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            tls_alert,
            b":\r\n",
            b":1x\r\n",
            b"$-2\r\n",
            b"$1\r\nabc\r\n",
            b"*1\r\n>1\r\n+a\r\n",
        ] {
            junk(bytes);
        }
    }
}
