//! A validated lock name.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use crate::error::{Error, ErrorKind, Result};
use crate::types::Escaped;

/// Bounds the length of a name in bytes, prefix included. Redis would accept more, but other stores and log lines would
/// not.
const MAX_NAME_BYTES: usize = 512;

/// The end of the name of a barrier's state.
const BARRIER: &str = "%barrier";

/// A lock name that every store accepts: 1 to 512 bytes of UTF-8 without NUL. Cheap to clone.
///
/// # Examples
/// ```
/// use tidelock::store::Name;
///
/// let name = Name::new("{shop}:stock:42")?;
/// assert_eq!(name.as_str(), "{shop}:stock:42");
/// # Ok::<(), tidelock::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(Arc<NameInner>);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct NameInner {
    text: Arc<str>,
    /// Hash of the text, keyed per process because names come from outside. Stored, because each acquisition looks up
    /// its name more than once.
    hash: u64,
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

impl Name {
    /// Checks a name. Sends nothing.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] for an empty name, one of more than 512 bytes, or one with a NUL byte.
    ///
    /// # Examples
    /// ```
    /// use tidelock::{ErrorKind, store::Name};
    ///
    /// assert!(Name::new("stock:42").is_ok());
    /// assert_eq!(Name::new("").unwrap_err().kind(), ErrorKind::InvalidName);
    /// ```
    pub fn new(name: impl Into<Arc<str>>) -> Result<Self> {
        let name = name.into();
        let wrong = if name.is_empty() {
            "is empty; give it at least one character".to_owned()
        } else if name.len() > MAX_NAME_BYTES {
            format!("has {} bytes; the maximum is {MAX_NAME_BYTES}", name.len())
        } else if name.contains('\0') {
            "contains a NUL byte, which some stores cannot store".to_owned()
        } else {
            return Ok(Self::hashed(name));
        };
        Err(Error::new(ErrorKind::InvalidName)
            .on_lock(shortened(&name))
            .because(format!("the name {wrong}")))
    }

    fn hashed(text: Arc<str>) -> Self {
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let hash = KEY.hash_one(&*text);
        Self(Arc::new(NameInner { text, hash }))
    }

    /// The name under which the candidates of this election keep their marks. A job of the same name has marks too: among
    /// those of many slots nobody would find the candidates, and the history of the job would be short of slots.
    pub(crate) fn of_candidates(&self) -> Self {
        Self::hashed(format!("{}%candidates", self.as_str()).into())
    }

    /// The name under which a barrier keeps its state, and of the lock behind which its members wait. The lock of the
    /// barrier's own name is what its members hold.
    pub(crate) fn of_barrier(&self) -> Self {
        Self::hashed(format!("{}{BARRIER}", self.as_str()).into())
    }

    /// Whether it is such a name.
    pub(crate) fn is_of_barrier(&self) -> bool {
        self.as_str().ends_with(BARRIER)
    }

    /// The name as it is written to the store, prefix included.
    ///
    /// # Examples
    /// ```
    /// use tidelock::store::Name;
    ///
    /// assert_eq!(Name::new("stock:42")?.as_str(), "stock:42");
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn as_str(&self) -> &str {
        &self.0.text
    }
}

/// Cuts long names in messages, at a character boundary.
fn shortened(name: &str) -> String {
    match name.char_indices().nth(64) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_owned(),
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.text, f)
    }
}

/// For terminals and logs: anybody may have made this name, so it is [`Escaped`].
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Escaped(self.as_str()), f)
    }
}

/// The name as it is written to the store.
impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_not_every_store_can_keep_are_refused() {
        for bad in ["", "a\0b", &"x".repeat(513)] {
            let error = Name::new(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidName, "{bad:?}");
        }
        for good in ["a", "{tag}:b", "äöü 漢字", &"x".repeat(512)] {
            assert_eq!(Name::new(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn a_long_name_is_cut_in_the_message() {
        let message = Name::new("ü".repeat(5000)).unwrap_err().to_string();
        assert!(message.len() < 300, "{message}");
        let start = format!("{}…: ", "ü".repeat(64));
        assert!(message.starts_with(&start), "{message}");
    }

    #[test]
    fn what_a_lock_keeps_beside_it_has_other_names() {
        let name = Name::new("solver").unwrap();
        let (barrier, candidates) = (name.of_barrier(), name.of_candidates());
        assert!(barrier != name && candidates != name && barrier != candidates);
        assert!(barrier.is_of_barrier());
        assert!(!name.is_of_barrier() && !candidates.is_of_barrier());
    }
}
