//! Addresses: where brokers are reached, and where the program listens.

use super::values::value_error;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer};
use serde::{Serialize, Serializer};
use std::borrow::Cow;

/// How a broker is reached. The scheme alone decides about TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerTransport {
    /// `tcp://` or `mqtt://`: plaintext.
    Tcp,
    /// `tls://`, `ssl://` or `mqtts://`.
    Tls,
    /// `ws://`: websockets in plaintext.
    WebSocket,
    /// `wss://`: websockets over TLS.
    SecureWebSocket,
}

/// The address of an MQTT broker, `scheme://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerUrl {
    /// How it is reached.
    pub transport: BrokerTransport,
    /// The host name or address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path, for websockets; empty otherwise.
    pub path: String,
}

impl BrokerUrl {
    /// Whether the connection is encrypted.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        matches!(self.transport, BrokerTransport::Tls | BrokerTransport::SecureWebSocket)
    }

    /// Whether it goes over websockets.
    #[must_use]
    pub const fn is_websocket(&self) -> bool {
        matches!(self.transport, BrokerTransport::WebSocket | BrokerTransport::SecureWebSocket)
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or("the scheme is missing")?;
        let (transport, default_port) = match scheme {
            "tcp" | "mqtt" => (BrokerTransport::Tcp, 1883),
            "tls" | "ssl" | "mqtts" => (BrokerTransport::Tls, 8883),
            "ws" => (BrokerTransport::WebSocket, 80),
            "wss" => (BrokerTransport::SecureWebSocket, 443),
            _ => return Err("the scheme is not one of tcp, mqtt, tls, ssl, mqtts, ws, wss"),
        };
        let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        if authority.contains('@') {
            return Err("it holds credentials");
        }
        let websocket = matches!(transport, BrokerTransport::WebSocket | BrokerTransport::SecureWebSocket);
        if path.len() > 1 && !websocket {
            return Err("it holds a path");
        }
        let path = if websocket { path } else { "" };
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, tail) = rest.split_once(']').ok_or("the bracket is not closed")?;
                if host.parse::<core::net::Ipv6Addr>().is_err() {
                    return Err("the brackets hold no IPv6 address");
                }
                (host, if tail.is_empty() { None } else { Some(tail.strip_prefix(':').ok_or("the port is malformed")?) })
            }
            None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#')) {
            return Err("the host is missing or malformed");
        }
        let port = match port {
            Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or("the port is not a number from 1 to 65535")?,
            None => default_port,
        };
        Ok(Self { transport, host: host.to_owned(), port, path: path.to_owned() })
    }
}

impl fmt::Display for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.transport {
            BrokerTransport::Tcp => "tcp",
            BrokerTransport::Tls => "tls",
            BrokerTransport::WebSocket => "ws",
            BrokerTransport::SecureWebSocket => "wss",
        };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}{}", self.host, self.port, self.path)
        } else {
            write!(f, "{scheme}://{}:{}{}", self.host, self.port, self.path)
        }
    }
}

impl<'de> Deserialize<'de> for BrokerUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(|reason| {
            value_error(
                "E_BROKER_URL",
                format_args!("not a broker's address: {reason}"),
                "write `tls://host:8883` or `tcp://host:1883`; credentials go into `username` and `password`",
            )
        })
    }
}

impl Serialize for BrokerUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for BrokerUrl {
    fn schema_name() -> Cow<'static, str> {
        "BrokerUrl".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "title": "URL", "pattern": "^(tcp|mqtt|tls|ssl|mqtts|ws|wss)://[^@\\s]+$", "description": "scheme://host:port. The scheme decides about TLS: tls, ssl, mqtts and wss are encrypted; tcp, mqtt and ws are not." })
    }
}

/// Where a listener binds: `:8081` (every interface) or `127.0.0.1:8081`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddr(SocketAddr);

impl ListenAddr {
    /// Every IPv4 interface, at `port`.
    #[must_use]
    pub const fn port(port: u16) -> Self {
        Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port))
    }

    /// The address to bind.
    #[must_use]
    pub const fn get(self) -> SocketAddr {
        self.0
    }
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.ip() == IpAddr::V4(Ipv4Addr::UNSPECIFIED) { write!(f, ":{}", self.0.port()) } else { write!(f, "{}", self.0) }
    }
}

impl<'de> Deserialize<'de> for ListenAddr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let full = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None if text.starts_with(':') => format!("0.0.0.0{text}"),
            None => text,
        };
        full.parse().map(Self).map_err(|_| {
            value_error("E_LISTEN_ADDR", "not an address to listen on", "write `:8081` for every interface, or `127.0.0.1:8081` for one")
        })
    }
}

impl Serialize for ListenAddr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for ListenAddr {
    fn schema_name() -> Cow<'static, str> {
        "ListenAddr".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "title": "address", "pattern": "^([^\\s]*:[0-9]{1,5})$", "description": "An address to listen on: `:8081` for every interface, or `127.0.0.1:8081`." })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn broker_addresses_are_taken_apart() {
        let url = BrokerUrl::parse("tls://mqtt.prod.example.com:8883").unwrap();
        assert!(url.is_tls() && !url.is_websocket());
        assert_eq!((url.host.as_str(), url.port), ("mqtt.prod.example.com", 8883));
        for (text, canonical) in [
            ("mqtt://h", "tcp://h:1883"),
            ("mqtts://h", "tls://h:8883"),
            ("ssl://h:1", "tls://h:1"),
            ("tcp://h:1883/", "tcp://h:1883"),
            ("tcp://[::1]:1884", "tcp://[::1]:1884"),
            ("wss://h/mqtt", "wss://h:443/mqtt"),
        ] {
            assert_eq!(BrokerUrl::parse(text).unwrap().to_string(), canonical);
        }
        for text in [
            "h:1883",
            "http://h",
            "tcp://",
            "tcp://u:p@h",
            "tcp://h:0",
            "tcp://h:70000",
            "tcp://h:x",
            "tcp://h/p",
            "tcp://[::1",
            "tcp://[x]:1",
            "tcp://a b",
            "tcp://[::1]x",
        ] {
            assert!(BrokerUrl::parse(text).is_err(), "{text}");
        }
    }
}
