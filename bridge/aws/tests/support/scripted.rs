//! An HTTP server that answers by a script: each request takes the next reply.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How the server treats one request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A status, headers, and a body.
    Answer { status: u16, headers: Vec<(&'static str, String)>, body: String },
    /// Reads the request and resets the connection without an answer: the request may have taken effect.
    ResetAfterRequest,
    /// Announces a body and breaks off in the middle of it.
    TornAnswer,
    /// Reads the request and never answers.
    Silence,
}

impl Reply {
    /// A success with a JSON body.
    pub fn ok(body: impl Into<String>) -> Self {
        Self::Answer { status: 200, headers: Vec::new(), body: body.into() }
    }

    /// A failure as AWS JSON services give it.
    pub fn failure(status: u16, code: &str) -> Self {
        Self::Answer { status, headers: Vec::new(), body: format!(r#"{{"__type":"{code}","message":"scripted"}}"#) }
    }

    /// The same with a header.
    pub fn with_header(mut self, name: &'static str, value: &str) -> Self {
        if let Self::Answer { headers, .. } = &mut self {
            headers.push((name, value.to_owned()));
        }
        self
    }
}

/// The requests so far: their heads, in lower case, and their bodies.
type Requests = Arc<Mutex<Vec<(String, String)>>>;

/// The server. It ends when dropped.
pub struct Scripted {
    /// Where it answers.
    pub endpoint: String,
    requests: Requests,
    task: JoinHandle<()>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Scripted {
    /// Starts it with its replies in order; requests beyond them are answered with the last one.
    pub async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let endpoint = format!("http://{}", listener.local_addr().expect("address"));
        let replies = Arc::new(Mutex::new(replies.into_iter().collect::<VecDeque<_>>()));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&replies), Arc::clone(&log)));
            }
        });
        Self { endpoint, requests, task }
    }

    /// The bodies of the requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("lock").iter().map(|(_, body)| body.clone()).collect()
    }

    /// A header of each of them.
    pub fn headers(&self, name: &str) -> Vec<Option<String>> {
        let of = |head: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(|value| value.trim().to_owned());
        self.requests.lock().expect("lock").iter().map(|(head, _)| of(head)).collect()
    }
}

async fn serve(mut stream: TcpStream, replies: Arc<Mutex<VecDeque<Reply>>>, requests: Requests) {
    while let Some(request) = read_request(&mut stream).await {
        requests.lock().expect("lock").push(request);
        let reply = {
            let mut replies = replies.lock().expect("lock");
            if replies.len() > 1 { replies.pop_front() } else { replies.front().cloned() }
        };
        match reply.expect("a script has at least one reply") {
            Reply::Answer { status, headers, body } => {
                let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {}\r\n{headers}\r\n{body}",
                    body.len()
                );
                if stream.write_all(head.as_bytes()).await.is_err() {
                    return;
                }
            }
            Reply::ResetAfterRequest => return,
            Reply::TornAnswer => {
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: 500\r\n\r\n{\"Succ")
                    .await;
                return;
            }
            Reply::Silence => std::future::pending().await,
        }
    }
}

/// Reads one request with a content length; answers its head and body.
async fn read_request(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")).and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((head, String::from_utf8_lossy(&body).into_owned()))
}
