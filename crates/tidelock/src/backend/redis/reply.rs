//! What a server says, in our own words.

use super::errors::{Complaint, unanswered};
use crate::error::Error;

/// An answer of the server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    Nil,
    Int(i64),
    Text(Vec<u8>),
    List(Vec<Reply>),
}

impl Reply {
    pub(super) fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// What can be counted, and nothing else.
    pub(super) fn count(&self) -> u32 {
        self.int()
            .and_then(|number| u32::try_from(number).ok())
            .unwrap_or(0)
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => std::str::from_utf8(text).ok(),
            _ => None,
        }
    }

    /// A text that anybody may have written: bytes that are none are replaced.
    pub(super) fn lossy(&self) -> Option<std::borrow::Cow<'_, str>> {
        match self {
            Self::Text(text) => Some(String::from_utf8_lossy(text)),
            _ => None,
        }
    }

    pub(super) fn list(&self) -> Option<&[Reply]> {
        match self {
            Self::List(list) => Some(list),
            _ => None,
        }
    }
}

impl Reply {
    /// One of the answers in the list of a script is the complaint of a replica.
    pub(super) fn says_replica(&self) -> bool {
        let texts = self.list().unwrap_or_default().iter();
        texts
            .filter_map(Reply::text)
            .any(|text| text.len() < 1000 && Complaint::parse(text).is_replica())
    }
}

/// Why a request brought no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The server said no.
    Complaint(Complaint),
    /// No usable answer: it may have run.
    Broken(String),
}

impl Trouble {
    pub(super) fn error(&self) -> Error {
        match self {
            Self::Complaint(complaint) => complaint.error(),
            Self::Broken(why) => unanswered(why),
        }
    }
}

/// In which form a message is published and heard. One form does not hear the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `PUBLISH`, `SUBSCRIBE`: a cluster takes it to all of its nodes.
    Plain,
    /// `SPUBLISH`, `SSUBSCRIBE`: only where the slot of the channel is.
    Sharded,
}

/// Something the server said unasked, on a connection for subscriptions.
#[derive(Debug)]
pub(super) enum Push {
    Message {
        form: Form,
        channel: String,
        payload: Vec<u8>,
    },
    Subscribed(Form, String),
    Unsubscribed(Form, String),
}
