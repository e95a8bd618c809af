use std::path::PathBuf;

use rcgen::CertifiedKey;
use tempfile::NamedTempFile;

use super::*;

/// A file with this text.
fn file(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// An authority, as DER; and the files with it and with its key.
fn authority() -> (Vec<u8>, NamedTempFile, NamedTempFile) {
    let names = ["db.example".to_owned()];
    let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).unwrap();
    let key = file(&signing_key.serialize_pem());
    (cert.der().to_vec(), file(&cert.pem()), key)
}

#[test]
fn any_file_for_tls_asks_for_tls() {
    let path = || Some(PathBuf::from("a.pem"));
    let none = TlsFiles::default();
    assert!(!is_wanted(&none));
    for files in [
        TlsFiles {
            ca: path(),
            ..none.clone()
        },
        TlsFiles {
            cert: path(),
            ..none.clone()
        },
        TlsFiles {
            key: path(),
            ..none.clone()
        },
    ] {
        assert!(is_wanted(&files), "{files:?}");
    }
}

/// A certificate of one and a key of the other would not fit.
#[cfg(any(feature = "mysql", feature = "postgres"))]
#[test]
fn certificate_and_key_come_from_the_builder_or_from_the_url() {
    let files = |ca: &str, cert: &str, key: &str| {
        let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
        TlsFiles {
            ca: path(ca),
            cert: path(cert),
            key: path(key),
        }
    };
    for (builder, expected) in [
        (files("", "", ""), files("u", "u", "u")),
        (files("b", "", ""), files("b", "u", "u")),
        (files("", "b", ""), files("u", "b", "")),
        (files("", "", "b"), files("u", "", "b")),
        (files("b", "b", "b"), files("b", "b", "b")),
    ] {
        assert_eq!(named(&builder, files("u", "u", "u")), expected);
    }
}

#[test]
fn an_error_of_tls_has_its_advice_and_tells_whether_a_retry_may_help() {
    use ErrorKind::{Refused, Unavailable};
    let plain = "the port may speak plain text: write a://";
    for (text, advice, expected) in [
        (
            "invalid peer certificate: UnknownIssuer",
            "`tls_ca`",
            Refused,
        ),
        (
            "invalid peer certificate: NotValidForName",
            "connect by a name",
            Refused,
        ),
        (
            "invalid peer certificate: certificate not valid for name \"a\"",
            "connect by a name",
            Refused,
        ),
        ("invalid peer certificate: Expired", "renew", Refused),
        (
            "invalid peer certificate: certificate expired: verification time 7",
            "renew",
            Refused,
        ),
        (
            "received corrupt message of type InvalidContentType",
            plain,
            Refused,
        ),
        ("InvalidContentType", plain, Unavailable),
        (
            "received corrupt message of type MessageTooLarge",
            plain,
            Refused,
        ),
        ("tls handshake eof", plain, Unavailable),
        (
            "received fatal alert: CertificateRequired",
            "`tls_identity`",
            Refused,
        ),
    ] {
        let told = explain(&text, "write a://");
        let rest = told.strip_prefix(text).unwrap();
        assert!(rest.starts_with("; ") && rest.contains(advice), "{told}");
        assert_eq!(kind(&told), expected, "{told}");
    }
    assert_eq!(explain(&"broken pipe", "write a://"), "broken pipe");
    assert_eq!(kind("broken pipe"), Unavailable);
}

#[test]
fn a_client_shows_its_certificate_if_it_has_the_key() {
    let (_, certificate, key) = authority();
    let (certificate, key) = (certificate.path().to_owned(), key.path().to_owned());
    let server_only = TlsFiles {
        ca: Some(certificate.clone()),
        ..TlsFiles::default()
    };
    let both = TlsFiles {
        cert: Some(certificate.clone()),
        key: Some(key.clone()),
        ..server_only.clone()
    };
    for (files, shows) in [(&server_only, false), (&both, true)] {
        let config = config(files, Check::Everything).unwrap();
        assert_eq!(config.client_auth_cert_resolver.has_certs(), shows);
    }
    for half in [
        TlsFiles {
            cert: Some(certificate),
            ..server_only.clone()
        },
        TlsFiles {
            key: Some(key),
            ..server_only
        },
    ] {
        let error = config(&half, Check::Everything).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions);
        assert!(error.to_string().contains("needed together"), "{error}");
    }
}

#[test]
fn a_file_of_authorities_that_has_none_is_refused() {
    let (empty, away) = (file("# no certificate\n"), "/nowhere/ca.pem");
    for (path, told) in [
        (empty.path(), "no certificate of an authority was found"),
        (Path::new(away), away),
    ] {
        let files = TlsFiles {
            ca: Some(path.to_owned()),
            ..TlsFiles::default()
        };
        let error = config(&files, Check::Everything).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions);
        assert!(error.to_string().contains(told), "{error}");
    }
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn a_driver_gets_the_authorities_of_the_file_and_no_others() {
    let (der, certificate, _key) = authority();
    let files = TlsFiles {
        ca: Some(certificate.path().to_owned()),
        ..TlsFiles::default()
    };
    assert_eq!(authorities(&files).await.unwrap(), [der]);
    let without_key = TlsFiles {
        cert: files.ca.clone(),
        ..files
    };
    let error = authorities(&without_key).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
}

/// As `sslmode=verify-ca` of PostgreSQL's own clients.
#[cfg(all(feature = "postgres", any(feature = "redis", feature = "etcd")))]
#[tokio::test]
async fn a_check_without_the_name_accepts_any_name_and_no_other_authority() {
    use tokio::net::TcpStream;

    use super::handshake::peer::{TlsServer, in_time};

    let (server, stranger) = (TlsServer::start().await, TlsServer::start().await);
    for (check, host, trusted, is_accepted) in [
        (Check::Everything, "127.0.0.1", &server, true),
        (Check::Everything, "db.example", &server, false),
        (Check::AnyName, "127.0.0.1", &server, true),
        (Check::AnyName, "db.example", &server, true),
        (Check::AnyName, "db.example", &stranger, false),
    ] {
        let connector = connector(&trusted.files(), check, &[]).await.unwrap();
        let tcp = TcpStream::connect(("127.0.0.1", server.port())).await;
        let shakes_hands = connector.connect(name(host).unwrap(), tcp.unwrap());
        let server_side = async {
            let _peer = server.serves().await;
            std::future::pending::<()>().await;
        };
        // The client decides first: the server waits for the end of its handshake.
        let both = async {
            tokio::select! {
                biased;
                shaken = shakes_hands => shaken,
                () = server_side => unreachable!("it never ends"),
            }
        };
        match in_time(both).await {
            Ok(_) => assert!(is_accepted, "{check:?} of {host}"),
            Err(error) => {
                assert!(!is_accepted, "{check:?} of {host}: {error}");
                assert_eq!(kind(&error.to_string()), ErrorKind::Refused, "{error}");
            }
        }
    }
}

/// A driver may use the connection below TLS in each of these ways.
#[cfg(any(feature = "redis", feature = "etcd"))]
#[tokio::test]
async fn the_connection_below_tls_writes_and_ends_as_a_plain_one() {
    use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::handshake::peer::{TlsServer, in_time};

    let (host, server) = ("127.0.0.1", TlsServer::start().await);
    let tcp = TcpStream::connect((host, server.port())).await.unwrap();
    let files = server.files();
    let shakes_hands = handshake::run(tcp, &"a://", host, &files, &[], "write b://");
    let both = async { tokio::join!(shakes_hands, server.serves()) };
    let (stream, peer) = in_time(both).await;
    let mut stream = stream.unwrap();
    let (below, _) = stream.get_mut();
    assert!(below.is_write_vectored());
    assert_eq!(below.write(b"text").await.unwrap(), 4);
    below.shutdown().await.unwrap();
    let ((mut peer, _), mut heard) = (peer.into_inner(), Vec::new());
    in_time(peer.read_to_end(&mut heard)).await.unwrap();
    assert_eq!(heard, b"text");
}
