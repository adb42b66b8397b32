//! TLS and logins, against mosquitto: what is right connects, and everything else is refused with its reason.

use crate::mosquitto::{Mosquitto, free_port, listens};
use crate::packets::{Publish, Publisher};
use crate::support::{delivery, disconnected, options, ready, source, text};
use causeway_core::outcome::{Fault, FaultCode};
use causeway_mqtt::{BrokerUrl, CaSource, ClientIdentity, Credentials, Renewal, Secret, Shown, SourceOptions, TlsOptions, probe};
use causeway_ports::{Source, SourceEvent};
use core::time::Duration;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use std::process::Command;

pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap();
        Self { pem: certificate.pem(), issuer: Issuer::new(params, key) }
    }

    /// Certificate and key for `names`, as PEM.
    pub fn issue(&self, names: &[&str], expired: bool) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "causeway test");
        if expired {
            params.not_before = date_time_ymd(2019, 1, 1);
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

async fn tls_broker(authority: &Authority, names: &[&str], expired: bool, more: &str) -> Mosquitto {
    let (certificate, key) = authority.issue(names, expired);
    let settings = format!("allow_anonymous true\ncertfile FOLDER/cert.pem\nkeyfile FOLDER/key.pem\ncafile FOLDER/ca.pem\n{more}");
    Mosquitto::with(&settings, |folder| {
        std::fs::write(folder.join("cert.pem"), certificate).unwrap();
        std::fs::write(folder.join("key.pem"), key).unwrap();
        std::fs::write(folder.join("ca.pem"), &authority.pem).unwrap();
    })
    .await
}

fn secured(host: &str, port: u16, ca: &str) -> SourceOptions {
    let mut options = options(port, &[("a", "r")]);
    options.broker_url = BrokerUrl::parse(&format!("mqtts://{host}:{port}")).unwrap();
    options.tls.ca = CaSource::Pem(ca.as_bytes().to_vec());
    options
}

/// The source and the doctor must agree; their fault.
async fn refusal(options: SourceOptions) -> Fault {
    let told = probe(&options).await.unwrap_err();
    let mut source = source(options);
    let (fault, _) = disconnected(&mut source).await;
    assert_eq!(fault.code, told.code, "{fault} and {told}");
    assert_eq!(source.counters().connect_failures, 1);
    fault
}

#[tokio::test]
async fn the_right_authority_and_name_connect() {
    let authority = Authority::new("right");
    let broker = tls_broker(&authority, &["localhost", "127.0.0.1"], false, "").await;
    for host in ["localhost", "127.0.0.1"] {
        let wanted = secured(host, broker.port, &authority.pem);
        assert!(probe(&wanted).await.is_ok());
        let mut source = source(wanted);
        ready(&mut source).await;
        source.close(Duration::from_secs(10)).await;
    }
}

/// IPv6 addresses travel in brackets but are verified without them.
#[tokio::test]
async fn an_ipv6_address_is_verified() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return;
    }
    let authority = Authority::new("right");
    let port = free_port();
    let broker =
        tls_broker(&authority, &["::1"], false, &format!("listener {port} ::1\ncertfile FOLDER/cert.pem\nkeyfile FOLDER/key.pem\n")).await;
    listens("::1", port).await;
    assert_eq!(probe(&secured("[::1]", port, &authority.pem)).await.map(|_| ()), Ok(()));
    drop(broker);
}

#[tokio::test]
async fn messages_travel_over_tls() {
    let authority = Authority::new("right");
    let plain = free_port();
    let broker = tls_broker(&authority, &["localhost"], false, &format!("listener {plain} 127.0.0.1\n")).await;
    listens("127.0.0.1", plain).await;
    let mut source = source(secured("localhost", broker.port, &authority.pem));
    ready(&mut source).await;
    let mut publisher = Publisher::connect(plain).await;
    let big = "x".repeat(262_144);
    publisher.publish(&Publish::new("a", 1, &big)).await;
    let first = delivery(&mut source).await;
    assert!(text(&first) == big);
    source.acknowledge(first.id);
    let publishing =
        tokio::spawn(
            async move { publisher.publish_all(&(0..2_000).map(|n| Publish::new("a", 1, n.to_string())).collect::<Vec<_>>()).await },
        );
    for n in 0..2_000 {
        let delivery = delivery(&mut source).await;
        assert_eq!(text(&delivery), n.to_string());
        source.acknowledge(delivery.id);
    }
    publishing.await.unwrap();
    source.close(Duration::from_secs(10)).await;
    assert_eq!(source.counters().acknowledged, 2_001);
}

#[tokio::test]
async fn another_authority_is_refused() {
    let broker = tls_broker(&Authority::new("right"), &["localhost"], false, "").await;
    let fault = refusal(secured("localhost", broker.port, &Authority::new("other").pem)).await;
    assert_eq!(fault.code, FaultCode::InvalidConfig);
    assert!(fault.detail.contains("certificate"), "{fault}");
}

#[tokio::test]
async fn an_unknown_authority_is_refused_by_the_system_roots() {
    let broker = tls_broker(&Authority::new("right"), &["localhost"], false, "").await;
    let mut wanted = secured("localhost", broker.port, "");
    wanted.tls = TlsOptions::default();
    if wanted.validate().is_err() {
        return; // A host without any trusted certificates has nothing to verify by.
    }
    assert_eq!(refusal(wanted).await.code, FaultCode::InvalidConfig);
}

#[tokio::test]
async fn another_name_is_refused() {
    let authority = Authority::new("right");
    let broker = tls_broker(&authority, &["elsewhere.example"], false, "").await;
    let fault = refusal(secured("localhost", broker.port, &authority.pem)).await;
    assert_eq!(fault.code, FaultCode::InvalidConfig);
    assert!(fault.detail.contains("not valid for name"), "{fault}");
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let authority = Authority::new("right");
    let broker = tls_broker(&authority, &["localhost"], true, "").await;
    let fault = refusal(secured("localhost", broker.port, &authority.pem)).await;
    assert_eq!(fault.code, FaultCode::InvalidConfig);
    assert!(fault.detail.contains("expired"), "{fault}");
}

#[tokio::test]
async fn tls_to_a_plaintext_port_is_told() {
    let broker = Mosquitto::start().await;
    let fault = refusal(secured("127.0.0.1", broker.port, &Authority::new("any").pem)).await;
    assert!(fault.detail.contains("TLS"), "{fault}");
}

#[tokio::test]
async fn plaintext_to_a_tls_port_is_told() {
    let broker = tls_broker(&Authority::new("right"), &["localhost"], false, "").await;
    let fault = refusal(options(broker.port, &[("a", "r")])).await;
    assert!(fault.detail.contains("plaintext"), "{fault}");
}

#[tokio::test]
async fn a_broker_that_wants_a_client_certificate_gets_it_or_refuses() {
    let authority = Authority::new("right");
    let broker = tls_broker(&authority, &["localhost"], false, "require_certificate true\n").await;
    let mut wanted = secured("localhost", broker.port, &authority.pem);
    assert_eq!(refusal(wanted.clone()).await.code, FaultCode::NotAuthorized);
    let (certificate, key) = authority.issue(&["client"], false);
    wanted.tls.client = Some(ClientIdentity { cert_pem: certificate.into_bytes(), key_pem: key.into_bytes() });
    assert_eq!(probe(&wanted).await.map(|_| ()), Ok(()));
}

#[tokio::test]
async fn a_login_is_checked() {
    let broker = Mosquitto::with("allow_anonymous false\npassword_file FOLDER/passwords\n", |folder| {
        let status = Command::new("mosquitto_passwd").args(["-b", "-c"]).arg(folder.join("passwords")).args(["plant", "right"]).status();
        assert!(status.expect("mosquitto_passwd comes with mosquitto").success());
    })
    .await;
    let login = |password: Option<&str>| {
        let mut options = options(broker.port, &[("a", "r")]);
        options.credentials = password.map(|password| Credentials { username: "plant".into(), password: Secret::new(password) });
        options.allow_plaintext_credentials = true;
        options
    };
    for wrong in [Some("wrong"), None] {
        let fault = refusal(login(wrong)).await;
        assert_eq!(fault.code, FaultCode::NotAuthorized);
        assert!(!fault.detail.contains("wrong") && fault.detail.contains("password"), "{fault}");
    }
    let mut source = source(login(Some("right")));
    ready(&mut source).await;
}

#[tokio::test]
async fn a_name_without_an_address_is_told() {
    let mut wanted = options(1883, &[("a", "r")]);
    wanted.broker_url = BrokerUrl::parse("mqtt://broker.invalid").unwrap();
    let fault = refusal(wanted).await;
    assert_eq!(fault.code, FaultCode::Unavailable);
    assert!(fault.detail.contains("broker.invalid"), "{fault}");
}

/// A login and a certificate that are renewed while the program runs are used by the next connection, and what is not complete yet is not.
#[tokio::test]
async fn what_is_renewed_is_shown_by_the_next_connection() {
    let (former, latter, server) = (Authority::new("former"), Authority::new("latter"), Authority::new("server"));
    let passwords = |folder: &std::path::Path, password: &str| {
        let status = Command::new("mosquitto_passwd").args(["-b", "-c"]).arg(folder.join("passwords")).args(["plant", password]).status();
        assert!(status.expect("mosquitto_passwd comes with mosquitto").success());
    };
    let place = std::sync::OnceLock::new();
    let (certificate, key) = server.issue(&["localhost"], false);
    let settings = "allow_anonymous false\npassword_file FOLDER/passwords\ncertfile FOLDER/cert.pem\nkeyfile FOLDER/key.pem\ncafile FOLDER/ca.pem\nrequire_certificate true\n";
    let mut broker = Mosquitto::with(settings, |folder| {
        for (name, text) in [("cert.pem", &certificate), ("key.pem", &key), ("ca.pem", &former.pem)] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        passwords(folder, "first");
        place.set(folder.to_owned()).unwrap();
    })
    .await;
    let identity = |(certificate, key): (String, String)| ClientIdentity { cert_pem: certificate.into_bytes(), key_pem: key.into_bytes() };
    let ca = CaSource::Pem(server.pem.as_bytes().to_vec());
    let login = |password: &str| Credentials { username: "plant".into(), password: Secret::new(password) };
    let shown = std::sync::Arc::new(std::sync::Mutex::new(Shown::default()));
    let mut wanted = secured("localhost", broker.port, &server.pem);
    wanted.reconnect_delay = Duration::from_millis(50);
    wanted.reconnect_max_delay = Duration::from_millis(200);
    wanted.credentials = Some(login("first"));
    wanted.tls.client = Some(identity(former.issue(&["client"], false)));
    let now = std::sync::Arc::clone(&shown);
    wanted.renewal = Some(Renewal::new(move || now.lock().unwrap().clone()));
    let mut source = source(wanted);
    ready(&mut source).await;

    let folder = place.get().unwrap();
    broker.stop();
    std::fs::write(folder.join("ca.pem"), &latter.pem).unwrap();
    passwords(folder, "second");
    broker.start_again().await;
    disconnected(&mut source).await;
    let (fault, _) = disconnected(&mut source).await;
    assert_eq!(fault.code, FaultCode::NotAuthorized, "the former certificate: {fault}");
    // The key of another certificate: half of a renewal.
    let (certificate, _) = latter.issue(&["client"], false);
    let half = identity((certificate, latter.issue(&["client"], false).1));
    *shown.lock().unwrap() = Shown { credentials: None, tls: Some(TlsOptions { ca: ca.clone(), client: Some(half) }) };
    disconnected(&mut source).await;
    let whole = identity(latter.issue(&["client"], false));
    *shown.lock().unwrap() = Shown { credentials: Some(login("second")), tls: Some(TlsOptions { ca, client: Some(whole) }) };
    loop {
        match source.next().await {
            SourceEvent::Subscribed { .. } => break,
            SourceEvent::Closed => panic!("the source ended"),
            _ => {}
        }
    }
    source.close(Duration::from_secs(10)).await;
}
