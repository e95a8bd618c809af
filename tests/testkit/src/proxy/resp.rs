//! A minimal parser of Redis's protocol: it finds the end of a message and its name.

/// The kind of a message from the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Reply,
    /// Confirms a subscription or its end.
    Confirmation,
    Push,
}

/// The end of the first message in `bytes`: `None` if the message is incomplete, an error if the bytes are no message.
pub(super) fn end(bytes: &[u8]) -> Result<Option<usize>, ()> {
    let (mut at, mut left) = (0, 1_usize);
    while left > 0 {
        let Some((line, next)) = line(bytes, at) else {
            return Ok(None);
        };
        let Some((&kind, number)) = line.split_first() else {
            return Err(());
        };
        at = next;
        left -= 1;
        match kind {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
            b'$' | b'=' | b'!' => at += length(number)?.map_or(0, |length| length + 2),
            b'*' | b'~' | b'>' => left += length(number)?.unwrap_or(0),
            b'%' => left += 2 * length(number)?.unwrap_or(0),
            b'|' => left += 2 * length(number)?.unwrap_or(0) + 1,
            _ => return Err(()),
        }
    }
    Ok((at <= bytes.len()).then_some(at))
}

/// The strings of a message that is a flat list of strings, such as a request.
pub(super) fn strings(message: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let Some((_, mut at)) = line(message, 0) else {
        return found;
    };
    while let Some((head, start)) = line(message, at) {
        let length = match head.split_first() {
            Some((b'$', number)) => length(number).ok().flatten(),
            _ => None,
        };
        let Some(length) = length else {
            at = start;
            continue;
        };
        let Some(string) = message.get(start..start + length) else {
            break;
        };
        found.push(string);
        at = start + length + 2;
    }
    found
}

/// Determines the kind of a server message. RESP3 marks pushes; RESP2 sends them as lists with a known first word.
pub(super) fn kind(message: &[u8]) -> Kind {
    let word = match message.first() {
        Some(b'>' | b'*') => strings(message)
            .first()
            .map_or(Vec::new(), |word| word.to_ascii_lowercase()),
        _ => return Kind::Reply,
    };
    match word.as_slice() {
        b"subscribe" | b"psubscribe" | b"ssubscribe" | b"unsubscribe" | b"punsubscribe"
        | b"sunsubscribe" => Kind::Confirmation,
        b"message" | b"pmessage" | b"smessage" => Kind::Push,
        _ if message.starts_with(b">") => Kind::Push,
        _ => Kind::Reply,
    }
}

fn line(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = bytes.get(at..)?;
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    Some((&rest[..end], at + end + 2))
}

/// `None` for -1, the RESP null.
fn length(number: &[u8]) -> Result<Option<usize>, ()> {
    let number: i64 = std::str::from_utf8(number)
        .map_err(drop)?
        .parse()
        .map_err(drop)?;
    Ok(usize::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_where_they_end() {
        for message in [
            "+OK\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "$2\r\n\r\n\r\n",
            "*2\r\n$4\r\nECHO\r\n$1\r\na\r\n",
            "%1\r\n+a\r\n*2\r\n:1\r\n_\r\n",
            ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n",
        ] {
            let two = format!("{message}+NEXT\r\n");
            assert_eq!(end(two.as_bytes()), Ok(Some(message.len())), "{message:?}");
            for cut in 0..message.len() {
                assert_eq!(
                    end(&message.as_bytes()[..cut]),
                    Ok(None),
                    "{message:?} cut at {cut}"
                );
            }
        }
        assert_eq!(end(b"\x16\x03\x01\r\n"), Err(()));
    }

    #[test]
    fn requests_give_their_words() {
        assert_eq!(
            strings(b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$1\r\nb\r\n"),
            [b"SET".as_slice(), b"", b"b"]
        );
    }

    #[test]
    fn pushes_are_told_from_replies() {
        assert_eq!(
            kind(b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n"),
            Kind::Push
        );
        assert_eq!(
            kind(b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"),
            Kind::Confirmation
        );
        assert_eq!(kind(b"*1\r\n$1\r\nc\r\n"), Kind::Reply);
        assert_eq!(kind(b"-ERR message\r\n"), Kind::Reply);
    }
}
