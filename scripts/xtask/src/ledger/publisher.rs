//! Publishes a plan's messages and counts what the broker acknowledged.

use super::payload::Plan;
use anyhow::{Result, bail};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rumqttc::mqttbytes::QoS;
use rumqttc::mqttbytes::v5::PubAckReason;
use rumqttc::{AsyncClient, EventLoop, MqttOptions, PublishNotice, PublishNoticeError, PublishOptions, PublishResult, SessionMode};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The most publishes that wait for their acknowledgement at any time.
const WINDOW: usize = 500;
/// How long the broker may be away before the publisher gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// How to publish.
#[derive(Clone, Debug)]
pub struct Publisher {
    /// What.
    pub plan: Plan,
    /// Where to.
    pub broker_port: u16,
    /// Which of the plan's messages.
    pub numbers: Range<u64>,
    /// Messages a second; 0 is as fast as the broker takes them.
    pub rate: u64,
}

/// What was published.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// The numbers of the messages that the broker acknowledged.
    pub acknowledged: BTreeSet<u64>,
    /// Messages for which the broker had no subscriber.
    pub unrouted: u64,
    /// How often the connection broke. What was unacknowledged then was published again.
    pub reconnects: u64,
}

impl Published {
    /// Adds what another publisher of the same plan published.
    pub fn merge(&mut self, other: Self) {
        self.acknowledged.extend(other.acknowledged);
        self.unrouted += other.unrouted;
        self.reconnects += other.reconnects;
    }
}

/// How far it is, for others to watch, and a way to end it before its time.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    acknowledged: AtomicU64,
    stopped: AtomicBool,
}

impl Progress {
    /// Messages acknowledged so far.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.0.acknowledged.load(Ordering::Relaxed)
    }

    /// Publishes nothing new from here on: the publisher is through as soon as everything so far is acknowledged.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }

    fn stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Relaxed)
    }

    /// Returns as soon as `count` messages are acknowledged.
    pub async fn reaches(&self, count: u64) {
        while self.acknowledged() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

type Answer = (u64, Result<PublishResult, PublishNoticeError>);

struct Work<'a> {
    publisher: &'a Publisher,
    progress: &'a Progress,
    published: Published,
    /// Sent and not acknowledged: the attempt that is under way.
    outstanding: BTreeMap<u64, u32>,
    next: u64,
    started: Instant,
}

impl Publisher {
    /// Publishes everything with quality of service 1. A broken connection is made anew, and what it left unacknowledged is published again,
    /// first and in order.
    ///
    /// # Errors
    /// The broker stays away, or refuses a message.
    pub async fn run(&self, progress: &Progress) -> Result<Published> {
        let mut work = Work {
            publisher: self,
            progress,
            published: Published::default(),
            outstanding: BTreeMap::new(),
            next: self.numbers.start,
            started: Instant::now(),
        };
        let mut broken_since = None;
        loop {
            let before = work.published.acknowledged.len();
            match work.one_connection().await? {
                Ended::Complete => return Ok(work.published),
                Ended::Broken(why) => {
                    if work.published.acknowledged.len() > before {
                        broken_since = None;
                    }
                    if broken_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                        bail!("the broker on port {} is away for {PATIENCE:?}: {why}", self.broker_port);
                    }
                    work.published.reconnects += 1;
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }
}

enum Ended {
    Complete,
    Broken(String),
}

impl Work<'_> {
    async fn one_connection(&mut self) -> Result<Ended> {
        let (client, event_loop) = connect(self.publisher);
        let mut poll = tokio::spawn(drive(event_loop));
        let ended = self.publish_over(&client, &mut poll).await;
        if matches!(ended, Ok(Ended::Complete)) {
            let _ = client.disconnect().await;
            let _ = tokio::time::timeout(Duration::from_secs(2), &mut poll).await;
        }
        poll.abort();
        ended
    }

    async fn publish_over(&mut self, client: &AsyncClient, poll: &mut tokio::task::JoinHandle<String>) -> Result<Ended> {
        let mut answers = FuturesUnordered::new();
        let repeats: Vec<u64> = self.outstanding.keys().copied().collect();
        for index in repeats {
            match self.publish(client, index).await {
                Ok(notice) => answers.push(answer(index, notice)),
                Err(why) => return Ok(Ended::Broken(why)),
            }
        }
        loop {
            let end = if self.progress.stopped() { self.next } else { self.publisher.numbers.end };
            while self.next < self.due().min(end) && answers.len() < WINDOW {
                let index = self.next;
                // Whatever comes of it, it is outstanding from here on, and the next connection repeats what is outstanding.
                self.next += 1;
                match self.publish(client, index).await {
                    Ok(notice) => answers.push(answer(index, notice)),
                    Err(why) => return Ok(Ended::Broken(why)),
                }
            }
            if self.next == end && self.outstanding.is_empty() {
                return Ok(Ended::Complete);
            }
            let pause = tokio::time::sleep(Duration::from_millis(if answers.len() < WINDOW { 2 } else { 1_000 }));
            tokio::select! {
                Some((index, result)) = answers.next() => if let Some(why) = self.answered(index, result)? {
                    return Ok(Ended::Broken(why));
                },
                why = &mut *poll => return Ok(Ended::Broken(why.unwrap_or_else(|fault| fault.to_string()))),
                () = pause, if self.next < end => {}
            }
        }
    }

    /// The number up to which messages are due by now.
    fn due(&self) -> u64 {
        let Range { start, end } = self.publisher.numbers;
        if self.publisher.rate == 0 {
            return end;
        }
        let elapsed = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        end.min(start + elapsed.saturating_mul(self.publisher.rate) / 1_000_000 + 1)
    }

    async fn publish(&mut self, client: &AsyncClient, index: u64) -> Result<PublishNotice, String> {
        let attempt = self.outstanding.entry(index).and_modify(|attempt| *attempt += 1).or_insert(1);
        let plan = &self.publisher.plan;
        let payload = plan.payload(index, *attempt);
        client.publish_tracked(plan.topic(index), payload, PublishOptions::new(QoS::AtLeastOnce)).await.map_err(|fault| fault.to_string())
    }

    /// Notes an answer. `Some`: the connection is no good any more.
    fn answered(&mut self, index: u64, result: Result<PublishResult, PublishNoticeError>) -> Result<Option<String>> {
        match result {
            Ok(PublishResult::Qos1(ack)) if ack.reason == PubAckReason::NoMatchingSubscribers => self.published.unrouted += 1,
            Ok(_) => {}
            Err(PublishNoticeError::V5PubAck(reason)) => {
                bail!("the broker refuses message {index}: {reason:?}")
            }
            Err(fault) => return Ok(Some(fault.to_string())),
        }
        self.outstanding.remove(&index);
        self.published.acknowledged.insert(index);
        self.progress.0.acknowledged.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    }
}

async fn answer(index: u64, notice: PublishNotice) -> Answer {
    (index, notice.wait_async().await)
}

fn connect(publisher: &Publisher) -> (AsyncClient, EventLoop) {
    let mut options = MqttOptions::new(format!("publisher-{}", publisher.plan.run), ("127.0.0.1", publisher.broker_port));
    options.set_keep_alive(30).set_session_mode(SessionMode::Clean);
    AsyncClient::builder(options).capacity(64).build()
}

/// Polls until the connection breaks: a second one over the same state would blur which publish was acknowledged when.
async fn drive(mut event_loop: EventLoop) -> String {
    loop {
        if let Err(fault) = event_loop.poll().await {
            return fault.to_string();
        }
    }
}
