//! TLS to the server of any store: whom we trust, what we show, and what an error means.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::backend::TlsFiles;
use crate::core::rt;
use crate::error::{Error, ErrorKind, Result};

#[cfg(feature = "postgres")]
mod any_name;

/// What of a server's certificate is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// Who signed it, its dates, and that it is for the host we connect to.
    Everything,
    /// As above, but it may be for any host.
    #[cfg(feature = "postgres")]
    AnyName,
}

/// Whether any file for TLS was named: then it must not be left out in silence.
pub(crate) fn is_wanted(files: &TlsFiles) -> bool {
    files.ca.is_some() || files.cert.is_some() || files.key.is_some()
}

/// The name a server's certificate must be for.
pub(crate) fn name(host: &str) -> Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned())
        .map_err(|_| bad(format!("{host:?} is no host name a certificate can be for")))
}

/// What makes connections secret. The files are read at each connect, so that renewed ones are taken up without a restart.
pub(crate) async fn connector(
    files: &TlsFiles,
    check: Check,
    alpn: &[&[u8]],
) -> Result<TlsConnector> {
    // On another thread: reading the authorities of a machine takes a while, and this one may be the steward's.
    let files = files.clone();
    let mut config = rt::blocking(move || config(&files, check))
        .await
        .ok_or_else(|| bad("the certificates could not be read"))??;
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Those of the builder before those that a URL names.
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

/// The authorities to trust, for a driver that makes its own connections: checked as for ours, with the files of the client,
/// because a driver does not say which file is wrong.
///
/// Such a driver takes the process-wide crypto provider, and panics where there is none or it cannot choose between two.
#[cfg(feature = "mysql")]
pub(crate) async fn authorities(files: &TlsFiles) -> Result<Vec<Vec<u8>>> {
    if crypto::CryptoProvider::get_default().is_none() {
        // An error means that the program has just chosen its own.
        let _ = crypto::ring::default_provider().install_default();
    }
    let files = files.clone();
    let read = rt::blocking(move || {
        config(&files, Check::Everything)?;
        let all = match &files.ca {
            Some(ca) => certificates(ca)?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        // One that makes no sense would be an error to the driver, and the others on this machine are good.
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

/// Adds what to do to what the TLS library says. `plain`: what to write where the port speaks plain text.
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
        return format!("{text}; the port may speak plain text: {plain}");
    } else if says("CertificateRequired") {
        "; the server wants a client certificate: set `tls_identity`"
    } else {
        ""
    };
    format!("{text}{advice}")
}

/// What a failure means, by what the TLS library says. Where one side refuses the other, the next try would end in the same way;
/// where the connection only broke, the server may be about to restart.
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

/// The crypto provider is named, because the process-wide default panics when a program links two of them or none.
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
            .with_custom_certificate_verifier(any_name::verifier(roots, provider)?),
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

/// The authorities of the given file, else those this machine trusts: they include what its administrator added, and
/// are kept up to date with the system, which a list built into the program would not be.
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
