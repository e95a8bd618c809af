//! A row that a statement returns, with or without a name.

use tokio_postgres::{Row, SimpleQueryRow};

/// A row of a statement that may have a name.
#[derive(Debug)]
pub(crate) enum NamedRow {
    /// From `EXECUTE`, as texts.
    Texts(SimpleQueryRow),
    /// From the statement without a name.
    Typed(Row),
}

impl NamedRow {
    /// A column of type `integer`.
    pub(crate) fn integer(&self, column: usize) -> Option<i32> {
        match self {
            Self::Texts(row) => row.try_get(column).ok()??.parse().ok(),
            Self::Typed(row) => row.try_get(column).ok(),
        }
    }

    /// A column of type `bigint`. `None`: it is null.
    pub(crate) fn bigint(&self, column: usize) -> Option<i64> {
        match self {
            Self::Texts(row) => row.try_get(column).ok()??.parse().ok(),
            Self::Typed(row) => row.try_get(column).ok()?,
        }
    }

    /// A column of type `boolean`.
    pub(crate) fn is_true(&self, column: usize) -> bool {
        match self {
            Self::Texts(row) => matches!(row.try_get(column), Ok(Some("t"))),
            Self::Typed(row) => row.try_get(column).unwrap_or(false),
        }
    }
}
