//! Secrets that the configuration names and does not hold: read before anything starts, and read again now and then, so that what was rotated is used
//! without a restart.

use causeway_core::config::{Secret, SecretPlace};
use causeway_core::outcome::{Fault, FaultClass, FaultCode};
use causeway_ports::Secrets;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How often everything is read again.
pub const POLL: Duration = Duration::from_secs(300);
/// One read takes no longer.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// What may pass is tried so often at the start.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// Who asks for it makes the places be read again at once, but not sooner after the last time.
pub const LEAST_PAUSE: Duration = Duration::from_secs(10);

/// What stands in each place now. Clones see the same.
#[derive(Clone, Debug, Default)]
pub struct SecretBoard {
    places: Arc<BTreeMap<SecretPlace, watch::Receiver<Secret>>>,
    wanted: Arc<Notify>,
}

impl SecretBoard {
    /// The secret there; `None` where nobody read that place.
    #[must_use]
    pub fn get(&self, place: &SecretPlace) -> Option<Secret> {
        self.places.get(place).map(|secret| secret.borrow().clone())
    }

    /// The same, kept up to date.
    #[must_use]
    pub fn token(&self, place: &SecretPlace) -> Option<Token> {
        self.places.get(place).cloned().map(Token)
    }

    /// A connection begins anew: maybe what was shown is not valid any more.
    pub fn refresh(&self) {
        self.wanted.notify_one();
    }
}

/// A key or token as it is now. Clones see the same.
#[derive(Clone)]
pub struct Token(watch::Receiver<Secret>);

impl core::fmt::Debug for Token {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Token(***)")
    }
}

impl From<Secret> for Token {
    /// One that never changes.
    fn from(secret: Secret) -> Self {
        Self(watch::channel(secret).1)
    }
}

impl Token {
    /// The text now.
    #[must_use]
    pub fn current(&self) -> Secret {
        self.0.borrow().clone()
    }
}

/// Says what is wrong with what stands in a place, without telling it.
pub type Judge = Arc<dyn Fn(&SecretPlace, &Secret) -> Result<(), String> + Send + Sync>;

/// Reads the places again.
pub struct SecretKeeper {
    places: Vec<(SecretPlace, watch::Sender<Secret>)>,
    reader: Reader,
    wanted: Arc<Notify>,
    jitter_seed: u64,
}

impl core::fmt::Debug for SecretKeeper {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SecretKeeper").field("places", &self.places.len()).finish_non_exhaustive()
    }
}

/// Reads all `places`; what `judge` refuses counts as not read, then and later: a half-written key never takes the place of a good one. `jitter_seed` spreads the later reads of several processes.
///
/// # Errors
/// Every place that cannot be read, with the reason.
pub async fn read_all(
    places: BTreeSet<SecretPlace>,
    secrets: Arc<dyn Secrets>,
    judge: Judge,
    jitter_seed: u64,
) -> Result<(SecretBoard, SecretKeeper), Vec<(SecretPlace, Fault)>> {
    let (mut senders, mut board, mut faults) = (Vec::new(), BTreeMap::new(), Vec::new());
    let reader = Reader { secrets, judge };
    for place in places {
        match reader.first(&place).await {
            Ok(secret) => {
                let (sender, receiver) = watch::channel(secret);
                board.insert(place.clone(), receiver);
                senders.push((place, sender));
            }
            Err(fault) => faults.push((place, fault)),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let wanted = Arc::new(Notify::new());
    let board = SecretBoard { places: Arc::new(board), wanted: Arc::clone(&wanted) };
    Ok((board, SecretKeeper { places: senders, reader, wanted, jitter_seed }))
}

/// Reads places, and judges what stands there.
struct Reader {
    secrets: Arc<dyn Secrets>,
    judge: Judge,
}

impl Reader {
    async fn first(&self, place: &SecretPlace) -> Result<Secret, Fault> {
        let mut attempt = 1;
        loop {
            match self.read(place).await {
                Err(fault) if fault.code.class() == FaultClass::Transient && attempt < ATTEMPTS => {
                    attempt += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                read => return read,
            }
        }
    }

    async fn read(&self, place: &SecretPlace) -> Result<Secret, Fault> {
        let secret = bounded(&*self.secrets, place).await?;
        (self.judge)(place, &secret).map_err(|wrong| Fault::new(FaultCode::InvalidConfig, format!("{place}: {wrong}")))?;
        Ok(secret)
    }
}

/// A read that ends. Nothing is no secret: whoever empties a file to write it anew is not done yet.
async fn bounded(secrets: &dyn Secrets, place: &SecretPlace) -> Result<Secret, Fault> {
    let late = || Fault::new(FaultCode::Timeout, format!("{place}: no answer within {} s", READ_TIMEOUT.as_secs()));
    let secret = tokio::time::timeout(READ_TIMEOUT, secrets.read(place)).await.unwrap_or_else(|_| Err(late()))?;
    // Files end with a line end, and so does what was put elsewhere from one.
    let secret = Secret::new(secret.reveal().trim_end_matches(['\r', '\n']));
    if secret.is_empty() { Err(Fault::new(FaultCode::NotFound, format!("{place}: nothing stands there"))) } else { Ok(secret) }
}

impl SecretKeeper {
    /// Reads again until `quit`. What cannot be read stays what it was.
    pub async fn run(mut self, quit: CancellationToken) {
        if self.places.is_empty() {
            return;
        }
        let mut failing = BTreeSet::new();
        while quit.run_until_cancelled(self.next_time()).await.is_some() {
            for (place, sender) in &self.places {
                let Some(read) = quit.run_until_cancelled(self.reader.read(place)).await else { return };
                match read {
                    Ok(secret) => {
                        failing.remove(place);
                        let renewed = |current: &mut Secret| core::mem::replace(current, secret.clone()) != secret;
                        if sender.send_if_modified(renewed) {
                            info!(%place, "a secret was renewed: the next connection uses it");
                        }
                    }
                    Err(fault) => {
                        if failing.insert(place.clone()) {
                            warn!(%place, code = fault.code.as_str(), detail = %fault.detail, "a secret cannot be read again; the former one is used");
                        }
                    }
                }
            }
        }
    }

    /// Waits until the places are to be read again.
    async fn next_time(&mut self) {
        let pause = self.pause();
        tokio::time::sleep(LEAST_PAUSE).await;
        tokio::select! {
            () = self.wanted.notified() => {}
            () = tokio::time::sleep(pause.saturating_sub(LEAST_PAUSE)) => {}
        }
    }

    /// From nine tenths of the interval to eleven, another each time and in each process.
    fn pause(&mut self) -> Duration {
        // Splitmix64: good enough to spread, and nobody has to guess it.
        self.jitter_seed = self.jitter_seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.jitter_seed ^ (self.jitter_seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let share = (mixed >> 40) as f64 / f64::from(1_u32 << 24);
        POLL.mul_f64(0.9 + 0.2 * share)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use async_trait::async_trait;
    use std::sync::Mutex;

    /// Answers what the test says.
    #[derive(Default)]
    struct Scripted(Mutex<BTreeMap<SecretPlace, Result<String, FaultCode>>>);

    impl Scripted {
        fn put(&self, place: &SecretPlace, text: Result<&str, FaultCode>) {
            self.0.lock().unwrap().insert(place.clone(), text.map(str::to_owned));
        }
    }

    #[async_trait]
    impl Secrets for Scripted {
        async fn read(&self, place: &SecretPlace) -> Result<Secret, Fault> {
            let text = self.0.lock().unwrap().get(place).cloned().unwrap_or(Err(FaultCode::NotFound));
            text.map(Secret::new).map_err(|code| Fault::new(code, "scripted"))
        }
    }

    async fn becomes(board: &SecretBoard, place: &SecretPlace, text: &str) {
        // By tokio's paused clock.
        for _ in 0..100 {
            if board.get(place).unwrap().reveal() == text {
                return;
            }
            tokio::time::sleep(POLL / 10).await;
        }
        panic!("it never became {text}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_rotated_is_seen_and_what_fails_stays() {
        let (one, two) = (SecretPlace::Env("ONE".to_owned()), SecretPlace::Ssm("/two".to_owned()));
        let secrets = Arc::new(Scripted::default());
        secrets.put(&one, Ok("first"));
        secrets.put(&two, Err(FaultCode::Unavailable));
        let both = || BTreeSet::from([one.clone(), two.clone()]);
        let judge: Judge = Arc::new(|_, secret| if secret.reveal() == "half" { Err("not whole".to_owned()) } else { Ok(()) });
        let refused = read_all(both(), Arc::clone(&secrets) as Arc<dyn Secrets>, Arc::clone(&judge), 7).await.map(drop).unwrap_err();
        assert_eq!(refused.iter().map(|(place, fault)| (place, fault.code)).collect::<Vec<_>>(), [(&two, FaultCode::Unavailable)]);
        secrets.put(&two, Ok("second"));
        let (board, keeper) = read_all(both(), Arc::clone(&secrets) as Arc<dyn Secrets>, judge, 7).await.unwrap();
        let quit = CancellationToken::new();
        let task = tokio::spawn(keeper.run(quit.clone()));
        for (broken, other) in [(Err(FaultCode::Timeout), "third"), (Ok(""), "fourth"), (Ok("half"), "fifth"), (Ok("\r\n"), "sixth")] {
            secrets.put(&one, broken);
            secrets.put(&two, Ok(other));
            becomes(&board, &two, other).await;
            assert_eq!(board.get(&one).unwrap().reveal(), "first", "what cannot be read stays what it was");
        }
        secrets.put(&one, Ok("renewed\n"));
        becomes(&board, &one, "renewed").await;
        assert_eq!(board.get(&SecretPlace::Env("OTHER".to_owned())), None);
        secrets.put(&one, Ok("at once"));
        board.refresh();
        tokio::time::sleep(LEAST_PAUSE * 2).await;
        assert_eq!(board.get(&one).unwrap().reveal(), "at once", "a connection that begins anew waits for no poll");
        quit.cancel();
        task.await.unwrap();
    }

    #[test]
    fn pauses_differ_and_stay_near_the_interval() {
        let mut keeper = SecretKeeper {
            places: Vec::new(),
            reader: Reader { secrets: Arc::new(Scripted::default()), judge: Arc::new(|_, _| Ok(())) },
            wanted: Arc::default(),
            jitter_seed: 1,
        };
        let pauses: BTreeSet<Duration> = (0..100).map(|_| keeper.pause()).collect();
        assert!(pauses.len() > 90 && pauses.iter().all(|pause| *pause >= POLL * 9 / 10 && *pause <= POLL * 11 / 10));
    }
}
