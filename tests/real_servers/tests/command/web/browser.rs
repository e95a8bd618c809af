//! What the tests need of a browser: requests, and an event stream.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::process::Spawned;

use crate::{SOON, tidelock};

/// A running `tidelock web`.
pub(crate) struct Web {
    pub(crate) process: Spawned,
    /// Its address with the port.
    pub(crate) at: String,
}

/// The answer to one request.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Web {
    /// Looks at the store every second.
    pub(crate) fn start(url: &str, flags: &[&str]) -> Result<Self> {
        let web = ["web", "--listen", "127.0.0.1:0", "--every", "1s"];
        Self::start_by(tidelock(url, &[&web, flags].concat())?)
    }

    /// It waits for each answer of the store for this long at most.
    pub(crate) fn impatient(url: &str, limit: Duration) -> Result<Self> {
        let web = ["web", "--listen", "127.0.0.1:0", "--every", "1s"];
        let mut web = tidelock(url, &web)?;
        let limit = limit.as_millis().to_string();
        web.env("TIDELOCK_RESPONSE_TIMEOUT_MS", limit);
        Self::start_by(web)
    }

    fn start_by(web: std::process::Command) -> Result<Self> {
        let mut process = Spawned::start(web)?;
        let line = process.wait_line("http://", SOON)?;
        let at = line
            .strip_prefix("http://")
            .and_then(|at| at.strip_suffix('/'));
        let at = at.context("an address")?.to_owned();
        Ok(Self { process, at })
    }

    /// Sends a request with these lines. HTTP/1.0 has no chunks.
    fn send(&self, lines: &[&str]) -> Result<BufReader<TcpStream>> {
        let mut stream = TcpStream::connect(&self.at)?;
        stream.set_read_timeout(Some(SOON))?;
        let request = lines.join("\r\n") + "\r\n\r\n";
        stream.write_all(request.as_bytes())?;
        Ok(BufReader::new(stream))
    }

    pub(crate) fn ask(&self, lines: &[&str]) -> Result<Answer> {
        let mut text = String::new();
        self.send(lines)?.read_to_string(&mut text)?;
        let (head, body) = text.split_once("\r\n\r\n").context("no body")?;
        let status = head.split(' ').nth(1).context("no status")?;
        Ok(Answer {
            status: status.parse()?,
            body: body.to_owned(),
        })
    }

    pub(crate) fn get(&self, path: &str) -> Result<Answer> {
        self.ask(&[
            &format!("GET {path} HTTP/1.0"),
            &format!("Host: {}", self.at),
        ])
    }

    /// Opens the stream of the page with this query.
    pub(crate) fn events(&self, query: &str) -> Result<Events> {
        let (first, host) = (
            format!("GET /events{query} HTTP/1.0"),
            format!("Host: {}", self.at),
        );
        let mut reader = self.send(&[&first, &host])?;
        let mut line = String::new();
        reader.read_line(&mut line)?;
        ensure!(line.contains(" 200 "), "{line}");
        while !line.trim_end().is_empty() {
            line.clear();
            reader.read_line(&mut line)?;
        }
        Ok(Events(reader))
    }
}

/// An open event stream.
pub(crate) struct Events(BufReader<TcpStream>);

/// One event of a stream.
#[derive(Debug, Default)]
pub(crate) struct Event {
    /// It grows with each change.
    pub(crate) number: u64,
    /// What the page is to show.
    pub(crate) shows: String,
}

impl Events {
    /// `None`: the stream has ended.
    pub(crate) fn next(&mut self) -> Result<Option<Event>> {
        let mut event = Event::default();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            match line.trim_end().split_once(": ") {
                Some(("id", number)) => event.number = number.parse()?,
                Some(("data", part)) => event.shows = serde_json::from_str(part)?,
                None if line.trim_end().is_empty() && event.number > 0 => return Ok(Some(event)),
                _ => {}
            }
        }
    }

    /// Waits until the page shows it.
    pub(crate) fn until(&mut self, what: impl Fn(&str) -> bool) -> Result<Event> {
        self.until_event(|event| what(&event.shows))
    }

    pub(crate) fn until_event(&mut self, what: impl Fn(&Event) -> bool) -> Result<Event> {
        let begun = Instant::now();
        let mut last = Event::default();
        while begun.elapsed() < SOON * 3 {
            last = self.next()?.context("the stream has ended")?;
            if what(&last) {
                return Ok(last);
            }
        }
        anyhow::bail!("not shown in {:?}: {}", begun.elapsed(), last.shows)
    }
}

/// Between two looks of [`Web`].
pub(crate) const EVERY: Duration = Duration::from_secs(1);
