//! A stall as the status page shows it: what waits, that nothing more is taken in, and that it goes on by itself.

use causeway_e2e::browser::Browser;
use causeway_e2e::{Run, Setup};
use xtask::proxy::{Fault, Rule};
use xtask::stack::Store;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_shows_the_hold_the_pause_and_the_resume_of_a_stall() {
    const MESSAGES: u64 = 1_000;
    let layer = "routes: [{ id: ingest, policy: { max_outbox_depth: 200 } }]";
    let mut run = Run::start(&Setup { proxies: true, layer: Some(layer), ..Setup::new(Store::Sqlite, MESSAGES) }).await.unwrap();
    let page = run.worker().unwrap().monitor().to_owned();
    let mut browser = Browser::start().await.unwrap();
    browser.open(&format!("{page}/")).await.unwrap();
    // Session, intake, unacknowledged, held, parked, in the outbox, senders.
    let shows = |index: usize, what: &str| {
        format!("(() => {{ const cell = document.querySelectorAll('#flow td')[{index}]; return cell !== undefined && {what}; }})()")
    };
    let number = "Number(cell.innerText.replace(/[^0-9]/g, ''))";
    browser.until("it takes messages in", &shows(1, "cell.innerText === 'open'")).await.unwrap();
    browser.until("and sends", &shows(6, "cell.innerText === 'running'")).await.unwrap();
    run.sqs().unwrap().inject(Rule::always(Fault::FailBefore { status: 503, code: String::new() }));
    run.publish(0..MESSAGES, 0);
    run.publishing_done().await.unwrap();
    browser.until("the outbox fills", &shows(5, &format!("{number} >= 200"))).await.unwrap();
    browser.until("nothing more is taken in", &shows(1, "cell.innerText === 'paused'")).await.unwrap();
    browser.until("the broker keeps the rest", &shows(2, &format!("{number} > 0"))).await.unwrap();
    run.sqs().unwrap().heal();
    run.delivered(MESSAGES).await.unwrap();
    browser.until("it takes messages in again", &shows(1, "cell.innerText === 'open'")).await.unwrap();
    browser.until("and nothing waits", &shows(5, &format!("{number} === 0"))).await.unwrap();
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.unique, account.duplicates, account.lost), (MESSAGES, MESSAGES, 0, 0));
}
