//! The few MQTT 5 packets that the tests need, written independently of the client library.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(u16::try_from(bytes.len()).unwrap().to_be_bytes());
    out.extend(bytes);
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let byte = u8::try_from(value % 128).unwrap();
        value /= 128;
        out.push(if value > 0 { byte | 0x80 } else { byte });
        if value == 0 {
            return out;
        }
    }
}

pub fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    [&[first][..], &varint(body.len()), body].concat()
}

fn with_properties(body: &mut Vec<u8>, properties: &[u8]) {
    body.extend(varint(properties.len()));
    body.extend(properties);
}

pub fn connack(session_present: bool, code: u8, properties: &[u8]) -> Vec<u8> {
    let mut body = vec![u8::from(session_present), code];
    with_properties(&mut body, properties);
    packet(0x20, &body)
}

pub fn suback(id: u16, codes: &[u8]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    with_properties(&mut body, &[]);
    body.extend(codes);
    packet(0x90, &body)
}

pub fn puback(id: u16, reason: u8) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    body.push(reason);
    with_properties(&mut body, &[]);
    packet(0x40, &body)
}

pub fn unsuback(id: u16, code: u8) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    with_properties(&mut body, &[]);
    body.push(code);
    packet(0xb0, &body)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publish {
    pub topic: Vec<u8>,
    pub payload: Vec<u8>,
    pub id: u16,
    pub qos: u8,
    pub dup: bool,
    pub retain: bool,
    pub properties: Vec<u8>,
}

impl Publish {
    pub fn new(topic: &str, id: u16, payload: impl AsRef<[u8]>) -> Self {
        Self { topic: topic.into(), payload: payload.as_ref().to_vec(), id, qos: u8::from(id != 0), ..Self::default() }
    }

    pub fn dup(mut self) -> Self {
        self.dup = true;
        self
    }

    pub fn with(mut self, properties: &[u8]) -> Self {
        self.properties.extend(properties);
        self
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        string(&mut body, &self.topic);
        if self.qos > 0 {
            body.extend(self.id.to_be_bytes());
        }
        with_properties(&mut body, &self.properties);
        body.extend(&self.payload);
        packet(0x30 | (u8::from(self.dup) << 3) | (self.qos << 1) | u8::from(self.retain), &body)
    }
}

pub fn user_property(name: &str, value: &str) -> Vec<u8> {
    let mut out = vec![0x26];
    string(&mut out, name.as_bytes());
    string(&mut out, value.as_bytes());
    out
}

pub fn text_property(id: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![id];
    string(&mut out, value);
    out
}

/// What the client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    Connect {
        client_id: String,
        clean_start: bool,
        keep_alive: u16,
        session_expiry: Option<u32>,
        receive_maximum: Option<u16>,
        max_packet: Option<u32>,
        alias_maximum: Option<u16>,
    },
    Subscribe {
        id: u16,
        filter: String,
        options: u8,
        identifier: Option<usize>,
    },
    Unsubscribe {
        id: u16,
        filter: String,
    },
    PubAck(u16),
    PubRec(u16),
    PubComp {
        id: u16,
        code: u8,
    },
    PubRel(u16),
    Publish(Publish),
    Ping,
    Disconnect(u8),
    /// A DISCONNECT that changes for how many seconds the session is kept.
    Leave(u32),
    Other(u8),
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(count);
        self.0 = tail;
        head
    }

    fn u8(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take(2).try_into().unwrap())
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    fn string(&mut self) -> String {
        let count = usize::from(self.u16());
        String::from_utf8(self.take(count).to_vec()).unwrap()
    }

    fn varint(&mut self) -> usize {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.u8();
            value |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }
}

pub fn decode(first: u8, body: &[u8]) -> Sent {
    let mut reader = Reader(body);
    match first >> 4 {
        1 => connect(&mut reader),
        3 => {
            let qos = (first >> 1) & 3;
            let topic = reader.string().into_bytes();
            let id = if qos > 0 { reader.u16() } else { 0 };
            let length = reader.varint();
            let properties = reader.take(length).to_vec();
            let payload = reader.0.to_vec();
            Sent::Publish(Publish { topic, payload, id, qos, dup: first & 8 != 0, retain: first & 1 != 0, properties })
        }
        4 => Sent::PubAck(reader.u16()),
        5 => Sent::PubRec(reader.u16()),
        6 => Sent::PubRel(reader.u16()),
        7 => Sent::PubComp { id: reader.u16(), code: if reader.0.is_empty() { 0 } else { reader.u8() } },
        8 => {
            let id = reader.u16();
            let length = reader.varint();
            let mut properties = Reader(reader.take(length));
            let identifier = (!properties.0.is_empty() && properties.u8() == 0x0b).then(|| properties.varint());
            Sent::Subscribe { id, filter: reader.string(), options: reader.u8(), identifier }
        }
        10 => {
            let id = reader.u16();
            let length = reader.varint();
            reader.take(length);
            Sent::Unsubscribe { id, filter: reader.string() }
        }
        12 => Sent::Ping,
        14 => {
            let reason = if body.is_empty() { 0 } else { reader.u8() };
            let properties = if reader.0.is_empty() { 0 } else { reader.varint() };
            if properties > 0 && reader.u8() == 0x11 { Sent::Leave(reader.u32()) } else { Sent::Disconnect(reason) }
        }
        _ => Sent::Other(first),
    }
}

fn connect(reader: &mut Reader<'_>) -> Sent {
    assert_eq!((reader.string().as_str(), reader.u8()), ("MQTT", 5));
    let flags = reader.u8();
    let keep_alive = reader.u16();
    let length = reader.varint();
    let mut properties = Reader(reader.take(length));
    let (mut session_expiry, mut receive_maximum, mut max_packet, mut alias_maximum) = (None, None, None, None);
    while !properties.0.is_empty() {
        match properties.u8() {
            0x11 => session_expiry = Some(properties.u32()),
            0x21 => receive_maximum = Some(properties.u16()),
            0x27 => max_packet = Some(properties.u32()),
            0x22 => alias_maximum = Some(properties.u16()),
            other => panic!("unexpected CONNECT property {other:#x}"),
        }
    }
    Sent::Connect {
        client_id: reader.string(),
        clean_start: flags & 2 != 0,
        keep_alive,
        session_expiry,
        receive_maximum,
        max_packet,
        alias_maximum,
    }
}

/// Reads one packet; `None` at the end of the stream or when it breaks.
pub async fn read(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let first = stream.read_u8().await.ok()?;
    let (mut length, mut shift) = (0_usize, 0);
    loop {
        let byte = stream.read_u8().await.ok()?;
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((first, body))
}

/// A publisher for the real broker.
pub struct Publisher {
    stream: TcpStream,
    next_id: u16,
}

impl Publisher {
    pub async fn connect(port: u16) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let mut body = Vec::new();
        string(&mut body, b"MQTT");
        body.extend([5, 2, 0, 0, 0]);
        string(&mut body, b"");
        stream.write_all(&packet(0x10, &body)).await.unwrap();
        let (first, body) = read(&mut stream).await.unwrap();
        assert_eq!((first, body[1]), (0x20, 0));
        Self { stream, next_id: 0 }
    }

    /// Publishes and waits for the broker's acknowledgement, whose reason code it returns.
    pub async fn publish(&mut self, publish: &Publish) -> u8 {
        self.publish_all(std::slice::from_ref(publish)).await[0]
    }

    /// Publishes everything with quality of service 1 and at most 50 unacknowledged.
    pub async fn publish_all(&mut self, all: &[Publish]) -> Vec<u8> {
        let mut codes = Vec::new();
        for chunk in all.chunks(50) {
            let mut bytes = Vec::new();
            for publish in chunk {
                self.next_id = self.next_id % 60_000 + 1;
                bytes.extend(Publish { id: self.next_id, qos: 1, ..publish.clone() }.encode());
            }
            self.stream.write_all(&bytes).await.unwrap();
            for _ in chunk {
                let (first, body) = read(&mut self.stream).await.unwrap();
                assert_eq!(first, 0x40);
                codes.push(body.get(2).copied().unwrap_or(0));
            }
        }
        codes
    }

    pub async fn publish_loose(&mut self, publish: &Publish) {
        self.stream.write_all(&Publish { id: 0, qos: 0, ..publish.clone() }.encode()).await.unwrap();
    }

    /// Publishes with quality of service 2 and completes the handshake.
    pub async fn publish_exactly_once(&mut self, publish: &Publish) {
        self.next_id = self.next_id % 60_000 + 1;
        self.stream.write_all(&Publish { id: self.next_id, qos: 2, ..publish.clone() }.encode()).await.unwrap();
        assert_eq!(read(&mut self.stream).await.unwrap().0, 0x50);
        self.stream.write_all(&packet(0x62, &self.next_id.to_be_bytes())).await.unwrap();
        assert_eq!(read(&mut self.stream).await.unwrap().0, 0x70);
    }
}
