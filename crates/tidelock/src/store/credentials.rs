//! Asks the function given to `credentials_from`.

use std::sync::Arc;

use crate::Credentials;
use crate::engine::runtime::background;
use crate::error::Result;
use crate::store::errors::unsent;

/// Asks the source for the credentials. Call it at each connect: passwords are rotated while clients run. The source runs on
/// a thread for blocking work, because it may read a file or ask a server, and this may be the steward's thread.
pub(crate) async fn given_by(
    source: &Arc<dyn Fn() -> Credentials + Send + Sync>,
) -> Result<Credentials> {
    let source = Arc::clone(source);
    let given = background::blocking(move || source()).await;
    given.ok_or_else(|| unsent("the function given to credentials_from panicked"))
}
