//! Replies and push messages of a server, independent of the protocol version.

use crate::error::Error;
use crate::store::redis::wire::errors::{ServerError, unanswered};

/// The reply to one of several commands that were sent together.
pub(crate) type CommandResult = Result<Reply, ServerError>;

/// A reply of the server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    Text(Vec<u8>),
    List(Vec<Reply>),
}

impl Reply {
    pub(crate) fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// The reply as a count. Anything that is not a `u32` is 0.
    pub(crate) fn count(&self) -> u32 {
        self.int()
            .and_then(|number| u32::try_from(number).ok())
            .unwrap_or(0)
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => std::str::from_utf8(text).ok(),
            _ => None,
        }
    }

    /// A text written by any client: invalid UTF-8 is replaced.
    pub(crate) fn lossy(&self) -> Option<std::borrow::Cow<'_, str>> {
        match self {
            Self::Text(text) => Some(String::from_utf8_lossy(text)),
            _ => None,
        }
    }

    pub(crate) fn list(&self) -> Option<&[Reply]> {
        match self {
            Self::List(list) => Some(list),
            _ => None,
        }
    }
}

impl Reply {
    /// Whether an element of a script's reply list is the error of a replica.
    pub(crate) fn says_replica(&self) -> bool {
        let texts = self.list().unwrap_or_default().iter();
        texts
            .filter_map(Reply::text)
            .any(|text| text.len() < 1000 && ServerError::parse(text).is_replica())
    }
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// The server replied with an error.
    Server(ServerError),
    /// There is no usable reply; the request may have run.
    Broken(String),
}

impl RequestError {
    pub(crate) fn error(&self) -> Error {
        match self {
            Self::Server(server_error) => server_error.error(),
            Self::Broken(why) => unanswered(why),
        }
    }
}

/// The form in which a message is published. A message of one form does not reach subscribers of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageForm {
    /// `PUBLISH`, `SUBSCRIBE`: a cluster forwards the message to all of its nodes.
    Plain,
    /// `SPUBLISH`, `SSUBSCRIBE`: the message stays on the node that has the channel's slot.
    Sharded,
}

/// A push message of the server, on a connection for subscriptions.
#[derive(Debug)]
pub(crate) enum Push {
    Message {
        form: MessageForm,
        channel: String,
        payload: Vec<u8>,
    },
    Subscribed(MessageForm, String),
    Unsubscribed(MessageForm, String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::wire::tests::values::text;

    #[test]
    fn a_number_is_read_in_both_of_its_forms() {
        for (reply, int, count) in [
            (Reply::Int(7), Some(7), 7),
            (text("7"), Some(7), 7),
            (text("-7"), Some(-7), 0),
            (Reply::Int(i64::MAX), Some(i64::MAX), 0),
            (text("x"), None, 0),
            (Reply::Nil, None, 0),
            (Reply::List(vec![Reply::Int(7)]), None, 0),
        ] {
            assert_eq!((reply.int(), reply.count()), (int, count), "{reply:?}");
        }
    }

    /// Any client may have written them.
    #[test]
    fn bytes_that_are_no_text_can_be_shown() {
        let bytes = Reply::Text(vec![b'a', 0xff]);
        assert_eq!((bytes.text(), bytes.int()), (None, None));
        assert_eq!(bytes.lossy().as_deref(), Some("a\u{fffd}"));
        assert_eq!((Reply::Int(7).text(), Reply::Int(7).lossy()), (None, None));
        assert_eq!(text("a").text(), Some("a"));
    }

    #[test]
    fn a_script_that_met_a_replica_is_noticed_by_one_of_its_results() {
        let refusal = "READONLY You can't write against a read only replica.";
        for (results, is_replica) in [
            (vec![Reply::Int(1), text(refusal)], true),
            (vec![text(&format!("-{refusal}"))], true),
            (vec![text("OK"), Reply::Nil], false),
            (vec![text("OOM command not allowed")], false),
            // A value, which only begins like an error.
            (vec![text(&format!("{refusal:1000}"))], false),
            (vec![text(&format!("{refusal:999}"))], true),
        ] {
            let reply = Reply::List(results);
            assert_eq!(reply.says_replica(), is_replica, "{reply:?}");
        }
        assert!(!text(refusal).says_replica());
    }

    #[test]
    fn a_request_without_a_usable_reply_may_have_run() {
        let broken = RequestError::Broken("no answer".to_owned());
        assert!(broken.error().outcome_unknown());
        let refused = RequestError::Server(ServerError::new("OOM", "no"));
        assert!(!refused.error().outcome_unknown());
    }
}
