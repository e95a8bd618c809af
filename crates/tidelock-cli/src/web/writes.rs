//! What the page can change: it unlocks a lock, for who knows the token, if the lock is held as they saw it. Every attempt
//! leaves a line on stderr.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, RawQuery, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tidelock::{Escaped, FencingToken};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::exit::{Failure, Outcome, UNAVAILABLE, say};
use crate::inspect::as_text;
use crate::unlock::{Expected, LAST_ANSWER, UNANSWERED, Unlocked, WriteGate, audited, told};
use crate::web::server::Shared;
use crate::web::view::View;

/// The header that has the token. A page of another site cannot send it: a browser would first ask this server whether it
/// may, and gets no yes.
const HEADER: &str = "x-tidelock-write";

/// A shorter token could be guessed.
const SHORTEST: usize = 16;

/// Bounds the body of a write.
const LONGEST_BODY: usize = 64 * 1024;

/// The secret of who may write.
pub(super) struct WriteToken(String);

impl WriteToken {
    /// A random one.
    pub(super) fn random() -> Self {
        Self(uuid::Uuid::new_v4().simple().to_string())
    }

    /// The first line of a file.
    pub(super) fn read(path: &Path) -> Outcome<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::usage(format!(
                "cannot read the token in {}: {error}",
                path.display()
            ))
        })?;
        let token = text.lines().next().unwrap_or_default().trim();
        if token.len() < SHORTEST {
            return Err(Failure::usage(format!(
                "the token in {} is too short: it needs at least {SHORTEST} characters",
                path.display()
            )));
        }
        Ok(Self(token.to_owned()))
    }

    /// For who has started the server.
    pub(super) fn shown(&self) -> &str {
        &self.0
    }

    /// It takes as long for any text of the same length: the time would tell how far a guess is right.
    fn is(&self, text: &[u8]) -> bool {
        let pairs = self.0.bytes().zip(text);
        let differs = pairs.fold(0, |differs, (ours, theirs)| differs | (ours ^ theirs));
        differs == 0 && self.0.len() == text.len()
    }
}

impl fmt::Debug for WriteToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WriteToken(***)")
    }
}

/// The right to write, and the way to the store.
#[derive(Debug)]
pub(super) struct Writes {
    gate: WriteGate,
    /// `None`: nobody may.
    token: Option<WriteToken>,
    /// The requests to unlock that have no answer yet: what is said of each if none comes.
    sent: watch::Sender<BTreeMap<u64, String>>,
}

impl Writes {
    pub(super) fn new(gate: WriteGate, token: Option<WriteToken>) -> Self {
        Self {
            gate,
            token,
            sent: watch::Sender::new(BTreeMap::new()),
        }
    }

    pub(super) fn are_allowed(&self) -> bool {
        self.token.is_some() && self.gate.is_open()
    }

    /// `Err`: the answer to who may not write.
    fn check(&self, headers: &HeaderMap, peer: SocketAddr) -> Result<(), Box<Response>> {
        let Some(token) = self.token.as_ref().filter(|_| self.gate.is_open()) else {
            let why = "read-only: start tidelock web with --write to unlock";
            return Err(Box::new(error(StatusCode::FORBIDDEN, why)));
        };
        let mut given = headers.get_all(HEADER).iter();
        match (given.next(), given.next()) {
            (Some(given), None) if token.is(given.as_bytes()) => Ok(()),
            (given, _) => {
                let what = if given.is_some() {
                    "wrong token"
                } else {
                    "no token"
                };
                say(format!("{peer}: a write was refused: {what}"));
                let why = "this is not the token that tidelock web was started with";
                Err(Box::new(error(StatusCode::FORBIDDEN, why)))
            }
        }
    }

    /// Notes a request to unlock that is sent now. Returns its number.
    fn begin(&self, unanswered: String) -> u64 {
        let mut number = 0;
        self.sent.send_modify(|sent| {
            number = sent.last_key_value().map_or(0, |(last, _)| last + 1);
            sent.insert(number, unanswered);
        });
        number
    }

    /// Says what has come of it, unless it was given up.
    fn end(&self, number: u64, line: impl fmt::Display) {
        self.sent.send_if_modified(|sent| {
            let is_awaited = sent.remove(&number).is_some();
            if is_awaited {
                // We say it before the process that ends can see that nothing is left to wait for; otherwise it could
                // exit without this line.
                say(line);
            }
            is_awaited
        });
    }

    /// Waits for the answers that have not come, and says which requests got none: the store may have done what they
    /// asked for.
    pub(super) async fn finish(&self) {
        for line in self.give_up_after(LAST_ANSWER).await {
            say(line);
        }
    }

    async fn give_up_after(&self, limit: Duration) -> Vec<String> {
        let mut sent = self.sent.subscribe();
        // The sender is in `self`, so this ends with the last answer, or with the time.
        let _ = timeout(limit, sent.wait_for(BTreeMap::is_empty)).await;
        let mut left = BTreeMap::new();
        self.sent.send_modify(|sent| left = std::mem::take(sent));
        left.into_values().collect()
    }
}

/// The body of a request to unlock.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UnlockRequest {
    /// The prefix included.
    name: String,
    owners: Vec<String>,
    /// As text: a script has no numbers of 64 bits.
    token: Option<String>,
}

/// Reads the present holders of a lock, for an operator that wants to unlock it.
pub(super) async fn holder(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    if let Err(refused) = shared.writes.check(&headers, peer) {
        return *refused;
    }
    let View::Lock(name) = View::of(query.as_deref()) else {
        return error(StatusCode::BAD_REQUEST, "name a lock: ?lock=NAME");
    };
    let seen = match shared.writes.gate.look(&name).await {
        Ok(seen) => seen,
        Err(failure) => return error(StatusCode::SERVICE_UNAVAILABLE, &failure.message),
    };
    let owners: Vec<&str> = { seen.holders.iter() }
        .map(|holder| &*holder.owner)
        .collect();
    let token = seen.token.map(FencingToken::get);
    let object = json!({
        "name": seen.name,
        "shown": Escaped(&seen.name).to_string(),
        "held": seen.is_locked(),
        "text": Escaped(as_text(&seen)).to_string(),
        "owners": owners,
        "owners_shown": Escaped(owners.join(" and ")).to_string(),
        "token": token.map(|token| token.to_string()),
    });
    answer(StatusCode::OK, &object)
}

/// Unlocks a lock if it is held as expected.
pub(super) async fn unlock(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if let Err(refused) = shared.writes.check(&headers, peer) {
        return *refused;
    }
    // Not before: a client without the token would keep its connection open for as long as it sends no body.
    let body = match to_bytes(body, LONGEST_BODY).await {
        Ok(body) => body,
        Err(why) => return error(StatusCode::BAD_REQUEST, &why.to_string()),
    };
    let (name, expected) = match read(&body) {
        Ok(request) => request,
        Err(why) => return error(StatusCode::BAD_REQUEST, &why),
    };
    let unanswered = Err(Failure::new(UNAVAILABLE, UNANSWERED));
    let unanswered = format!("{peer}: {}", audited(&name, &expected, &unanswered));
    let number = shared.writes.begin(unanswered);
    let name_of_task = name.clone();
    // A task of its own: a browser that leaves would end this one, and the write would get no line.
    let task = tokio::spawn(async move {
        let outcome = shared.writes.gate.unlock(&name_of_task, &expected).await;
        let line = format!("{peer}: {}", audited(&name_of_task, &expected, &outcome));
        shared.writes.end(number, line);
        outcome
    });
    match task.await {
        Ok(Ok(unlocked)) => {
            let status = match &unlocked {
                Unlocked::Freed => StatusCode::OK,
                Unlocked::WasFree | Unlocked::Changed(_) => StatusCode::CONFLICT,
            };
            let told = Escaped(told(&name, &unlocked)).to_string();
            answer(status, &json!({ "told": told }))
        }
        Ok(Err(failure)) => error(StatusCode::SERVICE_UNAVAILABLE, &failure.message),
        Err(failed) => error(StatusCode::INTERNAL_SERVER_ERROR, &failed.to_string()),
    }
}

fn read(body: &[u8]) -> Result<(String, Expected), String> {
    let request: UnlockRequest = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let token = request.token.map(|token| token.parse::<u64>()).transpose();
    let token = token.map_err(|error| format!("token: {error}"))?;
    if request.owners.is_empty() {
        return Err("owners: name those that are expected to hold the lock".to_owned());
    }
    let owners = request.owners;
    Ok((request.name, Expected { owners, token }))
}

fn error(status: StatusCode, why: &str) -> Response {
    answer(status, &json!({ "error": Escaped(why).to_string() }))
}

fn answer(status: StatusCode, object: &Value) -> Response {
    (
        status,
        [(CONTENT_TYPE, "application/json")],
        format!("{object}\n"),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = WriteToken::random();
        let text = token.shown().to_owned();
        assert!(token.is(text.as_bytes()));
        let mut wrong = vec![String::new(), format!("{text}0"), text[1..].to_owned()];
        wrong.push(text.replace(&text[..1], "-"));
        for wrong in wrong {
            assert!(!token.is(wrong.as_bytes()), "{wrong}");
        }
        assert!(!format!("{token:?}").contains(&text));
    }

    #[tokio::test]
    async fn a_write_without_an_answer_is_named_at_the_end() {
        let client = tidelock::Client::connect("memory:").await.unwrap();
        let writes = Writes::new(WriteGate::new(&client, String::new(), true), None);
        let [first, second] = ["one", "other"].map(|line| writes.begin(line.to_owned()));
        writes.end(first, "one: unlocked");
        assert_eq!(writes.give_up_after(Duration::ZERO).await, ["other"]);
        writes.end(second, "said twice");
        let third = writes.begin("third".to_owned());
        let (left, ()) = tokio::join!(writes.give_up_after(Duration::from_secs(600)), async {
            writes.end(third, "third: unlocked");
        });
        assert!(left.is_empty(), "{left:?}");
        client.close(Duration::ZERO).await;
    }

    #[test]
    fn a_request_names_whom_it_expects() {
        let good = r#"{"name":"job","owners":["a:1"],"token":"18446744073709551615"}"#;
        let (name, expected) = read(good.as_bytes()).unwrap();
        assert_eq!((&*name, expected.token), ("job", Some(u64::MAX)));
        for bad in [
            "",
            "{}",
            r#"{"name":"job"}"#,
            r#"{"name":"job","owners":[]}"#,
            r#"{"name":"job","owners":["a:1"],"token":7}"#,
            r#"{"name":"job","owners":["a:1"],"token":"x"}"#,
            r#"{"name":"job","owners":["a:1"],"force":true}"#,
        ] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
