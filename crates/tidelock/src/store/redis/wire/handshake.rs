//! The handshake: authentication, protocol version, database, and client name, sent as one pipeline.

use crate::error::ErrorKind;
use crate::store::redis::wire::errors::ServerError;
use crate::store::redis::wire::pipeline::{Answer, Pipeline};
use crate::store::redis::wire::reply::{Reply, RequestError};
use crate::store::redis::wire::request::Request;

/// The user, the password, and the database of a connection.
pub(crate) struct HandshakeLogin {
    pub(crate) db: i64,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// We expect a node of a cluster, not a standalone server.
    pub(crate) in_cluster: bool,
}

/// The mode that a server reports in its reply to `HELLO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerMode {
    Standalone,
    ClusterNode,
    /// The server reports another mode, or does not know `HELLO`.
    Unknown,
}

/// Why the handshake failed.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// The server rejected the user or the password.
    Stranger(String),
    /// The connection ended, or the peer does not speak the Redis protocol.
    Ended(String),
    Server(ServerError),
    /// The server is a node of a cluster, but we expect a standalone server.
    ClusterNode,
    /// The server does not have the database. How many it has, if it says so.
    NoDatabase(Option<i64>),
    Other(String),
}

/// Runs the handshake in one round trip. With `pushes` it switches to RESP3, which marks push messages. Connections
/// for commands stay with RESP2: their plain `HELLO` only queries the mode, and the server may reject it.
pub(crate) async fn greet(
    pipeline: &Pipeline,
    login: &HandshakeLogin,
    pushes: bool,
) -> Result<ServerMode, HandshakeError> {
    let user = login.user.as_deref();
    match introduce(pipeline, login, user, pushes).await {
        // A proxy in front of an old server may accept `AUTH` with a password only.
        Err(HandshakeError::Stranger(why))
            if user.is_some() && why.contains("number of arguments") =>
        {
            introduce(pipeline, login, None, pushes).await
        }
        done => done,
    }
}

async fn introduce(
    pipeline: &Pipeline,
    login: &HandshakeLogin,
    user: Option<&str>,
    pushes: bool,
) -> Result<ServerMode, HandshakeError> {
    let requests = login.requests(user, pushes);
    let mut answers = login.exchange(pipeline, &requests).await?.into_iter();
    let mut answer = |asked: bool| if asked { answers.next() } else { None };
    login.check_auth(answer(login.authenticates(pushes)))?;
    let hello = answer(true);
    let mode = mode(hello.as_ref());
    if pushes {
        no_server_error(hello)?;
    }
    // We check the mode before the reply to SELECT. A cluster node refuses every database but 0, and its error
    // message does not help the user.
    if mode == ServerMode::ClusterNode && !login.in_cluster {
        return Err(HandshakeError::ClusterNode);
    }
    match answer(login.selects()) {
        Some(Err(RequestError::Server(error))) if error.is_no_database() => {
            Err(HandshakeError::NoDatabase(databases(pipeline).await))
        }
        selected => no_server_error(selected).map(|()| mode),
    }
}

/// The number of databases of the server. `None`: the user may not ask, or the reply is lost.
async fn databases(pipeline: &Pipeline) -> Option<i64> {
    let request = Request::new("CONFIG").arg("GET").arg("databases");
    let reply = pipeline.send(&request).ok()?.await.ok()?;
    reply.list()?.get(1)?.int()
}

/// Reads the mode from the reply to `HELLO`, which is a list of names and values.
fn mode(hello: Option<&Answer>) -> ServerMode {
    let Some(Ok(Reply::List(requests))) = hello else {
        return ServerMode::Unknown;
    };
    let pairs = requests.chunks_exact(2);
    let said = pairs.filter_map(|pair| Some((pair[0].text()?, pair[1].text()?)));
    match said.into_iter().find(|(name, _)| *name == "mode") {
        Some((_, "cluster")) => ServerMode::ClusterNode,
        Some((_, "standalone")) => ServerMode::Standalone,
        _ => ServerMode::Unknown,
    }
}

impl HandshakeLogin {
    /// Whether the handshake has an `AUTH`. With pushes, `HELLO` carries the password instead.
    fn authenticates(&self, pushes: bool) -> bool {
        !pushes && self.password.is_some()
    }

    fn selects(&self) -> bool {
        self.db != 0
    }

    fn requests(&self, user: Option<&str>, pushes: bool) -> Vec<Request> {
        let mut requests = Vec::with_capacity(5);
        if self.authenticates(pushes) {
            requests.push(self.credentials(Request::new("AUTH"), false, user));
        }
        requests.push(if pushes {
            self.credentials(Request::new("HELLO").arg("3"), true, user)
        } else {
            Request::new("HELLO")
        });
        if self.selects() {
            requests.push(Request::new("SELECT").arg(self.db));
        }
        // For operators that read CLIENT LIST. Old servers do not know the command, and some users are not allowed to
        // run it; we ignore the error.
        let about =
            |what: &str, word: &str| Request::new("CLIENT").arg("SETINFO").arg(what).arg(word);
        requests.push(about("LIB-NAME", "tidelock"));
        requests.push(about("LIB-VER", env!("CARGO_PKG_VERSION")));
        requests
    }

    /// The replies to all requests, or the reason why the connection ended before.
    async fn exchange(
        &self,
        pipeline: &Pipeline,
        requests: &[Request],
    ) -> Result<Vec<Answer>, HandshakeError> {
        let asked = pipeline
            .send_all(requests)
            .map_err(|failure| ended(&failure))?;
        let mut answers = Vec::with_capacity(asked.len());
        for asked in asked {
            let answer = asked.await;
            match &answer {
                Err(failure @ RequestError::Broken(_)) if pipeline.is_over() => {
                    // A server that rejects connections gives the reason before it closes this one.
                    let said = answers.iter().find_map(|answer| self.server_error(answer));
                    return Err(said.unwrap_or_else(|| ended(failure)));
                }
                _ => answers.push(answer),
            }
        }
        Ok(answers)
    }

    /// Checks the reply to `AUTH`, if there was one.
    fn check_auth(&self, answer: Option<Answer>) -> Result<(), HandshakeError> {
        match answer {
            Some(Err(RequestError::Server(server_error))) => {
                // The server is loading, or has too many clients: the password may be right.
                Err(match server_error.error().kind() {
                    ErrorKind::Unavailable => HandshakeError::Server(server_error),
                    _ => HandshakeError::Stranger(self.discreet(&server_error)),
                })
            }
            Some(answer) if !is_ok(&answer) => Err(HandshakeError::Ended(
                "a password was not answered".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    fn credentials(&self, request: Request, hello: bool, user: Option<&str>) -> Request {
        match &self.password {
            None => request,
            Some(password) if hello => {
                let user = user.unwrap_or("default");
                request.arg("AUTH").arg(user).arg(password)
            }
            Some(password) => user.into_iter().fold(request, Request::arg).arg(password),
        }
    }

    /// The error text without the password: a server may repeat the command in its error.
    fn discreet(&self, server_error: &ServerError) -> String {
        let text = server_error.to_string();
        if self.is_repeated_in(&text) {
            "refused".to_owned()
        } else {
            text
        }
    }

    fn is_repeated_in(&self, text: &str) -> bool {
        let password = self.password.as_ref();
        password.is_some_and(|password| text.contains(password))
    }

    /// The server's error, unless it contains the password.
    fn server_error(&self, answer: &Answer) -> Option<HandshakeError> {
        match answer {
            Err(RequestError::Server(server_error))
                if !self.is_repeated_in(&server_error.to_string()) =>
            {
                Some(HandshakeError::Server(server_error.clone()))
            }
            _ => None,
        }
    }
}

fn no_server_error(answer: Option<Answer>) -> Result<(), HandshakeError> {
    match answer {
        Some(Err(RequestError::Server(server_error))) => Err(HandshakeError::Server(server_error)),
        _ => Ok(()),
    }
}

fn is_ok(answer: &Answer) -> bool {
    matches!(answer, Ok(Reply::Text(text)) if text == b"OK")
}

fn ended(failure: &RequestError) -> HandshakeError {
    match failure {
        RequestError::Broken(why) => HandshakeError::Ended(why.clone()),
        RequestError::Server(server_error) => HandshakeError::Server(server_error.clone()),
    }
}

#[cfg(test)]
mod tests;
