//! Removes passwords from a store's URL before the command shows it or passes it to another program.

use percent_encoding::percent_decode_str;

/// The URL without its passwords, for people, for JSON and for the child command. It leads to the same store.
pub(crate) fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let rest = match login(scheme, rest) {
        Some((user, Some(_), place)) => format!("{user}@{place}"),
        _ => rest.to_owned(),
    };
    let Some((place, options)) = rest.split_once('?') else {
        return format!("{scheme}://{rest}");
    };
    let harmless: Vec<&str> = options.split('&').filter(|it| !is_secret(it)).collect();
    if harmless.is_empty() {
        return format!("{scheme}://{place}");
    }
    format!("{scheme}://{place}?{}", harmless.join("&"))
}

/// Replaces the passwords of `url` in an error message. Drivers often quote the URL in their errors.
pub(crate) fn hidden(message: &str, url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return message.to_owned();
    };
    let password = login(scheme, rest).and_then(|(_, password, _)| password);
    let options = rest.split_once('?').map_or("", |(_, options)| options);
    let values = options.split('&').filter(|it| is_secret(it));
    let values = values.filter_map(|it| it.split_once('=').map(|(_, value)| value));
    let mut hidden = message.to_owned();
    for secret in password.into_iter().chain(values) {
        let plain = percent_decode_str(secret).decode_utf8_lossy();
        for text in [secret, &*plain] {
            if !text.is_empty() {
                hidden = hidden.replace(text, "***");
            }
        }
    }
    hidden
}

/// Splits off the user and the password; returns them and the rest.
fn login<'a>(scheme: &str, rest: &'a str) -> Option<(&'a str, Option<&'a str>, &'a str)> {
    let (login, place) = if scheme.starts_with("postgres") {
        // The driver splits at the first `@`, so we do the same.
        rest.split_once('@')?
    } else {
        // A password may contain an `@` that was not encoded, so the last `@` before the path counts. We do not stop at
        // `#`, because not every store treats it as a delimiter.
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let at = rest[..end].rfind('@')?;
        (&rest[..at], &rest[at + 1..])
    };
    Some(match login.split_once(':') {
        Some((user, password)) => (user, Some(password), place),
        None => (login, None, place),
    })
}

/// Whether the key contains `pass` in any case, also percent-encoded (`password=…` and the like).
fn is_secret(option: &str) -> bool {
    let key = option.split('=').next().unwrap_or_default();
    let key = percent_decode_str(key).decode_utf8_lossy();
    key.to_ascii_lowercase().contains("pass")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let shown_as = [
            ("redis://u:p%40x@h:1/2", "redis://u@h:1/2"),
            ("redis://:p@x@h", "redis://@h"),
            ("redis://u@h/0", "redis://u@h/0"),
            ("sqlite:/a/b:c@d.db", "sqlite:/a/b:c@d.db"),
            ("postgres://u:p/x@h/d?table=t", "postgres://u@h/d?table=t"),
            ("postgres://h:1/d?user=a%40b", "postgres://h:1/d?user=a%40b"),
            (
                "postgres://u@h/d?password=p&table=t",
                "postgres://u@h/d?table=t",
            ),
            ("zookeeper://u:p#x@h,i:2/base", "zookeeper://u@h,i:2/base"),
            ("redis+unix:///s?db=1&pass=p", "redis+unix:///s?db=1"),
            ("redis+unix:///s?p%61ssword=p", "redis+unix:///s"),
            (
                "redis+sentinel://:p@a,b/s?sentinel_user=w&sentinel_password=x",
                "redis+sentinel://@a,b/s?sentinel_user=w",
            ),
            ("redis://h?locks=plain", "redis://h?locks=plain"),
        ];
        for (url, shown_url) in shown_as {
            assert_eq!(shown(url), shown_url);
        }
    }

    #[test]
    fn an_error_that_quotes_the_url_is_cleaned() {
        for (url, message) in [
            ("redis://u:hush@h", "bad redis://u:hush@h"),
            ("redis://u:h%75sh@h", "bad hush and h%75sh"),
            ("postgres://h/d?password=hush", "bad password=hush"),
        ] {
            let hidden = hidden(message, url);
            assert!(
                !hidden.contains("hush") && !hidden.contains("%75"),
                "{hidden}"
            );
        }
    }
}
