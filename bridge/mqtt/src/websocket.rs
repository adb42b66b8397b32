//! MQTT over websockets: binary messages as a stream of bytes, section 6 of the specification.

use crate::options::BrokerUrl;
use async_tungstenite::bytes::{ByteReader, ByteWriter};
use async_tungstenite::tokio::client_async_with_config;
use async_tungstenite::tungstenite::client::IntoClientRequest;
use async_tungstenite::tungstenite::http::HeaderValue;
use async_tungstenite::tungstenite::http::header::SEC_WEBSOCKET_PROTOCOL;
use async_tungstenite::tungstenite::protocol::WebSocketConfig;
use async_tungstenite::tungstenite::{Error, Message};
use core::fmt;
use core::future::ready;
use futures_util::StreamExt as _;
use std::io;

use crate::dial::Stream;

/// A broker may put several packets into one websocket message, which is held in memory as a whole.
const LARGEST_MESSAGE: usize = 16 * 1_024 * 1_024;

/// The other side speaks no MQTT over websockets, or broke its rules.
#[derive(Debug)]
pub(crate) struct WebsocketRefused(String);

impl fmt::Display for WebsocketRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "websocket: {}", self.0)
    }
}

impl std::error::Error for WebsocketRefused {}

/// Asks the server on the other end of `stream` to speak MQTT over a websocket.
pub(crate) async fn open(stream: Box<dyn Stream>, url: &BrokerUrl, path: &str) -> io::Result<impl Stream + use<>> {
    // The scheme only decides about the port in the request's `Host`; TLS, if any, is below already.
    let scheme = if url.uses_tls() { "wss" } else { "ws" };
    let mut request = format!("{scheme}://{}{path}", url.authority()).into_client_request().map_err(refused)?;
    request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("mqtt"));
    let config = WebSocketConfig::default().max_message_size(Some(LARGEST_MESSAGE)).max_frame_size(Some(LARGEST_MESSAGE));
    let (socket, response) = client_async_with_config(request, stream, Some(config)).await.map_err(refused)?;
    // The library makes sure that the server agreed to what was asked for; one that says nothing may speak anything.
    if response.headers().get(SEC_WEBSOCKET_PROTOCOL).is_none_or(|agreed| agreed.as_bytes() != b"mqtt") {
        return Err(io::Error::other(WebsocketRefused(
            "the server did not agree to the subprotocol `mqtt`; is the path right?".to_owned(),
        )));
    }
    let (sender, receiver) = socket.split();
    // The reader would hand on the payload of pings as if it were MQTT, and take an empty one for the end.
    let packets = receiver.map(only_binary).filter(|message| ready(!matches!(message, Ok(message) if message.is_empty())));
    Ok(tokio::io::join(ByteReader::new(packets), ByteWriter::new(sender)))
}

fn only_binary(message: Result<Message, Error>) -> Result<Message, Error> {
    match message {
        Ok(Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_)) => Ok(Message::Binary(Default::default())),
        Ok(Message::Text(_)) => Err(Error::Io(io::Error::new(
            io::ErrorKind::InvalidData,
            WebsocketRefused("a text message, where MQTT has to be binary".to_owned()),
        ))),
        other => other,
    }
}

fn refused(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        Error::Http(response) => {
            io::Error::other(WebsocketRefused(format!("the server answered {}; is the path right?", response.status())))
        }
        other => io::Error::other(WebsocketRefused(other.to_string())),
    }
}
