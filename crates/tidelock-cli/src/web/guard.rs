//! What every request has to pass, and what every answer says to the browser.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::web::server::Shared;

/// For answers that are no page.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// Refuses requests for an unknown host, and those of other sites. Forbids the browser all that the page does not need.
pub(super) async fn guard(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = if !is_for_us(&shared, &request) {
        let message = "tidelock web does not know this host; --host NAME makes it known\n";
        (StatusCode::MISDIRECTED_REQUEST, message).into_response()
    } else if is_of_another_site(&request) {
        let message = "another site may link to this page, and read nothing of it\n";
        (StatusCode::FORBIDDEN, message).into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    let mut say = |name: HeaderName, value| {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    };
    say(CONTENT_SECURITY_POLICY, NOTHING);
    say(X_CONTENT_TYPE_OPTIONS, "nosniff");
    // The names of locks are in the addresses.
    say(REFERRER_POLICY, "no-referrer");
    say(CACHE_CONTROL, "no-store");
    say(
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    );
    response
}

fn is_for_us(shared: &Shared, request: &Request) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    // A request may name its host in its first line as well.
    let of_line = request.uri().authority();
    let is_line_known = of_line.is_none_or(|host| shared.hosts.knows(host.as_str()));
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    is_line_known && host.to_str().is_ok_and(|host| shared.hosts.knows(host))
}

/// A page of another site cannot read the answer, but it could keep an event stream open, and so the store busy. A link
/// from another site is a navigation, and so is what such a page shows in a frame of its own; only the link is for a page
/// in a tab. A browser says which it is; other clients say nothing.
fn is_of_another_site(request: &Request) -> bool {
    let said = |name: &str| request.headers().get(name);
    let is = |name: &str, value: &str| said(name).is_some_and(|said| said == value);
    let is_foreign = is("sec-fetch-site", "cross-site") || is("sec-fetch-site", "same-site");
    // Not every browser that tells the mode tells this.
    let is_for_a_tab = said("sec-fetch-dest").is_none_or(|said| said == "document");
    let path = request.uri().path();
    let is_page = path != "/events" && !path.starts_with("/api/");
    let is_followed = is("sec-fetch-mode", "navigate") && is_for_a_tab && is_page;
    is_foreign && !is_followed
}
