//! Mail that several processes want to move: what is in the mailbox comes into the log once, whoever moves it.

use crate::exclusive::{TWO, becomes_standby, shared};
use causeway_core::identity::Id128;
use causeway_core::mailbox::{Mail, MailboxName};
use causeway_core::message::{Entry, Message};
use causeway_core::units::UnixMillis;
use causeway_e2e::log::{BRIDGE, dynamodb_outbox, outbox, waiting};
use causeway_e2e::{Run, Setup};
use causeway_ports::Mailbox;
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use xtask::proxy::{Fault, Rule};
use xtask::worker::SESSION;

const ROUNDS: u64 = 3;
const OF_A_ROUND: u64 = 400;
const ALL: u64 = ROUNDS * OF_A_ROUND;
const LANES: u32 = 2;

/// The message of this number as somebody leaves it who does not own the log.
fn mail(run: &Run, index: u64) -> Mail {
    let plan = run.plan();
    let message = Message { topic: plan.topic(index), payload: plan.payload(index, 1).into(), qos: 1, ..Message::default() };
    let entry = Entry {
        id: Id128(u128::from(index) + 1),
        route: "ingest".into(),
        binding: "to-sqs".into(),
        address: None,
        refusal: None,
        source: "telemetry-in".into(),
        received_at: UnixMillis(1_700_000_000_000),
        expires_at: None,
        message,
        redrive: None,
    };
    Mail { id: format!("{index:08}"), posted_at: UnixMillis(1_700_000_000_000), entry: Arc::new(entry) }
}

/// Two who leave mail at the same time, in the background: one the even numbers and one the odd ones.
fn posted_by_two(run: &Run, numbers: std::ops::Range<u64>) -> tokio::task::JoinSet<()> {
    let mut posters = tokio::task::JoinSet::new();
    for odd in [0, 1] {
        let mail: Vec<Mail> = numbers.clone().filter(|index| index % 2 == odd).map(|index| mail(run, index)).collect();
        let store = dynamodb_outbox(&run.rig);
        posters.spawn(async move {
            let mailbox = MailboxName::new(BRIDGE, SESSION).unwrap();
            for piece in &mail {
                assert!(store.post(&mailbox, piece).await.done().unwrap());
            }
        });
    }
    posters
}

/// What stands in the log, by id, and how often.
async fn in_log(run: &Run) -> BTreeMap<Id128, usize> {
    let mut found = BTreeMap::new();
    for entry in waiting(outbox(&run.rig).unwrap().as_ref(), LANES).await.unwrap() {
        *found.entry(entry.id).or_default() += 1;
    }
    found
}

async fn moved(run: &mut Run, count: usize) {
    for _ in 0..1_200 {
        if in_log(run).await.len() >= count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not {count} are moved\n{}", run.cluster().unwrap().log_tails());
}

/// The owner is paused while it moves mail, another one moves what is left, and the first one wakes up with a move under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_that_follow_each_other_move_each_piece_once() {
    let mut run = Run::start(&Setup { proxies: true, lanes: LANES, ..shared(TWO, ALL) }).await.unwrap();
    run.sqs().unwrap().inject(Rule::always(Fault::FailBefore { status: 503, code: String::new() }));
    for round in 0..ROUNDS {
        let former = run.cluster().unwrap().holder().await.unwrap();
        let first = round * OF_A_ROUND;
        let mut posters = posted_by_two(&run, first..first + OF_A_ROUND);
        moved(&mut run, usize::try_from(first).unwrap() + 1).await;
        run.cluster().unwrap().members[former.member].worker.process.signal(Signal::STOP);
        while let Some(end) = posters.join_next().await {
            end.unwrap();
        }
        run.cluster().unwrap().successor(&former.lease).await.unwrap();
        // It moves what it was about to, beside its successor that moves the same.
        run.cluster().unwrap().members[former.member].worker.process.signal(Signal::CONT);
        moved(&mut run, usize::try_from(first + OF_A_ROUND).unwrap()).await;
        assert!(becomes_standby(run.cluster().unwrap(), former.member).await, "{}", run.cluster().unwrap().log_tails());
    }
    let found = in_log(&run).await;
    let wanted: BTreeMap<Id128, usize> = (0..ALL).map(|index| (Id128(u128::from(index) + 1), 1)).collect();
    assert_eq!(found, wanted, "each stands in the log once");
    let mailbox = MailboxName::new(BRIDGE, SESSION).unwrap();
    assert!(dynamodb_outbox(&run.rig).read_mail(&mailbox, 99).await.unwrap().is_empty());

    assert_eq!(run.consumer.unique(), 0);
    run.sqs().unwrap().heal();
    run.delivered(ALL).await.unwrap();
    let all: BTreeSet<u64> = (0..ALL).collect();
    assert!(run.consumer.has_all(all).await);
    let (account, log) = run.settle().await.unwrap();
    assert_eq!((account.unique, account.duplicates, account.corrupted), (ALL, 0, 0), "{account:#?}\n{log}");
}
