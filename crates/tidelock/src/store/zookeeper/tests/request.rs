//! The requests that the store sends.

use crate::store::zookeeper::tests::jute::JuteReader;
use crate::store::zookeeper::tests::tree::TreeChange;

/// The kinds of reads, by what they ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadKind {
    Exists,
    Get,
    List,
    Rights,
}

#[derive(Debug)]
pub(super) enum TestRequest {
    Read {
        kind: ReadKind,
        path: String,
        watches: bool,
    },
    Change(TreeChange),
    Multi(Vec<TreeChange>),
    Sync(String),
    /// It ends the session.
    Close,
    /// It changes nothing, and its reply has no fields.
    Plain(String),
}

impl TestRequest {
    /// Decodes what follows the number of the operation.
    pub(super) fn read(operation: i32, fields: &mut JuteReader<'_>) -> Self {
        if let Some(change) = change(operation, fields) {
            return Self::Change(change);
        }
        let mut read = |kind| Self::Read {
            kind,
            path: fields.text(),
            watches: kind != ReadKind::Rights && fields.flag(),
        };
        match operation {
            3 => read(ReadKind::Exists),
            4 => read(ReadKind::Get),
            6 => read(ReadKind::Rights),
            8 => read(ReadKind::List),
            9 => Self::Sync(fields.text()),
            14 => Self::Multi(changes(fields)),
            100 => {
                fields.int();
                Self::Plain(format!("auth {} {}", fields.text(), fields.text()))
            }
            -11 => Self::Close,
            other => Self::Plain(format!("operation {other}")),
        }
    }

    /// As tests name it.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Read {
                kind,
                path,
                watches,
            } => {
                let how = if *watches { "watched " } else { "" };
                let kind = format!("{kind:?}").to_lowercase();
                format!("{how}{kind} {path}")
            }
            Self::Change(change) => change.text(),
            Self::Multi(changes) => {
                let each: Vec<String> = changes.iter().map(TreeChange::text).collect();
                format!("multi {}", each.join("; "))
            }
            Self::Sync(path) => format!("sync {path}"),
            Self::Close => "close".to_owned(),
            Self::Plain(text) => text.clone(),
        }
    }
}

/// `None`: this operation changes no node.
fn change(operation: i32, fields: &mut JuteReader<'_>) -> Option<TreeChange> {
    Some(match operation {
        15 | 19 => {
            let (path, data) = (fields.text(), fields.bytes());
            let count = fields.int();
            let rights = (0..count).map(|_| (fields.int(), fields.text(), fields.text()));
            TreeChange::Create {
                path,
                data,
                rights: rights.collect(),
                flags: fields.int(),
            }
        }
        5 => TreeChange::Set {
            path: fields.text(),
            data: fields.bytes(),
            version: fields.int(),
        },
        2 => TreeChange::Delete {
            path: fields.text(),
            version: fields.int(),
        },
        13 => TreeChange::Check {
            path: fields.text(),
            version: fields.int(),
        },
        _ => return None,
    })
}

/// The operations of a transaction.
fn changes(fields: &mut JuteReader<'_>) -> Vec<TreeChange> {
    let mut all = Vec::new();
    loop {
        let (operation, is_end, _) = (fields.int(), fields.flag(), fields.int());
        if is_end {
            return all;
        }
        all.push(change(operation, fields).unwrap());
    }
}
