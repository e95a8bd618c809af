//! Sequencers: a text that identifies a hold, so that a third party can ask the store about it.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::store::percent;
use crate::types::FencingToken;

/// The prefix of every sequencer, before the format number.
const MARK: &str = "tidelock";
/// The format that this version writes and reads.
const FORMAT: &str = "1";
/// The only mode of this format.
const EXCLUSIVE: &str = "exclusive";

/// Identifies a hold as text: the lock's name, the mode, and the number of the grant. It contains no secret.
///
/// A holder sends it with its requests to a server, in a header or a column. That server has its own [`Client`] on the
/// same store and uses [`verify`](crate::Client::verify) to ask whether that hold has the lock now. If the lock can
/// change hands between the check and the action, compare [`token`](crate::FencedGuard::token)s at the resource, instead
/// or in addition.
///
/// The text is one printable word without blanks. [`Guard::sequencer`](crate::Guard::sequencer) makes one.
///
/// [`Client`]: crate::Client
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// # let servers_own_client = client.clone();
/// use tidelock::Sequencer;
///
/// let guard = client.lock("primary").acquire().await?;
/// let header: String = guard.sequencer()?.to_string(); // goes along with a request
///
/// let received: Sequencer = header.parse()?; // at the server
/// assert_eq!(received.name(), "primary");
/// assert!(servers_own_client.verify(&received).await?);
/// guard.release().await?;
/// assert!(!servers_own_client.verify(&received).await?);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sequencer {
    name: Name,
    generation: FencingToken,
}

impl Sequencer {
    pub(crate) fn new(name: Name, generation: FencingToken) -> Self {
        Self { name, generation }
    }

    /// The lock's name, prefix included.
    ///
    /// # Examples
    /// ```
    /// let sequencer: tidelock::Sequencer = "tidelock1:exclusive:4711:stock%3A42".parse()?;
    /// assert_eq!(sequencer.name(), "stock:42");
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The number of the grant: a later grant of the lock has a larger one. On etcd it is the revision, on ZooKeeper
    /// the transaction that made the grant.
    ///
    /// # Examples
    /// ```
    /// let sequencer: tidelock::Sequencer = "tidelock1:exclusive:4711:stock%3A42".parse()?;
    /// assert_eq!(sequencer.generation(), 4711);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn generation(&self) -> u64 {
        self.generation.get()
    }

    pub(crate) fn parts(&self) -> (&Name, FencingToken) {
        (&self.name, self.generation)
    }
}

impl fmt::Display for Sequencer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = escaped(self.name());
        write!(f, "{MARK}{FORMAT}:{EXCLUSIVE}:{}:{name}", self.generation)
    }
}

impl FromStr for Sequencer {
    type Err = Error;

    /// Reads exactly the text that `Display` writes: one hold has one text.
    ///
    /// # Errors
    /// [`InvalidOptions`](ErrorKind::InvalidOptions) for any other text.
    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.splitn(5, ':').collect();
        let [mark, mode, generation, name] = parts[..] else {
            return Err(unreadable("it has not four parts with colons between them"));
        };
        let format = mark.strip_prefix(MARK);
        let format = format.ok_or_else(|| unreadable("it does not begin with `tidelock`"))?;
        if format != FORMAT {
            return Err(unreadable(
                "its format is not 1, the only one this version reads",
            ));
        }
        if mode != EXCLUSIVE {
            return Err(unreadable(
                "its mode is not `exclusive`, the only one this version reads",
            ));
        }
        let number: Option<u64> = generation.parse().ok();
        // Only the canonical form is valid: `+1` and `01` also parse, but one hold must have one text.
        let number = number.filter(|number| number.to_string() == generation);
        let number = number.ok_or_else(|| unreadable("its third part is no number of a grant"))?;
        let plain = percent::decode(name).filter(|plain| escaped(plain) == name);
        let plain =
            plain.ok_or_else(|| unreadable("its last part is no name as it is written there"))?;
        let name = Name::new(plain).map_err(|_| unreadable("no lock can have its name"))?;
        Ok(Self::new(name, FencingToken::new(number)))
    }
}

/// The error for a store that cannot check sequencers.
pub(crate) fn unsupported() -> Error {
    Error::new(ErrorKind::Unsupported)
        .because("this store cannot verify a sequencer; use the fencing token instead")
}

/// The error for a text that is no sequencer. It does not repeat the text, which comes from outside and may be long.
fn unreadable(why: &str) -> Error {
    Error::new(ErrorKind::InvalidOptions).because(format!("not a sequencer: {why}"))
}

/// Keeps letters, digits and a few signs that are safe everywhere, and percent-encodes all other bytes (`%41`).
fn escaped(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_value_is_read_back() {
        for name in ["a", "stock:42", "ä b\n", "%41", "..", "a/b?c#d"] {
            let name = Name::new(name).unwrap();
            for generation in [0, 1, u64::MAX] {
                let one = Sequencer::new(name.clone(), FencingToken::new(generation));
                let text = one.to_string();
                assert!(text.bytes().all(|b| b.is_ascii_graphic()), "{text}");
                assert_eq!(text.parse::<Sequencer>().unwrap(), one);
            }
        }
    }

    #[test]
    fn other_texts_are_refused_in_words() {
        for (bad, why) in [
            ("", "four parts"),
            ("tidelock1:exclusive:1", "four parts"),
            ("tidelock1:exclusive:1:a:b", "four parts"),
            ("tl1:exclusive:1:a", "begin with"),
            ("tidelock2:exclusive:1:a", "format"),
            ("tidelock:exclusive:1:a", "format"),
            ("tidelock1:shared:1:a", "mode"),
            ("tidelock1:exclusive:-1:a", "number"),
            ("tidelock1:exclusive:+1:a", "number"),
            ("tidelock1:exclusive:01:a", "number"),
            ("tidelock1:exclusive:18446744073709551616:a", "number"),
            ("tidelock1:exclusive:1:a b", "as it is written"),
            ("tidelock1:exclusive:1:%61", "as it is written"),
            ("tidelock1:exclusive:1:%2f", "as it is written"),
            ("tidelock1:exclusive:1:%", "as it is written"),
            ("tidelock1:exclusive:1:", "no lock"),
            ("tidelock1:exclusive:1:%00", "no lock"),
        ] {
            let error = bad.parse::<Sequencer>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{bad}");
            assert!(error.to_string().contains(why), "{bad}: {error}");
        }
    }
}
