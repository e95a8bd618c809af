//! A live connection: one stream, its pipeline, and the task that drives both.
//!
//! The algorithm:
//!
//! 1. `open` spawns the driver on the current runtime and performs the handshake through the pipeline.
//! 2. A request appends its bytes to the pipeline and takes the last place in the order of replies. The driver sends
//!    the bytes and assigns each reply to the first place ([`decode`](crate::store::redis::wire::decode) turns bytes into replies).
//! 3. A caller that leaves keeps its place. The driver discards the reply when it arrives.
//! 4. With a push handler the connection serves subscriptions. Every push goes to the handler. A confirmation also
//!    completes the request at the first place, if it names that request's command and channel.
//!
//! ```text
//!             stream connected
//!                    │ open
//!                    ▼
//!               handshake ───────── refused, or end of stream ────────┐
//!                    │ accepted                                       │
//!                    ▼                                                ▼
//!                  alive ──── end of stream, I/O error, junk, ────► ended
//!                             cut, last user dropped, runtime gone
//! ```
//!
//! Invariants:
//! 1. Replies go to requests in the order in which the requests were queued. A reply that cannot belong to the first
//!    request ends the connection: no later reply could be trusted.
//! 2. The requests of one `ask_all` are adjacent on the wire. `ASKING` and its command are adjacent too.
//! 3. A queued request is sent even if its caller leaves, unless the connection ends first.
//! 4. An ended connection stays ended. Every caller without a reply gets an error at once; a new request fails unsent.
//! 5. This layer has no retries and no timeouts: the reconnecting connection above it has both. For a caller that leaves
//!    before its deadline, this layer remembers the deadline until the reply has come.
//! 6. The connection ends as soon as its stream does, also without a request in flight.
//!
//! Lock order: one mutex per connection, in the pipeline, and it is the last one to take. No waker is called or dropped
//! and no push handler runs while it is held.

#[cfg(test)]
pub(crate) mod peer;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::engine::runtime::background;
use crate::engine::runtime::background::AbortOnDrop;
use crate::store::BootInstant;
use crate::store::redis::wire::driver::{ConnectionDriver, PushHandler};
use crate::store::redis::wire::errors::ServerError;
use crate::store::redis::wire::handshake::{HandshakeError, HandshakeLogin, ServerMode, greet};
use crate::store::redis::wire::pipeline::{Confirmation, Pipeline, Subscription};
use crate::store::redis::wire::reply::{MessageForm, Reply, RequestError};
use crate::store::redis::wire::request::{Encode, Request};
use crate::store::redis::wire::stream::ByteStream;

/// A live connection and the task that drives it. `S`: what the room above learns of the server through this
/// connection. It ends with the connection, because the next one may lead to another server.
pub(crate) struct LiveConnection<S = ()> {
    pub(crate) pipeline: Arc<Pipeline>,
    /// The server's mode, from the handshake.
    pub(crate) mode: ServerMode,
    pub(crate) server: S,
    /// The driver. Dropping the last reference to the connection aborts the task, which closes the stream.
    _task: AbortOnDrop,
}

impl<S: Default> LiveConnection<S> {
    /// Performs the handshake on a connected stream. The driver runs on the current runtime. With a push handler the
    /// connection serves subscriptions. The caller sets the timeout.
    pub(crate) async fn open(
        stream: Pin<Box<dyn ByteStream>>,
        login: &HandshakeLogin,
        push_handler: Option<PushHandler>,
    ) -> Result<Self, HandshakeError> {
        let pipeline: Arc<Pipeline> = Arc::default();
        let pushes = push_handler.is_some();
        let driver = ConnectionDriver::new(stream, Arc::clone(&pipeline), push_handler);
        let task =
            background::spawn_here(driver).map_err(|e| HandshakeError::Other(e.to_string()))?;
        // After the spawn: the driver carries the handshake.
        let mode = greet(&pipeline, login, pushes).await?;
        Ok(Self {
            pipeline,
            mode,
            server: S::default(),
            _task: task,
        })
    }
}

impl<S> LiveConnection<S> {
    pub(crate) fn alive(&self) -> bool {
        !self.pipeline.is_over()
    }

    /// Sends one request. The caller sets the timeout. If the caller drops the future, the request may still run.
    pub(crate) async fn ask(&self, request: &impl Encode) -> Result<Reply, RequestError> {
        self.pipeline.send(request)?.await
    }

    /// As [`ask`](Self::ask), for a caller that waits until the deadline.
    pub(crate) async fn ask_until(
        &self,
        deadline: BootInstant,
        request: &impl Encode,
    ) -> Result<Reply, RequestError> {
        self.pipeline.send(request)?.until(deadline).await
    }

    /// Sends several requests, adjacent on the wire. The caller waits until the deadline.
    pub(crate) async fn ask_all_until(
        &self,
        deadline: BootInstant,
        requests: &[Request],
    ) -> Result<Vec<Result<Reply, ServerError>>, RequestError> {
        let asked = self.pipeline.send_all(requests)?.into_iter();
        let asked: Vec<_> = asked.map(|asked| asked.until(deadline)).collect();
        let mut answers = Vec::with_capacity(asked.len());
        for asked in asked {
            answers.push(match asked.await {
                Ok(reply) => Ok(reply),
                Err(RequestError::Server(server_error)) => Err(server_error),
                Err(broken) => return Err(broken),
            });
        }
        Ok(answers)
    }

    /// Subscribes or unsubscribes. The push handler receives the confirmation as a [`Push`](crate::store::redis::wire::reply::Push); this
    /// future returns once it has arrived, or with the server's refusal.
    pub(crate) async fn subscription(
        &self,
        of: Subscription,
        channel: &str,
    ) -> Result<(), RequestError> {
        let request = Request::new(command(of)).arg(channel);
        let channel = channel.to_owned();
        let confirmation = Confirmation { of, channel };
        self.pipeline
            .send_confirmed(&request, confirmation)?
            .await
            .map(drop)
    }
}

fn command(of: Subscription) -> &'static str {
    match (of.form, of.ends) {
        (MessageForm::Plain, false) => "SUBSCRIBE",
        (MessageForm::Plain, true) => "UNSUBSCRIBE",
        (MessageForm::Sharded, false) => "SSUBSCRIBE",
        (MessageForm::Sharded, true) => "SUNSUBSCRIBE",
    }
}

impl<S> fmt::Debug for LiveConnection<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn")
            .field("alive", &self.alive())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, poll};

    use super::peer::{HANDSHAKE, connected, in_time, is_broken, listening, request_of};
    use super::*;

    #[tokio::test]
    async fn answers_come_in_the_order_of_their_requests_byte_by_byte() {
        let (conn, mut peer) = connected().await;
        let (one, two, three) = (request_of("ONE"), request_of("TWO"), request_of("THREE"));
        let talk = async {
            peer.expects(&["ONE", "TWO", "THREE"]).await;
            for byte in b":1\r\n*2\r\n$3\r\n\r\n$\r\n:-5\r\n-NOSCRIPT no\r\n" {
                peer.says([*byte]).await;
                tokio::task::yield_now().await;
            }
        };
        let all = async { tokio::join!(conn.ask(&one), conn.ask(&two), conn.ask(&three), talk) };
        let (one, two, three, ()) = in_time(all).await;
        assert_eq!(one, Ok(Reply::Int(1)));
        let list = vec![Reply::Text(b"\r\n$".to_vec()), Reply::Int(-5)];
        assert_eq!(two, Ok(Reply::List(list)));
        let Err(RequestError::Server(no)) = three else {
            panic!("{three:?}");
        };
        assert!(no.is_no_script());
    }

    #[tokio::test]
    async fn the_answer_of_a_caller_that_has_gone_is_nobody_elses() {
        let (conn, mut peer) = connected().await;
        let (gone, stays) = (request_of("GONE"), request_of("STAYS"));
        for _ in 0..3 {
            {
                let mut given_up = std::pin::pin!(conn.ask(&gone));
                assert!(poll!(given_up.as_mut()).is_pending());
            }
            let talk = async {
                peer.expects(&["GONE", "STAYS"]).await;
                peer.says(":1\r\n:2\r\n").await;
            };
            let (answer, ()) = in_time(async { tokio::join!(conn.ask(&stays), talk) }).await;
            assert_eq!(answer, Ok(Reply::Int(2)));
        }
        // The reply arrives, and the caller leaves before it takes the reply.
        let mut late = Box::pin(conn.ask(&gone));
        assert!(poll!(late.as_mut()).is_pending());
        peer.says(":3\r\n").await;
        peer.expects(&["GONE"]).await;
        let talk = async {
            peer.expects(&["STAYS"]).await;
            peer.says(":4\r\n").await;
        };
        let (answer, ()) = in_time(async { tokio::join!(conn.ask(&stays), talk) }).await;
        assert_eq!(answer, Ok(Reply::Int(4)));
        drop(late);
        assert_eq!(conn.pipeline.slots_in_use(), (0, HANDSHAKE.len()));
    }

    #[tokio::test]
    async fn an_end_between_two_answers_is_reported_to_all_waiters() {
        let (conn, mut peer) = connected().await;
        let (one, two) = (request_of("ONE"), request_of("TWO"));
        let talk = async {
            peer.expects(&["ONE", "TWO"]).await;
            peer.says(":1\r\n$5\r\nhal").await;
            drop(peer);
        };
        let all = async { tokio::join!(conn.ask(&one), conn.ask(&two), talk) };
        let (one_said, two_said, ()) = in_time(all).await;
        assert_eq!(one_said, Ok(Reply::Int(1)));
        is_broken(&two_said, "closed");
        assert!(!conn.alive());
        in_time(conn.pipeline.end.notified()).await;
        is_broken(&conn.ask(&one).await, "closed");
    }

    #[tokio::test]
    async fn an_undecodable_reply_ends_the_connection() {
        for (junk, why) in [
            (":1\r\n:2\r\n", "nobody has asked"),
            (":1\r\nHTTP/1.1 400\r\n", "not RESP"),
            (":1\r\n>2\r\n+message\r\n+x\r\n", "nobody listens"),
            (":1\r\n$99999999\r\n", "too long"),
            (":1\r\n*1\r\n*1\r\n*1\r\n", ""),
        ] {
            let (conn, mut peer) = connected().await;
            let (one, two) = (request_of("ONE"), request_of("TWO"));
            let talk = async {
                peer.expects(&["ONE"]).await;
                let junk = if why.is_empty() {
                    junk.repeat(20)
                } else {
                    junk.to_owned()
                };
                peer.says(junk).await;
            };
            let (answer, ()) = in_time(async { tokio::join!(conn.ask(&one), talk) }).await;
            // The reply before the junk is valid.
            assert_eq!(answer, Ok(Reply::Int(1)));
            is_broken(&in_time(conn.ask(&two)).await, why);
        }
    }

    #[tokio::test]
    async fn a_group_is_answered_as_one_and_stays_together() {
        let (conn, mut peer) = connected().await;
        let group = ["MULTI", "SET a b", "EXEC"].map(request_of);
        let asking = request_of("GET a").asking(true);
        let talk = async {
            peer.expects(&["MULTI", "SET a b", "EXEC", "ASKING", "GET a"])
                .await;
            peer.says("+OK\r\n-ERR no\r\n*1\r\n-ERR no\r\n-ERR not asked\r\n$1\r\nb\r\n")
                .await;
        };
        let all = async {
            tokio::join!(
                conn.ask_all_until(BootInstant::FAR, &group),
                conn.ask(&asking),
                talk
            )
        };
        let (answers, asked, ()) = in_time(all).await;
        let answers = answers.unwrap();
        assert_eq!(answers[0], Ok(Reply::Text(b"OK".to_vec())));
        assert!(answers[1].is_err() && answers[2].is_err());
        assert_eq!(asked, Ok(Reply::Text(b"b".to_vec())));
    }

    #[tokio::test]
    async fn pushes_are_no_answers() {
        let (conn, mut peer, pushes) = listening().await;
        let ping = request_of("PING");
        let talk = async {
            peer.expects(&["PING"]).await;
            // If the server ends a subscription unasked, the push looks like the confirmation of our own request.
            peer.says(">3\r\n$12\r\nsunsubscribe\r\n$1\r\nx\r\n:0\r\n")
                .await;
            peer.says(">3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\nA\r\n+PONG\r\n")
                .await;
        };
        let (answer, ()) = in_time(async { tokio::join!(conn.ask(&ping), talk) }).await;
        assert_eq!(answer, Ok(Reply::Text(b"PONG".to_vec())));
        assert_eq!(*pushes.lock().unwrap(), ["-x", "x: 65"]);
    }

    const MINE: Subscription = Subscription {
        form: MessageForm::Sharded,
        ends: false,
    };

    #[tokio::test]
    async fn only_its_own_confirmation_answers_a_subscription() {
        let (conn, mut peer, pushes) = listening().await;
        let ping = request_of("PING");
        let mut mine = Box::pin(conn.subscription(MINE, "x"));
        assert!(poll!(mine.as_mut()).is_pending());
        let mut ping = Box::pin(conn.ask(&ping));
        assert!(poll!(ping.as_mut()).is_pending());
        peer.expects(&["SSUBSCRIBE x", "PING"]).await;
        peer.says(">3\r\n$12\r\nsunsubscribe\r\n$1\r\nx\r\n:0\r\n")
            .await;
        peer.says(">3\r\n$10\r\nssubscribe\r\n$1\r\ny\r\n:1\r\n")
            .await;
        while pushes.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        assert!(mine.as_mut().now_or_never().is_none());
        peer.says(">3\r\n$10\r\nssubscribe\r\n$1\r\nx\r\n:1\r\n+PONG\r\n")
            .await;
        assert_eq!(in_time(mine).await, Ok(()));
        assert_eq!(in_time(ping).await, Ok(Reply::Text(b"PONG".to_vec())));
        assert_eq!(*pushes.lock().unwrap(), ["-x", "+y", "+x"]);
    }

    #[tokio::test]
    async fn an_answer_in_the_place_of_a_confirmation_ends_the_connection() {
        let (conn, mut peer, _) = listening().await;
        let talk = async {
            peer.expects(&["SSUBSCRIBE x"]).await;
            peer.says("-NOPERM no\r\n").await;
            peer.expects(&["SSUBSCRIBE x"]).await;
            peer.says(":1\r\n").await;
        };
        let twice = async {
            let refused = conn.subscription(MINE, "x").await;
            (refused, conn.subscription(MINE, "x").await)
        };
        let ((refused, odd), ()) = in_time(async { tokio::join!(twice, talk) }).await;
        assert!(matches!(refused, Err(RequestError::Server(_))));
        is_broken(&odd, "something else");
    }
}
