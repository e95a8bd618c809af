use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair,
};
use time::{Duration, OffsetDateTime};

/// The certificate of a TLS server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServerCert {
    /// For `localhost` and `127.0.0.1`, from the tests' authority.
    #[default]
    Good,
    /// For another host name.
    WrongHost,
    /// Correct except for its validity dates.
    Expired,
}

/// The TLS settings of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tls {
    /// The server's certificate.
    pub cert: ServerCert,
    /// Whether the server refuses clients without a certificate from the tests' authority.
    pub client_certs: bool,
}

/// The paths of a TLS server's PEM files.
#[derive(Debug, Clone)]
pub struct Certs {
    /// The authority that signed all the others.
    pub ca: PathBuf,
    /// Another authority. It signed only `stranger`.
    pub other_ca: PathBuf,
    /// The server's certificate.
    pub server: PathBuf,
    /// The server's key.
    pub server_key: PathBuf,
    /// A client's certificate.
    pub client: PathBuf,
    /// The client's key.
    pub client_key: PathBuf,
    /// A client's certificate from the other authority.
    pub stranger: PathBuf,
    /// The key of that certificate.
    pub stranger_key: PathBuf,
}

type Ca = CertifiedIssuer<'static, KeyPair>;

impl Certs {
    /// Makes the files in `dir`.
    ///
    /// # Errors
    /// Fails when the files cannot be made or written.
    pub fn create(dir: &Path, shown: ServerCert) -> Result<Self> {
        let (own, other) = (authority("tidelock tests")?, authority("somebody else")?);
        let (server, server_key) = write(dir, "server", &signed(shown, "localhost", &own)?)?;
        let (client, client_key) =
            write(dir, "client", &signed(ServerCert::Good, "client", &own)?)?;
        let (stranger, stranger_key) = write(
            dir,
            "stranger",
            &signed(ServerCert::Good, "client", &other)?,
        )?;
        let (ca, other_ca) = (dir.join("ca.crt"), dir.join("other-ca.crt"));
        fs::write(&ca, own.pem())?;
        fs::write(&other_ca, other.pem())?;
        Ok(Self {
            ca,
            other_ca,
            server,
            server_key,
            client,
            client_key,
            stranger,
            stranger_key,
        })
    }
}

fn authority(name: &str) -> Result<Ca> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate()?).context("making an authority")
}

fn signed(kind: ServerCert, name: &str, by: &Ca) -> Result<(Certificate, KeyPair)> {
    let hosts = match kind {
        ServerCert::WrongHost => vec!["elsewhere.example".to_owned()],
        ServerCert::Good | ServerCert::Expired => {
            vec!["localhost".to_owned(), "127.0.0.1".to_owned()]
        }
    };
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, name);
    let now = OffsetDateTime::now_utc();
    params.not_before = now - Duration::days(30);
    params.not_after = if kind == ServerCert::Expired {
        now - Duration::days(1)
    } else {
        now + Duration::days(30)
    };
    let key = KeyPair::generate()?;
    let cert = params
        .signed_by(&key, by)
        .context("signing a certificate")?;
    Ok((cert, key))
}

fn write(
    dir: &Path,
    name: &str,
    (cert, key): &(Certificate, KeyPair),
) -> Result<(PathBuf, PathBuf)> {
    let (cert_file, key_file) = (
        dir.join(format!("{name}.crt")),
        dir.join(format!("{name}.key")),
    );
    fs::write(&cert_file, cert.pem())?;
    fs::write(&key_file, key.serialize_pem())?;
    Ok((cert_file, key_file))
}
