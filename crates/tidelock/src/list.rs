//! The names of held locks, as a stream.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::stream::Stream;

use crate::engine::ClientInner;
use crate::error::{Error, Result};
use crate::store::{BoxFuture, Page};

/// The names of held locks, from [`Client::list`](crate::Client::list): a stream, or all of them with `.await`.
///
/// The stream reads one page of the store at a time, when it is polled. Each name comes once, in the order of the store.
/// A lock that is held all the time is in it; one that is acquired or released meanwhile may be. After an error it ends, except for
/// [`next_page`](Self::next_page).
///
/// # Cancel safety
/// Cancel safe; it only reads. After a dropped [`next`](Self::next) the stream goes on where it was.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let held = client.lock("stock:1").acquire().await?;
/// let mut names = client.list("stock:*");
/// while let Some(name) = names.next().await {
///     println!("{}", name?);
/// }
/// # drop(held);
/// # Ok(()) }
/// ```
#[must_use = "a list does nothing unless it is awaited or polled"]
pub struct HeldNames {
    client: Arc<ClientInner>,
    pattern: Arc<str>,
    left: usize,
    /// Names that the stream has returned: a store may return a name twice.
    seen: HashSet<String>,
    page: VecDeque<String>,
    next: NextPage,
}

/// Where the next page comes from.
enum NextPage {
    /// From here on. `None`: from the start.
    After(Option<String>),
    /// It is asked for, and begins here.
    Asked(BoxFuture<'static, Result<Page>>, Option<String>),
    /// There is none.
    End,
}

impl HeldNames {
    pub(crate) fn new(client: Arc<ClientInner>, pattern: &str) -> Self {
        Self {
            client,
            pattern: pattern.into(),
            left: usize::MAX,
            seen: HashSet::new(),
            page: VecDeque::new(),
            next: NextPage::After(None),
        }
    }

    /// At most this many names.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let (one, two) = (client.lock("a").acquire().await?, client.lock("b").acquire().await?);
    /// assert_eq!(client.list("*").limit(1).await?.len(), 1);
    /// # drop((one, two));
    /// # Ok(()) }
    /// ```
    pub fn limit(mut self, most: usize) -> Self {
        self.left = most;
        self
    }

    /// The next name. `None`: there are no more.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Refused`](crate::ErrorKind::Refused),
    /// [`Closed`](crate::ErrorKind::Closed). The stream ends after an error.
    ///
    /// # Cancel safety
    /// Cancel safe; no name is lost.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// assert!(client.list("*").next().await.is_none()); // nothing is held
    /// # Ok(()) }
    /// ```
    pub async fn next(&mut self) -> Option<Result<String>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// The next page of the store: the names in it, which may be none. `None`: there is no more page.
    ///
    /// [`next`](Self::next) reads one page after the other until one has a name. On a server with many other keys those are
    /// thousands of requests; a caller that must not load the store reads some pages and pauses.
    ///
    /// # Errors
    /// As [`next`](Self::next). But the stream does not end: the next call asks for the same page again.
    ///
    /// # Cancel safety
    /// Cancel safe; no name is lost.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let mut names = client.list("*");
    /// while let Some(page) = names.next_page().await {
    ///     println!("{:?}", page?);
    ///     tokio::time::sleep(Duration::from_millis(100)).await;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn next_page(&mut self) -> Option<Result<Vec<String>>> {
        if self.left == 0 {
            return None;
        }
        if self.page.is_empty() {
            let read = std::future::poll_fn(|cx| self.poll_page(cx)).await?;
            if let Err(error) = read {
                return Some(Err(error));
            }
        }
        let mut names = Vec::new();
        while let Some(name) = self.page.pop_front() {
            if self.left > 0 && self.seen.insert(name.clone()) {
                self.left -= 1;
                names.push(name);
            }
        }
        Some(Ok(names))
    }

    /// Reads one page. `None`: there is no more.
    fn poll_page(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<()>>> {
        loop {
            match &mut self.next {
                NextPage::End => return Poll::Ready(None),
                NextPage::After(after) => {
                    let after = after.take();
                    let asked = page(
                        Arc::clone(&self.client),
                        Arc::clone(&self.pattern),
                        after.clone(),
                    );
                    self.next = NextPage::Asked(Box::pin(asked), after);
                }
                NextPage::Asked(asked, after) => {
                    let read = ready!(asked.as_mut().poll(cx)).map(|Page { names, next }| {
                        self.page = names.into();
                        next
                    });
                    return Poll::Ready(Some(match read {
                        Ok(next) => {
                            self.next =
                                next.map_or(NextPage::End, |next| NextPage::After(Some(next)));
                            Ok(())
                        }
                        Err(error) => {
                            self.next = NextPage::After(after.take());
                            Err(error)
                        }
                    }));
                }
            }
        }
    }

    async fn collect(mut self) -> Result<Vec<String>> {
        let mut names = BTreeSet::new();
        while let Some(name) = self.next().await {
            names.insert(name?);
        }
        Ok(names.into_iter().collect())
    }
}

impl Stream for HeldNames {
    type Item = Result<String>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if this.left == 0 {
                return Poll::Ready(None);
            }
            if let Some(name) = this.page.pop_front() {
                if this.seen.insert(name.clone()) {
                    this.left -= 1;
                    return Poll::Ready(Some(Ok(name)));
                }
                continue;
            }
            match ready!(this.poll_page(cx)) {
                None => return Poll::Ready(None),
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    // A caller that passes over errors would poll a store that is away without end.
                    this.next = NextPage::End;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

async fn page(client: Arc<ClientInner>, pattern: Arc<str>, after: Option<String>) -> Result<Page> {
    client.refuse_if_closed()?;
    let store = client.home.store.front();
    let page = store.list(&pattern, after.as_deref());
    let page = client.steward.answered(page).await;
    page.map_err(Error::without_effect)
}

/// All names, sorted.
impl IntoFuture for HeldNames {
    type Output = Result<Vec<String>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.collect())
    }
}

impl fmt::Debug for HeldNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldNames")
            .field("pattern", &self.pattern)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Client, ErrorKind, Guard};

    async fn holding(client: &Client, names: &[&str]) -> Vec<Guard> {
        let mut held = Vec::new();
        for name in names {
            held.push(client.lock(name).acquire().await.unwrap());
        }
        held
    }

    #[tokio::test]
    async fn a_limit_is_that_of_all_pages_together() {
        let client = Client::connect("memory:").await.unwrap();
        let _held = holding(&client, &["a", "b", "c"]).await;
        for limit in 0..5 {
            let names = client.list("*").limit(limit).await.unwrap();
            assert_eq!(names.len(), limit.min(3));
            let mut names = client.list("*").limit(limit);
            let mut listed = 0;
            while let Some(page) = names.next_page().await {
                listed += page.unwrap().len();
            }
            assert_eq!(listed, limit.min(3), "pages of {limit}");
        }
        let mut names = client.list("b").limit(1);
        assert_eq!(names.next_page().await.unwrap().unwrap(), ["b"]);
        assert!(names.next_page().await.is_none());
    }

    /// A name may come twice, in one page or in two.
    #[tokio::test]
    async fn each_name_comes_once() {
        let client = Client::connect("memory:").await.unwrap();
        let _held = holding(&client, &["b", "c"]).await;
        let page = || VecDeque::from(["a", "b", "a"].map(str::to_owned));
        let mut names = client.list("*");
        names.page = page();
        let mut listed = Vec::new();
        while let Some(name) = names.next().await {
            listed.push(name.unwrap());
        }
        assert_eq!(listed, ["a", "b", "c"]);
        let mut names = client.list("*");
        names.page = page();
        assert_eq!(names.next_page().await.unwrap().unwrap(), ["a", "b"]);
        assert_eq!(names.next_page().await.unwrap().unwrap(), ["c"]);
        assert!(names.next_page().await.is_none());
    }

    #[tokio::test]
    async fn a_page_that_failed_is_asked_for_again() {
        let client = Client::connect("memory:").await.unwrap();
        let mut names = client.list("*");
        client.close(std::time::Duration::ZERO).await;
        for _ in 0..2 {
            let failed = names.next_page().await.unwrap().unwrap_err();
            assert_eq!(failed.kind(), ErrorKind::Closed);
        }
        assert!(names.next().await.unwrap().is_err());
        assert!(names.next().await.is_none(), "a stream ends");
    }
}
