//! `latency`: how long the monitor's pages take to answer while messages flow.

use crate::ledger::payload::Plan;
use crate::ledger::publisher::{Progress, Publisher};
use crate::rig::Rig;
use crate::stack::{StackOptions, Store};
use crate::terminal::{note, result};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// What is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Messages a second.
    #[arg(long, default_value_t = 2000)]
    pub rate: u64,
    /// Requests to each page.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub requests: u64,
    /// Where the outbox is kept.
    #[arg(long, value_enum, default_value = "sqlite")]
    pub store: Store,
    /// Print one JSON object on the last line of standard output.
    #[arg(long)]
    pub json: bool,
}

/// The page, its parts, and everything else that the monitor serves.
const PATHS: [&str; 16] = [
    "/",
    "/page.js",
    "/charts.js",
    "/flow.js",
    "/page.css",
    "/metrics",
    "/api/v1/monitor/live",
    "/api/v1/monitor/ready",
    "/api/v1/monitor/health",
    "/api/v1/monitor/deephealth",
    "/api/v1/monitor/topology",
    "/api/v1/monitor/routes",
    "/api/v1/monitor/status",
    "/api/v1/monitor/fleet",
    "/api/v1/monitor/history",
    "/api/v1/monitor/history?since=9999999999999",
];
/// Messages flow for so long before the first request.
const WARM_UP: Duration = Duration::from_secs(10);
/// From one request to the next.
const PAUSE: Duration = Duration::from_millis(5);
/// More than would ever be published in the meantime.
const MANY: u64 = 10_000_000;

/// Measures.
///
/// # Errors
/// A part does not start, or a page does not answer.
pub async fn run(options: &Options) -> Result<bool> {
    let dir = tempfile::Builder::new().prefix("causeway-latency-").tempdir().context("cannot create a temporary folder")?;
    note("building the worker");
    let rig = Rig::start(&StackOptions::bound(dir.path(), options.store), false).await?;
    let mut worker = rig.worker().await?;
    let progress = Progress::default();
    let publisher = Publisher { plan: Plan::new(MANY, 250), broker_port: rig.stack.broker.port(), numbers: 0..MANY, rate: options.rate };
    let publishing = tokio::spawn({
        let progress = progress.clone();
        async move { publisher.run(&progress).await }
    });
    tokio::time::sleep(WARM_UP).await;
    note("measuring");
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build()?;
    let (began, before) = (Instant::now(), received(&worker).await?);
    let mut taken = vec![Vec::new(); PATHS.len()];
    for _ in 0..options.requests {
        for (path, taken) in PATHS.iter().zip(&mut taken) {
            tokio::time::sleep(PAUSE).await;
            let asked = Instant::now();
            let answer =
                client.get(format!("{}{path}", worker.monitor())).send().await.with_context(|| format!("{path} does not answer"))?;
            // Degraded services answer 503, which takes as long.
            answer.bytes().await?;
            taken.push(asked.elapsed());
        }
    }
    let rate = (received(&worker).await? - before) / began.elapsed().as_secs_f64();
    progress.stop();
    publishing.await.context("the publisher broke")??;
    worker.process.expect_running()?;
    tell(options, rate, &mut taken)
}

async fn received(worker: &crate::worker::Worker) -> Result<f64> {
    worker.metrics().await?.get("causeway_messages_received_total").context("the worker does not count what it receives")
}

fn tell(options: &Options, rate: f64, taken: &mut [Vec<Duration>]) -> Result<bool> {
    let mut pages = Vec::new();
    for (path, taken) in PATHS.iter().zip(taken) {
        taken.sort_unstable();
        ensure!(!taken.is_empty(), "nothing was asked");
        let rank = |percent: usize| taken[(taken.len() * percent).div_ceil(100).saturating_sub(1)].as_secs_f64() * 1000.0;
        result(&format!("{path:<46} p50 {:>8.2} ms   p99 {:>8.2} ms   max {:>8.2} ms", rank(50), rank(99), rank(100)));
        pages.push(json!({ "path": path, "p50_ms": rank(50), "p99_ms": rank(99), "max_ms": rank(100) }));
    }
    result(&format!("{rate:.0} messages a second were received meanwhile; {} requests to each page", options.requests));
    if options.json {
        result(&json!({ "rate": rate, "requests": options.requests, "pages": pages }).to_string());
    }
    Ok(true)
}
