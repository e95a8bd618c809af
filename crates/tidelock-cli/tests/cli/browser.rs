//! What the tests of `tidelock web` need of a browser: requests, and an event stream.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::Value;

use crate::bench::{Bench, PATIENCE, Process};

/// A running `tidelock web`, which looks at the store every second.
pub(crate) struct Web {
    process: Child,
    _stdout: BufReader<ChildStdout>,
    /// What it writes to stderr.
    said: PathBuf,
    /// Its address with the port.
    at: String,
}

/// The answer to one request.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Web {
    pub(crate) fn start(bench: &Bench, flags: &[&str]) -> Self {
        let said = bench.path("web.log");
        let web = ["web", "--listen", "127.0.0.1:0", "--every", "1s"];
        let mut process = bench
            .tidelock(&[&web, flags].concat())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&said).unwrap())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let at = line.trim_end().strip_prefix("http://");
        let at = at.and_then(|at| at.strip_suffix('/')).expect("its address");
        Self {
            process,
            _stdout: stdout,
            said,
            at: at.to_owned(),
        }
    }

    /// What it has said. Only once it has ended: it writes on a thread of its own.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.said).unwrap()
    }

    /// Lets it open no more files than this.
    pub(crate) fn limit_files(&self, most: u64) {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap());
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        prlimit(pid, Resource::Nofile, limit).unwrap();
    }

    /// A connection without a request.
    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.at).unwrap()
    }

    /// Sends a request with these lines. An answer of HTTP/1.0 has no chunks.
    pub(crate) fn send(&self, lines: &[&str], body: &str) -> BufReader<TcpStream> {
        let mut stream = self.connect();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = lines.join("\r\n") + "\r\n\r\n" + body;
        stream.write_all(request.as_bytes()).unwrap();
        BufReader::new(stream)
    }

    pub(crate) fn ask(&self, lines: &[&str]) -> Answer {
        self.ask_with(lines, "")
    }

    pub(crate) fn ask_with(&self, lines: &[&str], body: &str) -> Answer {
        let mut text = String::new();
        self.send(lines, body).read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        Answer {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask(&[
            &format!("GET {path} HTTP/1.0"),
            &format!("Host: {}", self.at),
        ])
    }

    pub(crate) fn json(&self) -> Value {
        let answer = self.get("/api/locks");
        assert_eq!(answer.status, 200, "{}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    }

    /// Opens the stream of the page with this query.
    pub(crate) fn events(&self, query: &str) -> Events {
        self.stream(&format!("/events{query}"))
    }

    /// Opens an event stream.
    pub(crate) fn stream(&self, path: &str) -> Events {
        self.stream_with_head(path).1
    }

    /// Opens an event stream. Returns the head of the answer too.
    pub(crate) fn stream_with_head(&self, path: &str) -> (String, Events) {
        let first = format!("GET {path} HTTP/1.0");
        let mut reader = self.send(&[&first, "Host: localhost"], "");
        let mut head = String::new();
        // The head ends with an empty line.
        while reader.read_line(&mut head).unwrap() > "\r\n".len() {}
        assert!(head.contains(" 200 "), "{head}");
        (head.to_ascii_lowercase(), Events(reader))
    }

    /// Sends it a signal, and waits until it has ended.
    pub(crate) fn end_by(&mut self, signal: Signal) -> ExitStatus {
        let process = Process(i32::try_from(self.process.id()).unwrap());
        process.signal(signal);
        process.await_end();
        self.process.wait().unwrap()
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An open event stream.
pub(crate) struct Events(BufReader<TcpStream>);

/// One event of a stream.
#[derive(Debug, Default)]
pub(crate) struct Event {
    /// It grows with each look at the store.
    pub(crate) number: u64,
    /// What the page is to show.
    pub(crate) shows: String,
}

impl Events {
    /// `None`: the stream has ended.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let (number, data) = self.next_data()?;
        let shows = serde_json::from_str(&data).unwrap();
        Some(Event { number, shows })
    }

    /// The number and the data of the next event.
    pub(crate) fn next_data(&mut self) -> Option<(u64, String)> {
        let (mut event, mut data) = (0, String::new());
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some(("id", number)) => event = number.parse().unwrap(),
                Some(("data", part)) => part.clone_into(&mut data),
                None if line.trim_end().is_empty() && event > 0 => return Some((event, data)),
                _ => {}
            }
        }
    }

    /// Waits until the page shows it.
    #[track_caller]
    pub(crate) fn until(&mut self, what: impl Fn(&Event) -> bool) -> Event {
        let begun = Instant::now();
        loop {
            let event = self.next().expect("the stream goes on");
            if what(&event) {
                return event;
            }
            assert!(begun.elapsed() < PATIENCE, "not shown: {}", event.shows);
        }
    }
}
