//! The ids of clients and owners.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The identity of one client: a random UUID of version 8, new for every connect. Redisson's UUIDs have version 4. By
/// the version, a client sees in the store whether the holder of a lock publishes its release as tidelock does.
///
/// # Examples
/// ```
/// use tidelock::store::ClientId;
///
/// let (one, other) = (ClientId::random(), ClientId::random());
/// assert_ne!(one, other);
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ClientId(Arc<str>);

impl std::borrow::Borrow<str> for ClientId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl ClientId {
    /// A new random identity.
    ///
    /// # Examples
    /// ```
    /// use tidelock::store::ClientId;
    ///
    /// assert_ne!(ClientId::random(), ClientId::random());
    /// ```
    pub fn random() -> Self {
        let random = uuid::Uuid::new_v4().into_bytes();
        let own = uuid::Builder::from_custom_bytes(random).into_uuid();
        Self(own.to_string().into())
    }

    /// The UUID as text: 36 characters, lower case.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(tidelock::store::ClientId::random().as_str().len(), 36);
    /// ```
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Ends the owner of an upgradeable reader. A table has no column for it: an older tidelock takes such a row for that of
/// a writer, which keeps out more than it must, and never less.
pub(crate) const UPGRADEABLE: &str = ":upgradeable";

/// In the owner of a writer that an upgradeable reader becomes, ahead of the number of that reader.
pub(crate) const UPGRADES: &str = ":upgrades:";

/// The owner of one outermost acquisition, on the wire `uuid:n`. Never used for a second acquisition: therefore a
/// repeated request cannot count twice, and a late request can be told from a new one.
///
/// That of an [upgradeable reader](crate::store::LockKind::UpgradeableRead) is `uuid:n:upgradeable`, and that of the
/// writer that it becomes `uuid:m:upgrades:n`.
///
/// It is one text without a pointer to its client. Each acquisition creates one, and a pointer would make every task
/// update the client's reference count.
///
/// # Examples
/// ```
/// use tidelock::store::Ticket;
///
/// /// What a store writes beside the lock's name, to know the holder again.
/// fn row(ticket: &Ticket) -> (&str, &str) {
///     (ticket.name.as_str(), ticket.owner.text())
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct OwnerId(Arc<str>);

impl OwnerId {
    /// The UUID of the client that acquires.
    ///
    /// # Examples
    /// ```
    /// use tidelock::store::Ticket;
    ///
    /// /// Under which key the details of the holder's process are.
    /// fn details_key(ticket: &Ticket) -> String {
    ///     format!("tidelock:client:{}", ticket.owner.client())
    /// }
    /// ```
    pub fn client(&self) -> &str {
        self.0.split_once(':').map_or(&self.0, |(client, _)| client)
    }

    /// The number of the acquisition within its client.
    ///
    /// # Examples
    /// ```
    /// use tidelock::store::OwnerId;
    ///
    /// /// Of two acquisitions of one client, the later one.
    /// fn is_later(one: &OwnerId, other: &OwnerId) -> bool {
    ///     one.client() == other.client() && one.number() > other.number()
    /// }
    /// ```
    pub fn number(&self) -> u64 {
        let number = self.0.split(':').nth(1).map(str::parse);
        number.and_then(Result::ok).unwrap_or(0)
    }

    /// This owner, as that of an upgradeable reader.
    pub(crate) fn upgradeable(self) -> Self {
        Self(format!("{self}{UPGRADEABLE}").into())
    }

    /// This owner, as that of the writer that `reader` becomes.
    pub(crate) fn upgrading(self, reader: &Self) -> Self {
        Self(format!("{self}{UPGRADES}{}", reader.number()).into())
    }

    /// Whether this text is the owner of an upgradeable reader.
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    pub(crate) fn is_upgradeable(text: &str) -> bool {
        text.ends_with(UPGRADEABLE)
    }

    /// Whether the writer with this text is the one that `reader` becomes.
    #[cfg(feature = "sqlite")]
    pub(crate) fn upgrades(writer: &str, reader: &str) -> bool {
        Self::upgraded(writer).is_some_and(|upgraded| upgraded == reader)
    }

    /// The owner of the upgradeable reader that the writer with this text was. `None`: it was none.
    #[cfg(feature = "sqlite")]
    pub(crate) fn upgraded(writer: &str) -> Option<String> {
        let (own, number) = writer.rsplit_once(UPGRADES)?;
        let client = own.split(':').next()?;
        Some(format!("{client}:{number}{UPGRADEABLE}"))
    }

    /// The part that the ids of the permits of this acquisition have in common: 28 hexadecimal digits, of which the
    /// first 16 are those of the client, and the others the number of the acquisition.
    pub(crate) fn permit_base(&self) -> String {
        let client = self.client().bytes().filter(|byte| *byte != b'-').take(16);
        let client: String = client.map(char::from).collect();
        format!("{client}{:012x}", self.number())
    }

    /// The id of a permit of this acquisition: 32 hexadecimal digits, as Redisson writes them.
    pub(crate) fn permit_id(&self, n: u16) -> String {
        format!("{}{n:04x}", self.permit_base())
    }

    /// An owner that a store shows.
    #[cfg(any(
        feature = "etcd",
        feature = "postgres",
        feature = "sqlite",
        feature = "zookeeper",
        feature = "testing"
    ))]
    pub(crate) fn of_text(text: &str) -> Self {
        Self(text.into())
    }

    /// The text on the wire.
    ///
    /// # Examples
    /// ```
    /// use tidelock::store::OwnerId;
    ///
    /// /// What stands in the store is ours only if it is the whole text.
    /// fn is_ours(owner: &OwnerId, stored: &str) -> bool {
    ///     owner.text() == stored // `uuid:n`
    /// }
    /// ```
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Creates new owner ids for one client.
#[derive(Debug)]
pub(crate) struct OwnerMint {
    client: ClientId,
    next: AtomicU64,
    /// The id of the process that made it. Atomic, because tests change it.
    process: AtomicU32,
}

impl OwnerMint {
    pub(crate) fn new() -> Self {
        Self {
            client: ClientId::random(),
            next: AtomicU64::new(1),
            process: AtomicU32::new(std::process::id()),
        }
    }

    /// Whether this process made it. A process that was forked from that one has a copy, which mints the same owners.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process.load(Ordering::Relaxed) == std::process::id()
    }

    /// From now on it is that of another process.
    #[cfg(test)]
    pub(crate) fn fork(&self) {
        self.process.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn fresh(&self) -> OwnerId {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let client = self.client.as_str();
        // A colon and up to 20 digits follow the client's id.
        let mut text = String::with_capacity(client.len() + 21);
        text.push_str(client);
        text.push(':');
        text.push_str(itoa::Buffer::new().format(number));
        OwnerId(text.into())
    }

    pub(crate) fn client(&self) -> &ClientId {
        &self.client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Redisson, and the holders beside us, tell permits apart by these texts.
    #[test]
    fn the_id_of_a_permit_names_its_client_its_acquisition_and_its_place() {
        let mint = OwnerMint::new();
        let client = mint.client().as_str().replace('-', "");
        let (first, second) = (mint.fresh(), mint.fresh());
        assert_eq!(
            first.permit_base(),
            format!("{}000000000001", &client[..16])
        );
        assert_eq!(first.permit_id(10), format!("{}000a", first.permit_base()));
        assert_eq!(
            second.permit_base(),
            format!("{}000000000002", &client[..16])
        );
        assert_eq!(second.permit_id(0).len(), 32);
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn a_writer_upgrades_the_reader_that_it_names() {
        let (mint, other) = (OwnerMint::new(), OwnerMint::new());
        let reader = mint.fresh().upgradeable();
        let writer = mint.fresh().upgrading(&reader);
        assert!(OwnerId::is_upgradeable(reader.text()) && !OwnerId::is_upgradeable(writer.text()));
        assert_eq!((reader.number(), writer.number()), (1, 2));
        assert_eq!(writer.client(), mint.client().as_str());
        assert!(OwnerId::upgrades(writer.text(), reader.text()));
        for stranger in [mint.fresh().upgradeable(), other.fresh().upgradeable()] {
            assert!(!OwnerId::upgrades(writer.text(), stranger.text()));
        }
        assert!(!OwnerId::upgrades(mint.fresh().text(), reader.text()));
    }
}
