//! Bytes to and from a member: TCP or TLS.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::errors::unsent;
use super::url::Place;
use crate::backend::TlsFiles;
use crate::core::rt;
use crate::error::{Error, ErrorKind, Result};

/// A byte stream of any kind.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Sync {}
impl<S: AsyncRead + AsyncWrite + Send + Sync> Stream for S {}

/// Connects. The caller bounds the time.
pub(super) async fn dial(place: &Place, files: &TlsFiles) -> Result<Pin<Box<dyn Stream>>> {
    let tcp = TcpStream::connect((place.host.as_str(), place.port))
        .await
        .map_err(|e| unreachable_at(place, &e))?;
    // A request is one small write: waiting for more to send would only delay it.
    tcp.set_nodelay(true)
        .map_err(|e| unreachable_at(place, &e))?;
    if place.tls {
        secure(tcp, place, &place.host, files).await
    } else {
        Ok(Box::pin(tcp))
    }
}

fn unreachable_at(place: &Place, why: &std::io::Error) -> Error {
    unsent(format_args!("{place}: {why}"))
}

async fn secure(
    tcp: TcpStream,
    place: &Place,
    host: &str,
    files: &TlsFiles,
) -> Result<Pin<Box<dyn Stream>>> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| bad_tls(format!("{host:?} is no host name a certificate can be for")))?;
    // On another thread: reading the authorities of a machine takes a while, and this one may be the steward's.
    let files = files.clone();
    let mut config = rt::blocking(move || config(&files))
        .await
        .ok_or_else(|| bad_tls("the certificates could not be read"))??;
    // etcd's server hangs up on who does not ask for HTTP/2 here.
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    match connector.connect(name, tcp).await {
        Ok(stream) => Ok(Box::pin(stream)),
        Err(e) => Err(unsent(format_args!("{place}: TLS: {}", explain(&e)))),
    }
}

/// Adds what to do to what the TLS library says.
fn explain(error: &std::io::Error) -> String {
    let text = error.to_string();
    let advice = if text.contains("UnknownIssuer") {
        "; name the authority that signed the server's certificate with `tls_ca`"
    } else if text.contains("NotValidForName") || text.contains("not valid for name") {
        "; connect by a name the certificate is for"
    } else if text.contains("Expired") || text.contains("expired") {
        "; renew the server's certificate, and check this machine's clock"
    } else if text.contains("InvalidContentType") || text.contains("corrupt message") {
        "; the port may speak plain text: write etcd:// instead of etcds://"
    } else if text.contains("CertificateRequired") {
        "; the server wants a client certificate: set `tls_identity`"
    } else {
        ""
    };
    format!("{text}{advice}")
}

/// Read at each connect, so that renewed files are taken up without a restart. The crypto provider is named, because
/// the process-wide default panics when a program links two of them or none.
fn config(files: &TlsFiles) -> Result<ClientConfig> {
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(bad_tls)?
        .with_root_certificates(roots(files.ca.as_deref())?);
    match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => {
            let chain = certificates(cert)?;
            let key = PrivateKeyDer::from_pem_file(key)
                .map_err(|e| bad_tls(format!("the client's key {}: {e}", key.display())))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|e| bad_tls(format!("the client's certificate and key: {e}")))
        }
        (None, None) => Ok(builder.with_no_client_auth()),
        _ => Err(bad_tls(
            "a client certificate and its key are needed together",
        )),
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
                    .map_err(|e| bad_tls(format!("{}: {e}", ca.display())))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(bad_tls(
            "no certificate of an authority was found; name a PEM file with `tls_ca`",
        ));
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|e| bad_tls(format!("{}: {e}", path.display())))
}

fn bad_tls(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidOptions).because(format!("TLS: {why}"))
}
