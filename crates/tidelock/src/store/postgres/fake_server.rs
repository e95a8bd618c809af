//! A server for unit tests: it speaks the protocol, and has no database.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// Sends a message of the server.
async fn say(to: &mut DuplexStream, letter: u8, body: &[u8]) {
    let length = u32::try_from(body.len() + 4).unwrap();
    let message = [&[letter][..], &length.to_be_bytes(), body].concat();
    to.write_all(&message).await.unwrap();
}

/// The next message of the client: its letter, and its text. The first has no letter.
async fn hear(from: &mut DuplexStream, has_letter: bool) -> Option<(u8, String)> {
    let letter = if has_letter {
        from.read_u8().await.ok()?
    } else {
        0
    };
    let length = from.read_u32().await.ok()? - 4;
    let mut body = vec![0; usize::try_from(length).unwrap()];
    from.read_exact(&mut body).await.ok()?;
    let text = String::from_utf8_lossy(&body);
    Some((letter, text.trim_end_matches('\0').to_owned()))
}

/// Answers each `EXECUTE` with an error, and each other text with nothing. Returns what it was asked. `error`: the fields
/// of the message.
pub(crate) async fn refusing(mut client: DuplexStream, error: &str) -> Vec<String> {
    let mut asked = Vec::new();
    hear(&mut client, false).await;
    say(&mut client, b'R', &[0, 0, 0, 0]).await;
    say(&mut client, b'Z', b"I").await;
    while let Some((letter, text)) = hear(&mut client, true).await {
        if letter != b'Q' {
            // Of a statement without a name, and of the end.
            asked.push(char::from(letter).to_string());
            continue;
        }
        if text.contains("EXECUTE") {
            say(&mut client, b'E', error.as_bytes()).await;
        } else {
            say(&mut client, b'C', b"PREPARE\0").await;
        }
        say(&mut client, b'Z', b"I").await;
        let words = text.split("; ").filter_map(|text| text.split(' ').next());
        asked.push(words.collect::<Vec<_>>().join(" "));
    }
    asked
}
