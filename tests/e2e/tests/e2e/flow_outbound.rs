//! A broker that stops reading, and one that asks for less: senders pause, the queue before them is asked for nothing, and all of it goes on by itself.

use causeway_e2e::{Run, Setup};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use xtask::stack::Store;
use xtask::stack::ports::free_port;

/// How long a change may take that comes by itself.
const PATIENCE: Duration = Duration::from_secs(90);
/// The reason of a PUBACK that asks for less.
const QUOTA_EXCEEDED: u8 = 0x97;

/// From the topic to another queue, from there through a gate to another topic, and from there to the queue.
fn layer(gate: u16) -> &'static str {
    let session = |id: &str, url: &str| {
        format!(
            "  - id: {id}
    transport: mqtt
    session_mode: persistent
    options:
      session: {{broker_url: \"{url}\", client_id: {id}, session_expiry_interval: 3600, reconnect_delay: 500ms, reconnect_max_delay: 2s, connect_timeout: 5s, reconcile_timeout: 5s}}
"
        )
    };
    let text = format!(
        "sessions:
{}{}receivers:
  - id: relay-in
    session_id: relay
    topics: [{{topic: \"relay/#\", qos: 1}}]
  - id: from-relay
    transport: sqs
    options: {{queue_url: \"${{CAUSEWAY_RELAY_QUEUE_URL}}\", wait_time_seconds: 1, visibility_timeout: 10}}
senders:
  - id: relay-out
    transport: sqs
    options: {{queue_url: \"${{CAUSEWAY_RELAY_QUEUE_URL}}\"}}
  - {{id: topic-out, session_id: gate, options: {{timeout: 60s}}}}
bindings:
  - {{id: to-relay, sender_id: relay-out, address: relay}}
  - {{id: to-topic, sender_id: topic-out, address: relay/all}}
routes:
  - {{id: ingest, bindings: [to-relay]}}
  - id: hop
    receiver_id: from-relay
    delivery_mode: direct_hold
    bindings: [to-topic]
    policy: {{max_replay_attempts: 50, send_timeout: 60s, backoff: {{initial_interval: 250ms, max_interval: 5s}}}}
  - id: relay
    receiver_id: relay-in
    delivery_mode: shared_outbox
    bindings: [to-sqs]
    policy: {{max_replay_attempts: 50, backoff: {{initial_interval: 250ms, max_interval: 5s}}}}
flow:
  outbound: {{resume: {{jitter: 0s}}, high_water_bytes: 300000}}
",
        session("relay", "${CAUSEWAY_BROKER_URL}"),
        session("gate", &format!("mqtt://127.0.0.1:{gate}")),
    );
    Box::leak(text.into_boxed_str())
}

/// What a gate does with what publishers send.
#[derive(Default)]
struct Will {
    /// So many PUBLISHes are refused because a quota is exceeded, and never reach the broker.
    refuse: AtomicU64,
    refused: AtomicU64,
}

/// A way to the broker that can be closed: what a publisher sends is read no more then, and fills whatever lies between.
struct Gate {
    open: watch::Sender<bool>,
    will: Arc<Will>,
    broker: Arc<Mutex<Option<u16>>>,
    port: u16,
    accept: JoinHandle<()>,
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

impl Gate {
    fn start() -> Self {
        let port = free_port().unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        // What lies between is little, so that a publisher soon notices that nobody reads.
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, port).into()).unwrap();
        let listener = socket.listen(16).unwrap();
        let (open, will, broker) = (watch::Sender::new(true), Arc::new(Will::default()), Arc::new(Mutex::new(None)));
        let accept = tokio::spawn(accept(listener, open.subscribe(), Arc::clone(&will), Arc::clone(&broker)));
        Self { open, will, broker, port, accept }
    }

    fn leads_to(&self, port: u16) {
        *self.broker.lock().unwrap() = Some(port);
    }

    fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }
}

async fn accept(listener: TcpListener, open: watch::Receiver<bool>, will: Arc<Will>, broker: Arc<Mutex<Option<u16>>>) {
    let mut ways = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let Some(port) = *broker.lock().unwrap() else { continue };
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else { continue };
        let (open, will) = (open.clone(), Arc::clone(&will));
        ways.spawn(async move {
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (client.into_split(), server.into_split());
            let (answers, mut outgoing) = mpsc::channel::<Vec<u8>>(1_000);
            let own = answers.clone();
            let up = async move {
                let mut open = open;
                while open.wait_for(|open| *open).await.is_ok() {
                    let Some(packet) = packet(&mut from_client).await else { return };
                    match refusal(&packet, &will) {
                        Some(answer) => drop(own.send(answer).await),
                        None => {
                            if to_server.write_all(&packet).await.is_err() {
                                return;
                            }
                        }
                    }
                }
            };
            let down = async move {
                while let Some(packet) = packet(&mut from_server).await {
                    if answers.send(packet).await.is_err() {
                        return;
                    }
                }
            };
            let write = async move {
                while let Some(packet) = outgoing.recv().await {
                    if to_client.write_all(&packet).await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! { () = up => {}, () = down => {}, () = write => {} }
        });
    }
}

/// The next packet of MQTT, as it came.
async fn packet(from: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut packet = vec![from.read_u8().await.ok()?];
    let (mut length, mut shift) = (0_usize, 0);
    loop {
        let byte = from.read_u8().await.ok()?;
        packet.push(byte);
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    let header = packet.len();
    packet.resize(header + length, 0);
    from.read_exact(&mut packet[header..]).await.ok()?;
    Some(packet)
}

/// What is answered to a PUBLISH in place of the broker, where it is to be refused.
fn refusal(packet: &[u8], will: &Will) -> Option<Vec<u8>> {
    if packet[0] >> 4 != 3 || (packet[0] >> 1) & 3 != 1 {
        return None;
    }
    will.refuse.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).ok()?;
    will.refused.fetch_add(1, Ordering::SeqCst);
    let body = 1 + packet[1..].iter().position(|byte| *byte < 0x80)? + 1;
    let topic = usize::from(u16::from_be_bytes([packet[body], packet[body + 1]]));
    let id = &packet[body + 2 + topic..][..2];
    Some(vec![0x40, 3, id[0], id[1], QUOTA_EXCEEDED])
}

/// The metrics of one moment, as they are written.
async fn text(run: &Run) -> String {
    let url = format!("http://{}/metrics", run.rig.launch.monitor);
    reqwest::Client::builder().no_proxy().build().unwrap().get(url).send().await.unwrap().text().await.unwrap()
}

fn value(text: &str, series: &str) -> f64 {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok()).unwrap_or(0.0)
}

/// Waits until a series has a value.
async fn becomes(run: &Run, series: &str, wanted: impl Fn(f64) -> bool) -> f64 {
    let started = tokio::time::Instant::now();
    loop {
        let now = text(run).await;
        let found = value(&now, series);
        if wanted(found) {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{series} is {found}\n{now}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

const EGRESS: &str = "causeway_paused_senders{direction=\"egress\"}";
const INGRESS: &str = "causeway_paused_senders{direction=\"ingress\"}";
const PENDING: &str = "causeway_pending_bytes{sender=\"topic-out\"}";
const TAKEN: &str = "causeway_mqtt_received_total{session=\"sqs:from-relay\"}";

async fn run(gate: &Gate, messages: u64, size: usize) -> Run {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let setup = Setup { proxies: true, keeps_topics: false, size, layer: Some(layer(gate.port)), ..Setup::new(Store::Sqlite, messages) };
    let run = Run::start(&setup).await.unwrap();
    gate.leads_to(run.rig.stack.broker.port());
    run
}

/// A broker that stops reading holds up what is sent to it, and the queue that feeds that; once it reads again everything goes on by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_a_broker_that_stops_reading_pauses_its_sender_and_the_queue_before_it() {
    const MESSAGES: u64 = 150;
    let gate = Gate::start();
    let mut run = run(&gate, MESSAGES, 120_000).await;
    run.publish(0..2, 0);
    run.publishing_done().await.unwrap();
    run.delivered(2).await.unwrap();
    gate.set_open(false);
    run.publish(2..MESSAGES, 0);
    becomes(&run, EGRESS, |paused| paused == 1.0).await;
    becomes(&run, INGRESS, |paused| paused == 1.0).await;
    // A poll that had begun may still be under way: it lasts a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = run.sqs().unwrap().calls("ReceiveMessage");
    // Longer than a message stays hidden from others.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let stalled = text(&run).await;
    assert_eq!((value(&stalled, EGRESS), value(&stalled, INGRESS)), (1.0, 1.0), "{stalled}");
    assert!(value(&stalled, PENDING) > 300_000.0 && value(&stalled, PENDING) < 300_000.0 + 130_000.0, "the mark and one message");
    assert_eq!(run.sqs().unwrap().calls("ReceiveMessage"), asked, "nothing is asked for while nothing can be sent");
    gate.set_open(true);
    becomes(&run, EGRESS, |paused| paused == 0.0).await;
    becomes(&run, INGRESS, |paused| paused == 0.0).await;
    run.delivered(MESSAGES).await.unwrap();
    // The worker tells once a second.
    becomes(&run, TAKEN, |taken| taken >= MESSAGES as f64).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(value(&text(&run).await, TAKEN), MESSAGES as f64, "each was received once: what was held stayed hidden");
    assert!(run.sqs().unwrap().calls("ReceiveMessage") > asked);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.duplicates, account.lost), (MESSAGES, MESSAGES, 0, 0));
}

/// A broker that says that a quota is exceeded is left alone for a while; no attempt counts, and nothing is lost or repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_a_broker_that_asks_for_less_is_left_alone_for_a_while() {
    const MESSAGES: u64 = 500;
    // Each time in a row costs a longer pause.
    const REFUSED: u64 = 12;
    let gate = Gate::start();
    let mut run = run(&gate, MESSAGES, 250).await;
    gate.will.refuse.store(REFUSED, Ordering::SeqCst);
    run.publish(0..MESSAGES, 0);
    run.publishing_done().await.unwrap();
    run.delivered(MESSAGES).await.unwrap();
    // The worker tells once a second.
    becomes(&run, TAKEN, |taken| taken >= MESSAGES as f64).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let after = text(&run).await;
    assert_eq!(gate.will.refused.load(Ordering::SeqCst), REFUSED);
    assert_eq!(value(&after, "causeway_peer_ack_total{sender=\"topic-out\",code=\"0x97\"}"), REFUSED as f64, "{after}");
    assert_eq!(value(&after, "causeway_throttled_total{route=\"hop\"}"), REFUSED as f64, "{after}");
    assert_eq!(value(&after, "causeway_send_retries_total{route=\"hop\"}"), 0.0, "no attempt counts");
    assert!(value(&after, "causeway_resume_total{route=\"hop\",forced=\"false\"}") >= 1.0, "{after}");
    assert_eq!(value(&after, TAKEN), MESSAGES as f64, "each was received once");
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.duplicates, account.lost), (MESSAGES, MESSAGES, 0, 0));
}
