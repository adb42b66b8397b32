//! What ECS tells a task, told by a scripted server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use causeway_worker::ecs::{MetadataError, Task, task};
use causeway_worker::instance::{facts, instance_id};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const ANSWER: &str = r#"{"Cluster":"plant","TaskARN":"arn:aws:ecs:eu-west-1:1:task/plant/0123abc","AvailabilityZone":"eu-west-1b",
 "Containers":[{"Name":"log"},{"Name":"bridge","Networks":[{"NetworkMode":"awsvpc","IPv4Addresses":["10.0.2.106"],"PrivateDNSName":"ip-10-0-2-106.internal"}]}]}"#;
const GENEROUS: Duration = Duration::from_secs(60);

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

/// Gives the answers one after the other, the last one for ever; an empty one is silence. Also counts the requests.
async fn server(answers: Vec<String>) -> (String, Arc<AtomicUsize>) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v4/x", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut silent = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let text = answers[count.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1)].clone();
            let mut request = [0; 4_096];
            let read = stream.read(&mut request).await.unwrap();
            assert!(request[..read].starts_with(b"GET /v4/x/task "));
            // The reader may hang up in the middle.
            let _ = stream.write_all(text.as_bytes()).await;
            if text.is_empty() {
                silent.push(stream);
            }
        }
    });
    (url, asked)
}

#[tokio::test]
async fn the_task_tells_its_name_zone_and_address() {
    let (url, asked) = server(vec![answer("503 Busy", ""), answer("200 OK", ANSWER)]).await;
    let told = task(&url, GENEROUS).await.unwrap();
    assert_eq!(
        (told.id(), told.availability_zone.as_deref(), told.host.as_deref()),
        ("0123abc", Some("eu-west-1b"), Some("ip-10-0-2-106.internal"))
    );
    assert_eq!(asked.load(Ordering::SeqCst), 2, "an endpoint that is not up yet is asked again");
    let by_address = ANSWER.replace(r#","PrivateDNSName":"ip-10-0-2-106.internal""#, "");
    assert_eq!(task(&server(vec![answer("200 OK", &by_address)]).await.0, GENEROUS).await.unwrap().host.as_deref(), Some("10.0.2.106"));
}

#[tokio::test]
async fn every_way_to_fail_has_its_own_error_and_an_end() {
    let endless = format!("HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n{}", " ".repeat(2 * 1024 * 1024));
    let short = Duration::from_millis(50);
    let tell = async |answers: Vec<String>, deadline| task(&server(answers).await.0, deadline).await;
    assert_eq!(tell(vec![endless], GENEROUS).await, Err(MetadataError::TooLong));
    assert_eq!(tell(vec![answer("404 Not Found", "")], GENEROUS).await, Err(MetadataError::Status(404)));
    assert!(matches!(tell(vec![answer("200 OK", "<html>")], GENEROUS).await, Err(MetadataError::Malformed(_))));
    assert!(matches!(tell(vec![answer("200 OK", r#"{"TaskARN":"x"}"#)], GENEROUS).await, Err(MetadataError::Malformed(_))));
    assert!(matches!(tell(vec![String::new()], short).await, Err(MetadataError::NoAnswer(_))), "silence ends with the deadline");
    assert!(matches!(task("http://127.0.0.1:9/v4", short).await, Err(MetadataError::NoAnswer(_))));
    let redirect = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned();
    assert_eq!(tell(vec![redirect], GENEROUS).await, Err(MetadataError::Status(302)), "nobody is sent elsewhere");
}

#[tokio::test]
async fn a_task_without_an_address_is_better_than_none() {
    let (url, asked) = server(vec![answer("200 OK", r#"{"TaskARN":"arn:aws:ecs:eu-west-1:1:task/plant/0123abc"}"#)]).await;
    assert_eq!(task(&url, GENEROUS).await.unwrap().host, None);
    assert!(asked.load(Ordering::SeqCst) > 1, "the address may come a moment later");
}

#[test]
fn what_is_configured_counts_then_what_is_listened_on_then_the_task() {
    let known = Task { arn: "arn:aws:ecs:r:1:task/c/77".to_owned(), availability_zone: Some("z".to_owned()), host: Some("h".to_owned()) };
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
