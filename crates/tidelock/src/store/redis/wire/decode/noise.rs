//! Seeded replies and seeded noise for the decoder: its output must not depend on how the stream splits the bytes.

use crate::store::redis::wire::decode::{Decoder, Frame, ProtocolError};
use crate::store::redis::wire::errors::ServerError;
use crate::store::redis::wire::reply::{Reply, RequestError};
use crate::store::redis::wire::tests::values::text;

/// Decodes the bytes in pieces whose lengths `cut` returns. Returns all messages, and the error that ended them, if
/// any.
pub(crate) fn said_in(
    bytes: &[u8],
    mut cut: impl FnMut() -> usize,
) -> (Vec<Frame>, Option<ProtocolError>) {
    let (mut decoder, mut said) = (Decoder::default(), Vec::new());
    let (mut start, mut end) = (0, 0);
    while end < bytes.len() {
        end = (end + cut()).min(bytes.len());
        loop {
            match decoder.next(&bytes[start..end]) {
                Ok((used, one)) => {
                    start += used;
                    let Some(one) = one else { break };
                    said.push(one);
                }
                Err(junk) => return (said, Some(junk)),
            }
        }
    }
    (said, None)
}

pub(crate) fn whole(bytes: &[u8]) -> (Vec<Frame>, Option<ProtocolError>) {
    said_in(bytes, || usize::MAX / 2)
}

pub(crate) fn answer(reply: Reply) -> Frame {
    Frame::Answer(Ok(reply))
}

/// Appends a random reply to `bytes`, and returns the value that the decoder must return for it.
fn any(chance: &mut fastrand::Rng, depth: usize, bytes: &mut Vec<u8>) -> Reply {
    match chance.u8(..if depth < 5 { 7 } else { 5 }) {
        0 => {
            bytes.extend(b"$-1\r\n");
            Reply::Nil
        }
        1 => {
            let number = chance.i64(..) >> chance.u8(..64);
            bytes.extend(format!(":{number}\r\n").bytes());
            Reply::Int(number)
        }
        2 => {
            bytes.extend(b"+OK\r\n");
            text("OK")
        }
        3 | 4 => {
            let some: Vec<u8> = (0..chance.usize(..40))
                .map(|_| *chance.choice(b"\r\n$a").unwrap())
                .collect();
            bytes.extend(format!("${}\r\n", some.len()).bytes());
            bytes.extend_from_slice(&some);
            bytes.extend(b"\r\n");
            Reply::Text(some)
        }
        _ => {
            let length = chance.usize(..5);
            bytes.extend(format!("*{length}\r\n").bytes());
            Reply::List((0..length).map(|_| any(chance, depth + 1, bytes)).collect())
        }
    }
}

#[test]
fn however_the_bytes_are_cut_they_say_the_same() {
    for seed in 0..2000 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..chance.usize(1..6) {
            expected.push(answer(any(&mut chance, 0, &mut bytes)));
            if chance.bool() {
                bytes.extend(b"-ERR no\r\n>2\r\n+pong\r\n$1\r\nx\r\n");
                let no = ServerError::new("ERR", "no");
                expected.push(Frame::Answer(Err(RequestError::Server(no))));
                expected.push(Frame::Push(vec![text("pong"), text("x")]));
            }
        }
        let longest = chance.usize(2..50);
        let cuts = said_in(&bytes, || chance.usize(1..longest));
        assert_eq!(cuts, (expected, None), "seed {seed}");
        assert_eq!(said_in(&bytes, || 1), whole(&bytes), "seed {seed}");
    }
}

/// Any bytes yield messages or an error, and the same ones however the stream splits the bytes.
#[test]
fn noise_is_no_danger() {
    const SIGNS: &[u8] = b"+-:$*>%~_,#=!(|0123459-1\r\n\r\n\r\nx";
    for seed in 0..20_000 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut bytes = Vec::new();
        if chance.bool() {
            any(&mut chance, 0, &mut bytes);
            for _ in 0..chance.usize(..3) {
                let at = chance.usize(..bytes.len());
                bytes[at] = *chance.choice(SIGNS).unwrap();
            }
        } else {
            bytes.extend((0..60).map(|_| *chance.choice(SIGNS).unwrap()));
        }
        let cuts = said_in(&bytes, || chance.usize(1..9));
        assert_eq!(cuts, whole(&bytes), "seed {seed}");
    }
}
