//! Asks the function given to `credentials_from`.

use std::sync::Arc;

use crate::Credentials;
use crate::engine::runtime::background;
use crate::error::Result;
use crate::store::errors::unsent;

/// Asks the source for the credentials. Call it at each connect: passwords are rotated while clients run. The source runs on
/// a thread for blocking work, because it may read a file or ask a server, and this may be the steward's thread.
///
/// A password without a user is for the user of the URL. Otherwise the server would get it for its default user, or get no
/// login at all.
pub(crate) async fn given_by(
    source: &Arc<dyn Fn() -> Credentials + Send + Sync>,
    user_of_url: Option<&str>,
) -> Result<Credentials> {
    let source = Arc::clone(source);
    let given = background::blocking(move || source()).await;
    let Some(mut given) = given else {
        return Err(unsent("the function given to credentials_from panicked"));
    };
    if given.user.is_none() && given.password.is_some() {
        given.user = user_of_url.map(str::to_owned);
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_without_a_user_is_for_the_user_of_the_url() {
        let alone = Credentials::password("secret");
        let with_user = |user: &str| Credentials::new(user, "secret");
        let only_user = Credentials {
            user: Some("given".to_owned()),
            password: None,
        };
        for (given, user_of_url, expected) in [
            (alone.clone(), Some("app"), with_user("app")),
            (alone.clone(), None, alone),
            (with_user("given"), Some("app"), with_user("given")),
            (only_user.clone(), Some("app"), only_user),
            (Credentials::default(), Some("app"), Credentials::default()),
        ] {
            let source: Arc<dyn Fn() -> Credentials + Send + Sync> =
                Arc::new(move || given.clone());
            let login = given_by(&source, user_of_url).await.unwrap();
            assert_eq!(login, expected);
        }
    }
}
