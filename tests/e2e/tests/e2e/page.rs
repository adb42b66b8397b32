//! The status page as a browser shows it: a failover while one watches, a dead letter put back, narrow and wide, light and dark.

use causeway_aws::DynamoDeadLetters;
use causeway_core::dead_letter::{DeadLetter, DeadLetterState, Destination};
use causeway_core::identity::Id128;
use causeway_core::message::{Entry, Message};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_e2e::browser::Browser;
use causeway_ports::{Clock as _, DeadLetters as _, SystemClock};
use serde_json::Value;
use xtask::ledger::payload::Plan;
use xtask::ledger::publisher::{Progress, Publisher};
use xtask::rig::Rig;
use xtask::stack::{StackOptions, Store, repository};
use xtask::worker::{ADMIN_KEY, Role, SESSION};

/// Where the picture in the documentation is.
const PICTURE: &str = "docs/status-page.png";

/// A dead letter of the route that the local workers have.
fn letter() -> DeadLetter {
    let now = SystemClock.wall();
    let entry = Entry {
        id: Id128(77),
        route: "ingest".into(),
        binding: "to-sqs".into(),
        address: None,
        refusal: None,
        source: "telemetry-in".into(),
        received_at: now,
        expires_at: None,
        redrive: None,
        message: Message { topic: "telemetry/<b>7</b>".to_owned(), payload: "kept".into(), ..Message::default() },
    };
    let bound = Destination {
        bridge: "telemetry-bridge".to_owned(),
        binding: "to-sqs".to_owned(),
        address: "telemetry".to_owned(),
        session: SESSION.to_owned(),
    };
    DeadLetter::new(&entry, &bound, &Fault::new(FaultCode::InvalidPayload, "the queue refused it"), 1, UnixMillis(now.0))
}

/// What is seen of an element.
fn text(id: &str) -> String {
    format!("document.getElementById('{id}').innerText")
}

/// The contrast of the page's text to its ground (WCAG 2), and the ground.
const CONTRAST: &str = "(() => {
    const light = (color) => {
        const [r, g, b] = color.match(/[0-9.]+/g).slice(0, 3).map((n) => n / 255).map((n) => (n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const style = getComputedStyle(document.body);
    const soft = getComputedStyle(document.getElementById('identity'));
    const ground = light(style.backgroundColor);
    const of = (color) => { const l = light(color); return (Math.max(l, ground) + 0.05) / (Math.min(l, ground) + 0.05); };
    return { least: Math.min(of(style.color), of(soft.color)), ground };
})()";

async fn look_of(browser: &mut Browser) -> (f64, f64) {
    let seen: Value = browser.evaluate(CONTRAST).await.unwrap();
    (seen["least"].as_f64().unwrap(), seen["ground"].as_f64().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_shows_a_failover_and_puts_a_dead_letter_back() {
    let dir = tempfile::Builder::new().prefix("causeway-page-").tempdir().unwrap();
    let rig =
        Rig::start_with(&StackOptions::bound(dir.path(), Store::Dynamodb), false, xtask::worker::binary().await.unwrap(), |settings| {
            settings.exclusive = true;
        })
        .await
        .unwrap();
    let letters = DynamoDeadLetters::new(rig.stack.aws.dynamodb.clone(), "causeway-dlq");
    let dead = letter();
    assert!(matches!(letters.park(&dead).await, Outcome::Done(())));
    let mut cluster = rig.cluster(&[("worker-1", Role::Worker), ("worker-2", Role::Worker), ("control", Role::Control)]).unwrap();
    let owner = cluster.holder().await.unwrap();
    // The worker that will take over: control looks later.
    let watched = (0..2).find(|member| *member != owner.member).unwrap();
    cluster.members[watched].worker.ready("subscribed").await.unwrap();
    let publisher = Publisher { plan: Plan::new(400, 250), broker_port: rig.stack.broker.port(), numbers: 0..400, rate: 50 };
    let publishing = tokio::spawn(async move { publisher.run(&Progress::default()).await });

    let mut browser = Browser::start().await.unwrap();
    browser.resize(1200, 900).await.unwrap();
    browser.prefer("light").await.unwrap();
    browser.open(&format!("{}/", cluster.members[watched].worker.monitor())).await.unwrap();
    let (level, fleet, sessions) = (text("level"), text("fleet"), text("sessions"));
    browser.until("it stands by", &format!("{level} === 'standby'")).await.unwrap();
    let former = cluster.members[owner.member].name().to_owned();
    browser.until("the fleet has three members", "document.querySelectorAll('#fleet .member').length === 3").await.unwrap();
    browser.until("it tells who owns the session", &format!("{sessions}.includes('{former}')")).await.unwrap();
    browser.until("and so does the fleet", &format!("{fleet}.includes('{SESSION}: owner')")).await.unwrap();

    cluster.members[owner.member].worker.process.kill().await.unwrap();
    browser.until("the failover shows without a reload", &format!("{level} === 'full'")).await.unwrap();
    let successor = cluster.members[watched].name().to_owned();
    browser.until("with its new owner", &format!("{sessions}.includes('owner') && {sessions}.includes('{successor}')")).await.unwrap();
    browser.until("which takes messages in", &format!("{}.includes('open')", text("flow"))).await.unwrap();
    browser.until("in the chart, too", "document.querySelector('#service rect.level-2') !== null").await.unwrap();
    browser.until("and the account is even", &format!("{}.endsWith(': even')", text("conservation"))).await.unwrap();
    publishing.await.unwrap().unwrap();

    browser.until("it asks for the admin key", "!document.getElementById('admin-login').hidden").await.unwrap();
    browser
        .evaluate(&format!(
            "document.getElementById('admin-key').value = '{ADMIN_KEY}'; document.querySelector('#admin-login button').click()"
        ))
        .await
        .unwrap();
    browser.until("the dead letter is listed as text", &format!("{}.includes('telemetry/<b>7</b>')", text("list"))).await.unwrap();
    assert_eq!(browser.evaluate("document.getElementById('admin-key').value").await.unwrap(), "", "the key does not stay on the page");
    browser.evaluate("document.querySelector('#list button').click()").await.unwrap();
    let plan = text("plan-text");
    browser.until("a dry run comes first", &format!("{plan}.includes('Dry run') && {plan}.includes('1 would be put back')")).await.unwrap();
    assert_eq!(letters.get(dead.id).await.unwrap().unwrap().state, DeadLetterState::Dead);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        browser.until("rates are drawn", "document.querySelector('#chart-depth path') !== null").await.unwrap();
        std::fs::write(repository().join(PICTURE), browser.picture().await.unwrap()).unwrap();
    }
    browser.evaluate("document.getElementById('redrive').click()").await.unwrap();
    browser.until("it is put back", &format!("{plan}.includes('1 put back')")).await.unwrap();
    assert_eq!(letters.get(dead.id).await.unwrap().unwrap().state, DeadLetterState::Redriven);
    let stored = browser.evaluate("JSON.stringify({ ...localStorage, ...sessionStorage }) + document.cookie").await.unwrap();
    assert_eq!(stored, "{}", "the key is stored nowhere");

    for width in [400, 1200] {
        browser.resize(width, 900).await.unwrap();
        for scheme in ["light", "dark"] {
            browser.prefer(scheme).await.unwrap();
            let overflow = browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth").await.unwrap();
            assert_eq!(overflow, 0, "nothing sticks out at {width} pixels");
            let (contrast, ground) = look_of(&mut browser).await;
            assert!(contrast >= 4.5, "{scheme}: text has a contrast of {contrast} to its ground");
            assert_eq!(ground > 0.5, scheme == "light", "{scheme}: the ground is {ground}");
            let picture = browser.picture().await.unwrap();
            assert!(picture.starts_with(b"\x89PNG"));
        }
    }
    assert_eq!(browser.complaints, Vec::<String>::new());
    assert!(repository().join(PICTURE).exists(), "made with UPDATE_DOCS=1");
}
