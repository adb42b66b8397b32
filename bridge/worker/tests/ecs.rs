//! What ECS tells a task, told by a scripted server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use causeway_worker::ecs::{MetadataError, Patience, Task, task};
use causeway_worker::instance::{facts, instance_id};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const TASK: &str = r#"{"Cluster":"plant","TaskARN":"arn:aws:ecs:eu-west-1:1:task/plant/0123abc","AvailabilityZone":"eu-west-1b",
 "Limits":{"CPU":0.25,"Memory":512},"Containers":[{"Name":"log","Networks":[{"IPv4Addresses":["10.9.9.9"]}]}],
 "ClockDrift":{"ClockErrorBound":0.5458234999999999,"ReferenceTimestamp":"2021-09-07T16:57:44Z","ClockSynchronizationStatus":"SYNCHRONIZED"}}"#;
const CONTAINER: &str =
    r#"{"Name":"bridge","Networks":[{"NetworkMode":"awsvpc","IPv4Addresses":["10.0.2.106"],"PrivateDNSName":"ip-10-0-2-106.internal"}]}"#;
const STARTING: &str = r#"{"Name":"bridge","KnownStatus":"PULLED"}"#;

/// As at a start, but for the pauses.
const BRISK: Patience = Patience {
    first_pause: Duration::from_millis(1),
    longest_pause: Duration::from_millis(4),
    request: Duration::from_secs(60),
    total: Duration::from_secs(120),
    ..Patience::OF_A_START
};

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

fn ok(body: &str) -> String {
    answer("200 OK", body)
}

/// What was asked of one page, and what it answers: one after the other, the last one for ever; an empty one is silence.
struct Page {
    asked: AtomicUsize,
    answers: Vec<String>,
}

/// The metadata endpoint: the container at `/v4/x`, the task at `/v4/x/task`.
struct Endpoint {
    url: String,
    container: Arc<Page>,
    task: Arc<Page>,
}

impl Endpoint {
    async fn start(container: Vec<String>, task: Vec<String>) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v4/x", listener.local_addr().unwrap());
        let page = |answers| Arc::new(Page { asked: AtomicUsize::new(0), answers });
        let endpoint = Self { url, container: page(container), task: page(task) };
        let (container, task) = (Arc::clone(&endpoint.container), Arc::clone(&endpoint.task));
        tokio::spawn(async move {
            let mut silent = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 4_096];
                let read = stream.read(&mut request).await.unwrap();
                let page = if request[..read].starts_with(b"GET /v4/x/task ") {
                    &task
                } else {
                    assert!(request[..read].starts_with(b"GET /v4/x "));
                    &container
                };
                let nth = page.asked.fetch_add(1, Ordering::SeqCst);
                let text = &page.answers[nth.min(page.answers.len() - 1)];
                // The reader may hang up in the middle.
                let _ = stream.write_all(text.as_bytes()).await;
                if text.is_empty() {
                    silent.push(stream);
                }
            }
        });
        endpoint
    }

    async fn ask(&self, patience: Patience) -> Result<Task, MetadataError> {
        task(Some(&self.url), patience).await
    }

    fn asked(&self) -> (usize, usize) {
        (self.container.asked.load(Ordering::SeqCst), self.task.asked.load(Ordering::SeqCst))
    }
}

async fn told(container: &str) -> Task {
    Endpoint::start(vec![ok(container)], vec![ok(TASK)]).await.ask(BRISK).await.unwrap()
}

#[tokio::test]
async fn the_task_tells_its_name_zone_and_clock_and_the_container_its_address() {
    let endpoint = Endpoint::start(vec![ok(CONTAINER)], vec![answer("503 Busy", ""), answer("500 Oops", ""), ok(TASK)]).await;
    let told = endpoint.ask(BRISK).await.unwrap();
    assert_eq!(
        (told.id(), told.availability_zone.as_deref(), told.host.as_deref()),
        ("0123abc", Some("eu-west-1b"), Some("ip-10-0-2-106.internal")),
        "the address is that of its own container, not that of another one of the task"
    );
    let clock = told.clock.unwrap();
    assert!(clock.is_tolerable() && clock.error_bound.unwrap() < Duration::from_millis(1), "{clock:?}");
    assert_eq!(endpoint.asked(), (1, 3), "an endpoint that is not up yet is asked again");
}

#[tokio::test]
async fn addresses_come_late_and_in_every_form() {
    let endpoint = Endpoint::start(vec![ok(STARTING), ok(r#"{"Networks":[{}]}"#), ok(CONTAINER)], vec![ok(TASK)]).await;
    assert_eq!(endpoint.ask(BRISK).await.unwrap().host.as_deref(), Some("ip-10-0-2-106.internal"));
    assert_eq!(endpoint.asked(), (3, 1), "what is known is not asked for again");
    let by_address = CONTAINER.replace(r#","PrivateDNSName":"ip-10-0-2-106.internal""#, "");
    assert_eq!(told(&by_address).await.host.as_deref(), Some("10.0.2.106"));
    let by_ipv6 = r#"{"Networks":[{"IPv4Addresses":[],"IPv6Addresses":["2001:db8::7"],"PrivateDNSName":""}]}"#;
    let task = told(by_ipv6).await;
    assert_eq!(task.host.as_deref(), Some("[2001:db8::7]"));
    let published = facts(&BTreeMap::new(), Some(&task), Some("[::]:8082".parse().unwrap()));
    assert_eq!(published.endpoints["http"], "http://[2001:db8::7]:8082");
}

#[tokio::test]
async fn every_way_to_fail_has_its_own_error_and_an_end() {
    let tell = async |answers: Vec<String>, patience| Endpoint::start(vec![ok(CONTAINER)], answers).await.ask(patience).await;
    let endless = format!("HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n{}", " ".repeat(2 * 1024 * 1024));
    assert_eq!(tell(vec![endless], BRISK).await, Err(MetadataError::TooLong));
    assert_eq!(tell(vec![answer("404 Not Found", "")], BRISK).await, Err(MetadataError::Status(404)));
    assert!(matches!(tell(vec![ok("<html>")], BRISK).await, Err(MetadataError::Malformed(_))));
    assert!(matches!(tell(vec![ok(r#"{"TaskARN":"x"}"#)], BRISK).await, Err(MetadataError::Malformed(_))));
    let busy = Endpoint::start(vec![ok(CONTAINER)], vec![answer("500 Oops", "")]).await;
    assert_eq!(busy.ask(BRISK).await, Err(MetadataError::Status(500)));
    assert_eq!(busy.asked(), (0, 5), "five attempts");
    let short = Duration::from_millis(50);
    let slow = Patience { total: short, ..BRISK };
    assert!(matches!(tell(vec![String::new()], slow).await, Err(MetadataError::NoAnswer(_))), "silence ends with the deadline");
    let impatient = Patience { request: short, attempts: 2, ..BRISK };
    let late = tell(vec![String::new(), ok(TASK)], impatient).await;
    assert_eq!(late.unwrap().id(), "0123abc", "one that does not answer in time is asked again");
    assert!(matches!(task(Some("http://127.0.0.1:9/v4"), slow).await, Err(MetadataError::NoAnswer(_))));
    let redirect = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned();
    assert_eq!(tell(vec![redirect], BRISK).await, Err(MetadataError::Status(302)), "nobody is sent elsewhere");
}

#[tokio::test]
async fn elsewhere_than_on_ecs_nothing_is_asked_or_waited_for() {
    let endless = Patience { first_pause: Duration::from_secs(3_600), ..BRISK };
    for base in [None, Some(""), Some("/")] {
        assert_eq!(task(base, endless).await, Err(MetadataError::NotOnEcs), "{base:?}");
    }
}

#[tokio::test]
async fn a_task_without_an_address_is_better_than_none() {
    let endpoint = Endpoint::start(vec![ok(STARTING)], vec![ok(TASK)]).await;
    let told = endpoint.ask(BRISK).await.unwrap();
    assert_eq!((told.id(), told.host.as_deref()), ("0123abc", None));
    assert_eq!(endpoint.asked(), (5, 1), "the address may come a moment later");
    let broken = Endpoint::start(vec![ok("<html>")], vec![ok(TASK)]).await;
    assert_eq!(broken.ask(BRISK).await.unwrap().host, None);
    assert_eq!(broken.asked(), (1, 1));
}

#[tokio::test]
async fn a_clock_that_nobody_keeps_is_told() {
    for (status, bound, tolerable) in
        [("SYNCHRONIZED", "0.9", true), ("SYNCHRONIZED", "1500", false), ("NOT_SYNCHRONIZED", "0.1", false), ("SYNCHRONIZED", "-1", true)]
    {
        let answer = format!(
            r#"{{"TaskARN":"arn:aws:ecs:r:1:task/c/1","ClockDrift":{{"ClockErrorBound":{bound},"ClockSynchronizationStatus":"{status}"}}}}"#
        );
        let told = Endpoint::start(vec![ok(CONTAINER)], vec![ok(&answer)]).await.ask(BRISK).await.unwrap();
        assert_eq!(told.clock.unwrap().is_tolerable(), tolerable, "{status} {bound}");
    }
}

#[test]
fn what_is_configured_counts_then_what_is_listened_on_then_the_task() {
    let known = Task {
        arn: "arn:aws:ecs:r:1:task/c/77".to_owned(),
        availability_zone: Some("z".to_owned()),
        host: Some("h".to_owned()),
        clock: None,
    };
    let http = |facts: causeway_core::lease::row::OwnerFacts| facts.endpoints.get("http").cloned();
    let none = BTreeMap::new();
    let port = |address: &str| Some(address.parse().unwrap());
    assert_eq!(http(facts(&none, Some(&known), port("0.0.0.0:8082"))).as_deref(), Some("http://h:8082"));
    assert_eq!(http(facts(&none, Some(&known), port("127.0.0.1:9"))).as_deref(), Some("http://127.0.0.1:9"));
    assert_eq!(http(facts(&none, None, port("[::1]:9"))).as_deref(), Some("http://[::1]:9"));
    assert_eq!(http(facts(&none, Some(&known), None)), None, "it takes no hints");
    let written = [("http".to_owned(), "http://10.0.1.12:8080".to_owned())].into();
    assert_eq!(http(facts(&written, Some(&known), port("0.0.0.0:8082"))).as_deref(), Some("http://10.0.1.12:8080"));
    let told = facts(&none, Some(&known), None);
    assert_eq!((told.az.as_deref(), told.task_arn.as_deref()), (Some("z"), Some(known.arn.as_str())));
    assert_eq!((instance_id(Some(" mine "), Some(&known)), instance_id(Some(""), Some(&known))), ("mine".to_owned(), "77".to_owned()));
}
