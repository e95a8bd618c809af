//! Why a URL is refused.

use crate::error::ErrorKind;
use crate::store::percent;

/// Why a URL is invalid. Becomes an error when the reader has added the forms of the URL.
#[derive(Debug)]
pub(crate) struct UrlRefusal {
    pub(crate) kind: ErrorKind,
    pub(crate) why: String,
}

pub(crate) type UrlResult<T> = std::result::Result<T, UrlRefusal>;

impl UrlRefusal {
    /// The option has none of the accepted values. The reader adds its name and what is accepted.
    pub(crate) fn value() -> Self {
        Self::from("")
    }

    pub(crate) fn unsupported(why: &str) -> Self {
        Self {
            kind: ErrorKind::Unsupported,
            why: why.to_owned(),
        }
    }
}

impl From<&str> for UrlRefusal {
    fn from(why: &str) -> Self {
        Self::from(why.to_owned())
    }
}

impl From<String> for UrlRefusal {
    fn from(why: String) -> Self {
        let kind = ErrorKind::InvalidOptions;
        Self { kind, why }
    }
}

/// Decodes percent escapes such as `%41`.
pub(crate) fn decode(text: &str) -> UrlResult<String> {
    percent::decode(text).ok_or_else(|| {
        "a % is followed by two hexadecimal digits, and stands for a part of a text; write %25 for a %"
            .into()
    })
}
