//! The user name and password of a client at its store.

use std::fmt;

/// User name and password for a store. `Debug` does not show the password.
///
/// # Examples
/// ```
/// use tidelock::{Client, Credentials};
///
/// let builder = Client::builder().credentials(Credentials::new("locks", "secret"));
/// assert!(!format!("{builder:?} {:?}", Credentials::password("secret")).contains("secret"));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credentials {
    /// The user; `None` for the user in the URL, or else the store's default user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

impl Credentials {
    /// A user with a password.
    ///
    /// # Examples
    /// ```
    /// use tidelock::Credentials;
    ///
    /// let locks = Credentials::new("locks", "secret");
    /// assert_eq!(locks.user.as_deref(), Some("locks"));
    /// ```
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            user: Some(user.into()),
            password: Some(password.into()),
        }
    }

    /// A password for the user in the URL, or for the store's default user if the URL has none.
    ///
    /// # Examples
    /// ```
    /// use tidelock::Credentials;
    ///
    /// let locks = Credentials::password("secret"); // what Redis's `requirepass` asks for
    /// assert_eq!(locks.user, None);
    /// ```
    pub fn password(password: impl Into<String>) -> Self {
        Self {
            user: None,
            password: Some(password.into()),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_has_the_parts_that_were_given_and_shows_no_password() {
        let both = Credentials::new("locks", "secret");
        let login = (both.user.as_deref(), both.password.as_deref());
        assert_eq!(login, (Some("locks"), Some("secret")));
        let alone = Credentials::password("secret");
        assert_eq!(
            (&alone.user, alone.password.as_deref()),
            (&None, Some("secret"))
        );
        for shown in [format!("{both:?}"), format!("{alone:?}")] {
            assert!(!shown.contains("secret"), "{shown}");
        }
    }
}
