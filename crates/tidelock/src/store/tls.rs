//! TLS for every store: trusted authorities, client certificates, and the meaning of TLS errors.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::engine::runtime::background;
use crate::error::{Error, ErrorKind, Result};
use crate::store::TlsFiles;

#[cfg(feature = "postgres")]
mod any_name;
#[cfg(any(feature = "redis", feature = "etcd"))]
pub(crate) mod handshake;

/// How a server's certificate is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// The signature, the dates, and the host name.
    Everything,
    /// The signature and the dates; any host name.
    #[cfg(feature = "postgres")]
    AnyName,
}

/// Returns whether any TLS file was named. If so, a plain-text connection must be an error.
pub(crate) fn is_wanted(files: &TlsFiles) -> bool {
    files.ca.is_some() || files.cert.is_some() || files.key.is_some()
}

/// The host name that a server's certificate must contain.
pub(crate) fn name(host: &str) -> Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned())
        .map_err(|_| bad(format!("{host:?} is no host name a certificate can be for")))
}

/// Builds a connector. Every connect reads the files again, so that renewed certificates take effect without a restart.
pub(crate) async fn connector(
    files: &TlsFiles,
    check: Check,
    alpn: &[&[u8]],
) -> Result<TlsConnector> {
    // We read the files on another thread. Loading the system's authorities is slow, and this thread may be the
    // steward's.
    let files = files.clone();
    let mut config = background::blocking(move || config(&files, check))
        .await
        .ok_or_else(|| bad("the certificates could not be read"))??;
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Merges the builder's files with the URL's. The builder's take precedence; certificate and key stay a pair.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn named(builder: &TlsFiles, url: TlsFiles) -> TlsFiles {
    let own = builder.cert.is_some() || builder.key.is_some();
    let (cert, key) = if own {
        (builder.cert.clone(), builder.key.clone())
    } else {
        (url.cert, url.key)
    };
    let ca = builder.ca.clone().or(url.ca);
    TlsFiles { ca, cert, key }
}

/// The trusted authorities, as DER, for a driver that makes its own TLS connections. We check all of the client's files
/// here, because the driver's errors do not name the file that is wrong.
///
/// The driver uses the process-wide crypto provider. It panics if none is installed and the program links none or two.
/// So we install one if the program has not.
#[cfg(feature = "mysql")]
pub(crate) async fn authorities(files: &TlsFiles) -> Result<Vec<Vec<u8>>> {
    if crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread has just installed a provider.
        let _ = crypto::ring::default_provider().install_default();
    }
    let files = files.clone();
    let read = background::blocking(move || {
        config(&files, Check::Everything)?;
        let all = match &files.ca {
            Some(ca) => certificates(ca)?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        // We drop malformed certificates. Otherwise one of them on this machine would make the driver fail.
        let good = |one: &CertificateDer<'static>| RootCertStore::empty().add(one.clone()).is_ok();
        Ok(all
            .into_iter()
            .filter(good)
            .map(|one| one.to_vec())
            .collect())
    });
    read.await
        .ok_or_else(|| bad("the certificates could not be read"))?
}

/// Appends advice to an error of the TLS library. `plain`: how to configure plain text.
pub(crate) fn explain(error: &impl fmt::Display, plain: &str) -> String {
    let text = error.to_string();
    let says = |words: &str| text.contains(words);
    let advice = if says("UnknownIssuer") {
        "; name the authority that signed the server's certificate with `tls_ca`"
    } else if says("NotValidForName") || says("not valid for name") {
        "; connect by a name the certificate is for"
    } else if says("Expired") || says("expired") {
        "; renew the server's certificate, and check this machine's clock"
    } else if says("InvalidContentType") || says("corrupt message") || says("handshake eof") {
        return may_be_plain(&text, plain);
    } else if says("CertificateRequired") {
        "; the server wants a client certificate: set `tls_identity`"
    } else {
        ""
    };
    format!("{text}{advice}")
}

fn may_be_plain(error: &impl fmt::Display, plain: &str) -> String {
    format!("{error}; the port may speak plain text: {plain}")
}

/// Maps an error of the TLS library to a kind. If one side rejects the other, a retry fails in the same way. If the
/// connection only broke, the server may be restarting, and a retry may succeed.
pub(crate) fn kind(text: &str) -> ErrorKind {
    let refusals = [
        "invalid peer certificate",
        "received fatal alert",
        "received corrupt message",
        "peer is incompatible",
    ];
    if refusals.iter().any(|words| text.contains(words)) {
        ErrorKind::Refused
    } else {
        ErrorKind::Unavailable
    }
}

/// We name the crypto provider. The process-wide default panics if a program links two providers or none.
fn config(files: &TlsFiles, check: Check) -> Result<ClientConfig> {
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(bad)?;
    let roots = roots(files.ca.as_deref())?;
    let builder = match check {
        Check::Everything => builder.with_root_certificates(roots),
        #[cfg(feature = "postgres")]
        Check::AnyName => builder
            .dangerous()
            .with_custom_certificate_verifier(any_name::verifier(roots, provider).map_err(bad)?),
    };
    match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => {
            let chain = certificates(cert)?;
            let key = PrivateKeyDer::from_pem_file(key)
                .map_err(|e| bad(format!("the client's key {}: {e}", key.display())))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|e| bad(format!("the client's certificate and key: {e}")))
        }
        (None, None) => Ok(builder.with_no_client_auth()),
        _ => Err(bad("a client certificate and its key are needed together")),
    }
}

/// The authorities in the given file, or else the system's. We use the system's list instead of a built-in one: it
/// includes the administrator's authorities and is updated with the system.
fn roots(ca: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(ca) => {
            for certificate in certificates(ca)? {
                roots
                    .add(certificate)
                    .map_err(|e| bad(format!("{}: {e}", ca.display())))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(bad(
            "no certificate of an authority was found; name a PEM file with `tls_ca`",
        ));
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|e| bad(format!("{}: {e}", path.display())))
}

pub(crate) fn bad(why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidOptions).because(format!("TLS: {why}"))
}

#[cfg(test)]
mod tests;
