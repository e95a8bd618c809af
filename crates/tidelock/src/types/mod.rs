//! Plain types without behaviour of their own. They name no other module of the library.

mod drift;
mod escaped;
mod lock_kind;
mod lost_reason;
mod owner_id;
mod token;

pub(crate) use self::drift::Drift;
pub use self::escaped::Escaped;
pub use self::lock_kind::LockKind;
pub use self::lost_reason::LostReason;
pub(crate) use self::owner_id::OwnerMint;
pub use self::owner_id::{ClientId, OwnerId};
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use self::owner_id::{UPGRADEABLE, UPGRADES};
pub use self::token::FencingToken;
