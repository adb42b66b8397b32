//! What was dropped, on its way into the ledger, and the ledger as people see it.

use causeway_core::drops::Dropped;
use causeway_core::drops::ledger::{LedgerBuffer, LedgerLimits, LedgerRow};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use causeway_core::units::{Instant, UnixMillis};
use causeway_ports::{Clock, DropLedger, LedgerBatch, LedgerPage, MAX_LEDGER_BATCH};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

/// How long one call to the ledger's store may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// What the last flush at a stop may take, all of it: the program is ended soon after.
const LAST_TIMEOUT: Duration = Duration::from_millis(1_500);
/// How often old rows are looked for, once anything was written.
const PRUNE_EVERY: Duration = Duration::from_secs(3_600);
/// Batches that wait to be written at most. The buffer behind them is bounded as well.
const MAX_WAITING: usize = 64;
/// For so long a batch whose answer got lost is written again. Stores remember its id for ten minutes, and would count it once more after that.
const REPEATED_FOR: Duration = Duration::from_secs(9 * 60);

/// What was dropped since it was last taken out. Clones share it. Bounded, see [`LedgerBuffer`].
#[derive(Clone, Debug)]
pub struct DropBook(Arc<Mutex<Option<LedgerBuffer>>>);

impl Default for DropBook {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Some(LedgerBuffer::default()))))
    }
}

impl DropBook {
    /// Nobody takes it out: nothing is kept.
    pub fn keep_none(&self) {
        *self.buffer() = None;
    }

    fn buffer(&self) -> MutexGuard<'_, Option<LedgerBuffer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in `many` messages that were dropped alike.
    pub fn record(&self, at: UnixMillis, dropped: &Dropped, many: u64) {
        if let Some(buffer) = &mut *self.buffer() {
            buffer.record(at, dropped, many);
        }
    }

    /// Takes out all of it.
    #[must_use]
    pub fn take(&self) -> Vec<LedgerRow> {
        self.buffer().as_mut().map(LedgerBuffer::take).unwrap_or_default()
    }
}

/// How the ledger is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerOptions {
    /// For how long after the last message that it tells of a row is kept.
    pub retention: Duration,
    /// Rows that are kept at most.
    pub max_rows: usize,
    /// How often what was dropped is written.
    pub flush_interval: Duration,
}

/// Writes what was dropped into the ledger, and lets old rows go.
#[derive(Clone)]
pub struct LedgerKeeper {
    /// What was dropped.
    pub book: DropBook,
    /// Where it is kept.
    pub ledger: Arc<dyn DropLedger>,
    /// How.
    pub options: LedgerOptions,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// 128 random bits: batches are told apart by them.
    pub batch_ids: u128,
}

impl core::fmt::Debug for LedgerKeeper {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LedgerKeeper").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Batches that were taken out and are not known to be written. One keeps its id until it is: the store counts it once, however often it is written.
#[derive(Debug, Default)]
struct Waiting {
    batches: VecDeque<Pending>,
    taken: u128,
}

#[derive(Debug)]
struct Pending {
    batch: LedgerBatch,
    /// When it was written for the first time of which it is not known what became.
    in_doubt_since: Option<Instant>,
}

/// When rows were looked through last, and how many were written since.
#[derive(Debug, Default)]
struct Pruning {
    at: Option<Instant>,
    written: usize,
}

impl LedgerKeeper {
    /// Until `quit`, and then once more. What is under way at that moment is given up, so that the last flush has its time.
    pub async fn run(self, quit: CancellationToken) {
        let (mut waiting, mut pruning, mut told) = (Waiting::default(), Pruning::default(), false);
        while !quit.is_cancelled() {
            let turn = async {
                tokio::time::sleep(self.options.flush_interval).await;
                let flushed = self.flush(&mut waiting).await;
                let any = flushed.as_ref().is_ok_and(|rows| *rows > 0);
                pruning.written += flushed.as_ref().copied().unwrap_or_default();
                note(flushed, &mut told);
                if any {
                    self.prune(&mut pruning).await;
                }
            };
            tokio::select! {
                biased;
                () = quit.cancelled() => {}
                () = turn => {}
            }
        }
        let last = tokio::time::timeout(LAST_TIMEOUT, self.flush(&mut waiting)).await;
        note(last.unwrap_or_else(|_| Err(no_answer())), &mut told);
    }

    /// Writes what was dropped; answers how many rows. Where nothing was, nothing is called. May be dropped at any time: what is not known to be written
    /// waits.
    async fn flush(&self, waiting: &mut Waiting) -> Result<usize, Fault> {
        if waiting.batches.len() < MAX_WAITING {
            let mut rows = self.book.take();
            while !rows.is_empty() {
                let rest = rows.split_off(rows.len().min(MAX_LEDGER_BATCH));
                let batch = LedgerBatch { id: self.batch_ids.wrapping_add(waiting.taken), rows };
                waiting.batches.push_back(Pending { batch, in_doubt_since: None });
                waiting.taken += 1;
                rows = rest;
            }
        }
        let mut written = 0;
        while let Some(Pending { batch, in_doubt_since }) = waiting.batches.front_mut() {
            let (now, before) = (self.clock.now(), *in_doubt_since);
            if before.is_some_and(|since| now.since(since) >= REPEATED_FOR) {
                error!(
                    rows = batch.rows.len(),
                    "rows of the ledger of drops are given up: no answer told whether they were written, and they could count twice"
                );
                waiting.batches.pop_front();
                continue;
            }
            in_doubt_since.get_or_insert(now);
            match tokio::time::timeout(CALL_TIMEOUT, self.ledger.add(batch)).await {
                Ok(Outcome::Done(())) => {
                    written += batch.rows.len();
                    waiting.batches.pop_front();
                }
                Ok(Outcome::NotDone(fault)) if is_of_the_batch(&fault) => {
                    error!(code = fault.code.as_str(), detail = %fault.detail, rows = batch.rows.len(), "the ledger of drops refuses these rows for good: they are left out");
                    waiting.batches.pop_front();
                }
                Ok(Outcome::NotDone(fault)) => {
                    *in_doubt_since = before;
                    return Err(fault);
                }
                Ok(Outcome::Unknown(fault)) => return Err(fault),
                Err(_) => return Err(no_answer()),
            }
        }
        Ok(written)
    }

    /// Lets rows go, now and then.
    async fn prune(&self, pruning: &mut Pruning) {
        let now = self.clock.now();
        // Many new rows do not wait for the hour: what is in memory is bounded by that.
        if pruning.written <= self.options.max_rows / 4 && pruning.at.is_some_and(|at| now.since(at) < PRUNE_EVERY) {
            return;
        }
        *pruning = Pruning { at: Some(now), written: 0 };
        let keep = u64::try_from(self.options.retention.as_millis()).unwrap_or(u64::MAX);
        let before = UnixMillis(self.clock.wall().0.saturating_sub(keep));
        match self.ledger.prune(LedgerLimits { before, max_rows: self.options.max_rows }).await {
            Outcome::Done(0) => {}
            Outcome::Done(rows) => info!(rows, "old rows of the ledger of drops were deleted"),
            Outcome::NotDone(fault) | Outcome::Unknown(fault) => {
                warn!(code = fault.code.as_str(), detail = %fault.detail, "old rows of the ledger of drops could not be deleted; it is tried again");
            }
        }
    }
}

/// Whether a store that refused a batch with this fault will always do so, and may take another batch. Without its table or the right to write, it takes none.
const fn is_of_the_batch(fault: &Fault) -> bool {
    !fault.is_transient() && !matches!(fault.code, FaultCode::NotAuthorized | FaultCode::NotFound)
}

fn no_answer() -> Fault {
    Fault::new(FaultCode::Timeout, "no answer in time")
}

/// Says it when writing begins to fail.
fn note(flushed: Result<usize, Fault>, told: &mut bool) {
    match flushed {
        Ok(0) => {}
        Ok(_) => *told = false,
        Err(fault) => {
            if !core::mem::replace(told, true) {
                warn!(code = fault.code.as_str(), detail = %fault.detail, "the ledger of drops cannot be written; it is tried again");
            }
        }
    }
}

/// Rows that the monitor shows at most, the newest first.
const SHOWN_ROWS: usize = 500;
/// The monitor reads the store this often at most: pages ask every second or two.
const READ_EVERY: Duration = Duration::from_secs(5);

/// When the store was read, and what it told.
type Looked = (Instant, Result<LedgerPage, Fault>);

/// The ledger as the monitor shows it. Clones share what was read last.
#[derive(Clone)]
pub struct LedgerView {
    ledger: Arc<dyn DropLedger>,
    clock: Arc<dyn Clock>,
    last: Arc<tokio::sync::Mutex<Option<Looked>>>,
}

impl core::fmt::Debug for LedgerView {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LedgerView").finish_non_exhaustive()
    }
}

impl LedgerView {
    /// A view of `ledger`.
    #[must_use]
    pub fn new(ledger: Arc<dyn DropLedger>, clock: Arc<dyn Clock>) -> Self {
        Self { ledger, clock, last: Arc::default() }
    }

    /// The newest rows, as they stood a few seconds ago at most.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub async fn read(&self) -> Result<LedgerPage, Fault> {
        let mut last = self.last.lock().await;
        let now = self.clock.now();
        if let Some((at, page)) = &*last
            && now.since(*at) < READ_EVERY
        {
            return page.clone();
        }
        let page = self.ledger.list(SHOWN_ROWS).await;
        *last = Some((now, page.clone()));
        page
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use async_trait::async_trait;
    use causeway_core::drops::{Direction, DropOutcome, DropReason};
    use causeway_local::memory::MemoryDropLedger;
    use causeway_ports::SystemClock;

    /// Takes effect, and says that it does not know, as often as it is told to.
    struct Forgetful(MemoryDropLedger, Mutex<u32>);

    #[async_trait]
    impl DropLedger for Forgetful {
        async fn add(&self, batch: &LedgerBatch) -> Outcome<()> {
            let outcome = self.0.add(batch).await;
            let mut times = self.1.lock().unwrap();
            if *times == 0 {
                return outcome;
            }
            *times -= 1;
            Outcome::Unknown(Fault::new(FaultCode::Timeout, "no answer"))
        }

        async fn list(&self, limit: usize) -> Result<LedgerPage, Fault> {
            self.0.list(limit).await
        }

        async fn prune(&self, limits: LedgerLimits) -> Outcome<usize> {
            self.0.prune(limits).await
        }

        async fn probe(&self) -> Result<(), Fault> {
            self.0.probe().await
        }

        async fn create(&self) -> Result<Vec<String>, Fault> {
            self.0.create().await
        }
    }

    fn dropped(topic: &str) -> Dropped {
        Dropped {
            reason: DropReason::Trimmed,
            direction: Direction::Egress,
            outcome: DropOutcome::Lost,
            route: "r".into(),
            key: "k".to_owned(),
            topic: topic.to_owned(),
            qos: 1,
            detail: String::new(),
        }
    }

    /// P13, with answers that get lost: what is in the ledger is what was counted, no more and no less.
    #[tokio::test]
    async fn flow_p13_what_was_dropped_is_in_the_ledger_once_whatever_answers_got_lost() {
        let ledger = Arc::new(Forgetful(MemoryDropLedger::new(), Mutex::new(3)));
        let keeper = LedgerKeeper {
            book: DropBook::default(),
            ledger: Arc::clone(&ledger) as Arc<dyn DropLedger>,
            options: LedgerOptions { retention: Duration::from_secs(60), max_rows: 10_000, flush_interval: Duration::from_millis(1) },
            clock: Arc::new(SystemClock),
            batch_ids: 100,
        };
        let mut waiting = Waiting::default();
        assert_eq!(keeper.flush(&mut waiting).await, Ok(0), "nothing is written where nothing was dropped");
        for nth in 0..200_u64 {
            keeper.book.record(UnixMillis(nth), &dropped(&format!("t/{}", nth % 120)), 2);
        }
        let (mut failures, mut written) = (0, 0);
        for nth in 0..10_u64 {
            match keeper.flush(&mut waiting).await {
                Ok(rows) => written += rows,
                Err(_) => failures += 1,
            }
            keeper.book.record(UnixMillis(1_000 + nth), &dropped("more"), 1);
        }
        assert_eq!(keeper.flush(&mut waiting).await, Ok(1));
        assert_eq!((failures, written > 0), (3, true));
        let page = ledger.list(1_000).await.unwrap();
        assert_eq!(page.rows.iter().map(|row| row.count.lost).sum::<u64>(), 410);
        let (clock, many) = (SystemClock, page.rows.len());
        let mut pruning = Pruning::default();
        keeper.prune(&mut pruning).await;
        assert!(pruning.at.is_some_and(|at| at <= clock.now()) && many == 121);
        assert!(ledger.list(10).await.unwrap().rows.is_empty(), "all of it is older than its retention");
    }

    /// Answers by script, without effect; then it does what it is asked for. Or looks for old rows without end.
    struct Scripted(MemoryDropLedger, Mutex<VecDeque<Outcome<()>>>, CancellationToken);

    #[async_trait]
    impl DropLedger for Scripted {
        async fn add(&self, batch: &LedgerBatch) -> Outcome<()> {
            let scripted = self.1.lock().unwrap().pop_front();
            match scripted {
                Some(outcome) => outcome,
                None => self.0.add(batch).await,
            }
        }

        async fn list(&self, limit: usize) -> Result<LedgerPage, Fault> {
            self.0.list(limit).await
        }

        async fn prune(&self, _: LedgerLimits) -> Outcome<usize> {
            self.2.cancel();
            core::future::pending().await
        }

        async fn probe(&self) -> Result<(), Fault> {
            self.0.probe().await
        }

        async fn create(&self) -> Result<Vec<String>, Fault> {
            self.0.create().await
        }
    }

    /// Shows what it is set to.
    #[derive(Default)]
    struct Hands(Mutex<Instant>);

    impl Clock for Hands {
        fn now(&self) -> Instant {
            *self.0.lock().unwrap()
        }

        fn wall(&self) -> UnixMillis {
            UnixMillis(1_000_000)
        }
    }

    fn scripted(outcomes: impl IntoIterator<Item = Outcome<()>>) -> (LedgerKeeper, Arc<Scripted>, Arc<Hands>) {
        let ledger = Arc::new(Scripted(MemoryDropLedger::new(), Mutex::new(outcomes.into_iter().collect()), CancellationToken::new()));
        let hands = Arc::new(Hands::default());
        let keeper = LedgerKeeper {
            book: DropBook::default(),
            ledger: Arc::clone(&ledger) as Arc<dyn DropLedger>,
            options: LedgerOptions { retention: Duration::from_secs(60), max_rows: 10_000, flush_interval: Duration::from_millis(1) },
            clock: Arc::clone(&hands) as Arc<dyn Clock>,
            batch_ids: 100,
        };
        (keeper, ledger, hands)
    }

    async fn topics(ledger: &Scripted) -> Vec<String> {
        let mut topics: Vec<_> = ledger.list(100).await.unwrap().rows.into_iter().map(|row| format!("{row:?}")).collect();
        topics.sort();
        topics
    }

    #[tokio::test]
    async fn what_is_refused_for_good_is_left_out_and_what_may_pass_waits() {
        let fault = |code| Outcome::NotDone(Fault::new(code, "no"));
        let (keeper, ledger, _) = scripted([fault(FaultCode::InvalidConfig), fault(FaultCode::NotAuthorized), fault(FaultCode::Throttled)]);
        let mut waiting = Waiting::default();
        keeper.book.record(UnixMillis(1), &dropped("refused"), 1);
        assert_eq!(keeper.flush(&mut waiting).await, Ok(0), "and it does not wait any more");
        assert!(waiting.batches.is_empty());
        keeper.book.record(UnixMillis(1), &dropped("kept"), 1);
        for _ in 0..2 {
            assert!(keeper.flush(&mut waiting).await.is_err());
        }
        assert_eq!(keeper.flush(&mut waiting).await, Ok(1));
        let topics = topics(&ledger).await;
        assert!(topics.len() == 1 && topics[0].contains("kept"), "{topics:?}");
    }

    #[tokio::test]
    async fn a_batch_in_doubt_is_repeated_for_nine_minutes_and_no_longer() {
        let fault = || Fault::new(FaultCode::Timeout, "no answer");
        let at = |seconds: u64| Instant::from_nanos((1_000 + seconds) * 1_000_000_000);
        for (doubt, written) in [(Outcome::Unknown(fault()), 0), (Outcome::NotDone(fault()), 1)] {
            let (keeper, ledger, hands) = scripted([doubt, Outcome::NotDone(fault())]);
            let mut waiting = Waiting::default();
            keeper.book.record(UnixMillis(1), &dropped("t"), 1);
            for seconds in [0, 539] {
                *hands.0.lock().unwrap() = at(seconds);
                assert!(keeper.flush(&mut waiting).await.is_err());
            }
            *hands.0.lock().unwrap() = at(540);
            assert_eq!(keeper.flush(&mut waiting).await, Ok(written));
            assert_eq!(topics(&ledger).await.len(), written);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_flush_has_its_turn_whatever_is_under_way() {
        let (keeper, ledger, _) = scripted([]);
        let (book, quit) = (keeper.book.clone(), CancellationToken::new());
        book.record(UnixMillis(1), &dropped("first"), 1);
        let running = tokio::spawn(keeper.run(quit.clone()));
        ledger.2.cancelled().await;
        book.record(UnixMillis(2), &dropped("last"), 1);
        quit.cancel();
        tokio::time::timeout(LAST_TIMEOUT, running).await.unwrap().unwrap();
        assert_eq!(topics(&ledger).await.len(), 2);
    }
}
