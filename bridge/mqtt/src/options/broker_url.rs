//! Addresses of brokers.

use super::MqttConfigError;
use core::fmt;
use std::net::Ipv6Addr;

/// Where the broker is, and whether TLS and websockets are spoken to it. The scheme alone decides that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerUrl {
    tls: bool,
    host: String,
    port: u16,
    /// What is asked for over websockets; `None` where none are spoken.
    websocket: Option<String>,
}

impl BrokerUrl {
    /// Reads `mqtt://`, `tcp://` (plaintext, port 1883 unless given), `mqtts://`, `tls://` and `ssl://` (TLS, port 8883 unless given), `ws://` and `wss://`
    /// (websockets without and with TLS, port 80 and 443 unless given), of which the last two may go on with a path. IPv6 addresses stand in brackets.
    ///
    /// # Errors
    /// [`MqttConfigError::BrokerUrl`]; a user or password in the URL is refused too, because URLs end up in logs.
    pub fn parse(url: &str) -> Result<Self, MqttConfigError> {
        let shown = match (url.find("://"), url.rfind('@')) {
            (Some(scheme), Some(at)) if at > scheme => {
                format!("{}***{}", &url[..scheme + 3], &url[at..])
            }
            _ => url.to_owned(),
        };
        let wrong = |reason| MqttConfigError::BrokerUrl { url: shown.clone(), reason };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
        let (tls, websocket, default_port) = match scheme.to_ascii_lowercase().as_str() {
            "mqtt" | "tcp" => (false, false, 1883),
            "mqtts" | "tls" | "ssl" => (true, false, 8883),
            "ws" => (false, true, 80),
            "wss" => (true, true, 443),
            _ => return Err(wrong("the scheme must be mqtt, tcp, mqtts, tls, ssl, ws or wss")),
        };
        if rest.contains('@') {
            return Err(wrong("credentials belong in their own settings, not in the URL"));
        }
        let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        if authority.contains(['?', '#']) || (!websocket && path.len() > 1) {
            return Err(wrong("it must end after the port"));
        }
        if path.contains('#') || path.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(wrong("the path contains what no request can"));
        }
        let websocket = websocket.then(|| if path.is_empty() { "/".to_owned() } else { path.to_owned() });
        let (host, port) = if let Some(bracketed) = authority.strip_prefix('[') {
            let (host, after) = bracketed.split_once(']').ok_or_else(|| wrong("a `[` without its `]`"))?;
            host.parse::<Ipv6Addr>().map_err(|_| wrong("what stands in brackets is no IPv6 address"))?;
            let port =
                if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or_else(|| wrong("only a port may follow the `]`"))?) };
            (host, port)
        } else {
            match authority.split_once(':') {
                Some((_, port)) if port.contains(':') => {
                    return Err(wrong("an IPv6 address needs brackets"));
                }
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            }
        };
        if host.is_empty() {
            return Err(wrong("it has no host"));
        }
        if host.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(wrong("the host contains white space"));
        }
        let port = match port {
            None => default_port,
            Some(text) => text.parse().ok().filter(|port| *port != 0).ok_or_else(|| wrong("the port must be a number from 1 to 65535"))?,
        };
        Ok(Self { tls, host: host.to_owned(), port, websocket })
    }

    /// Host name or address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Whether the connection is encrypted and the broker's certificate verified.
    #[must_use]
    pub const fn uses_tls(&self) -> bool {
        self.tls
    }

    /// The path, where MQTT goes over websockets.
    #[must_use]
    pub fn websocket_path(&self) -> Option<&str> {
        self.websocket.as_deref()
    }

    /// Host and port, the host in brackets where it has to be.
    pub(crate) fn authority(&self) -> String {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        format!("{open}{}{close}:{}", self.host, self.port)
    }
}

impl fmt::Display for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (&self.websocket, self.tls) {
            (None, false) => "mqtt",
            (None, true) => "mqtts",
            (Some(_), false) => "ws",
            (Some(_), true) => "wss",
        };
        write!(f, "{scheme}://{}{}", self.authority(), self.websocket.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn url(text: &str) -> Result<(bool, String, u16), MqttConfigError> {
        BrokerUrl::parse(text).map(|url| (url.uses_tls(), url.host().to_owned(), url.port()))
    }

    #[test]
    fn urls_are_read_with_their_default_ports() {
        assert_eq!(url("mqtt://broker"), Ok((false, "broker".into(), 1883)));
        assert_eq!(url("TCP://broker:1884/"), Ok((false, "broker".into(), 1884)));
        assert_eq!(url("mqtts://broker.example"), Ok((true, "broker.example".into(), 8883)));
        assert_eq!(url("tls://10.0.0.1:1"), Ok((true, "10.0.0.1".into(), 1)));
        assert_eq!(url("ssl://[::1]:9000"), Ok((true, "::1".into(), 9000)));
        assert_eq!(url("mqtt://[fe80::1]"), Ok((false, "fe80::1".into(), 1883)));
        assert_eq!(BrokerUrl::parse("ssl://[::1]").unwrap().to_string(), "mqtts://[::1]:8883");
        assert_eq!(url("ws://broker/mqtt"), Ok((false, "broker".into(), 80)));
        assert_eq!(url("wss://broker"), Ok((true, "broker".into(), 443)));
        let path = |text: &str| BrokerUrl::parse(text).unwrap().websocket_path().map(str::to_owned);
        assert_eq!(path("ws://broker:9001").as_deref(), Some("/"));
        assert_eq!(path("wss://broker:9001/a/b?c=d").as_deref(), Some("/a/b?c=d"));
        assert_eq!(path("mqtt://broker/"), None);
        assert_eq!(BrokerUrl::parse("wss://[::1]/mqtt").unwrap().to_string(), "wss://[::1]:443/mqtt");
    }

    #[test]
    fn wrong_urls_are_refused_and_never_show_a_password() {
        for wrong in [
            "broker",
            "http://b",
            "mqtt://",
            "mqtt://:1883",
            "mqtt://b:0",
            "mqtt://b:65536",
            "mqtt://b:x",
            "mqtt://b/path",
            "mqtt://[::1",
            "mqtt://::1:1883",
            "mqtt://[b]:1",
            "mqtt://a b",
            "ws://b/a b",
            "ws://b/a#c",
            "ws://b?c",
        ] {
            assert!(url(wrong).is_err(), "{wrong}");
        }
        let error = url("mqtt://user:hunter2@b").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
