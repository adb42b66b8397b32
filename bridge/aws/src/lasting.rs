//! Credentials that last: renewed some minutes before they expire, asked for again with pauses where that fails, and used until they expire whatever becomes
//! of the attempts. It stands in the place of the SDK's own cache, whose jitter lets a renewal begin at any time before the end.

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::future::ProvideCredentials as Provided;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio::sync::OwnedMutexGuard;

/// So long before they expire credentials are renewed.
const BEFORE_EXPIRY: Duration = Duration::from_secs(5 * 60);
/// The pause between attempts while valid ones are at hand.
const PAUSE: Duration = Duration::from_secs(30);
/// Credentials without an end are looked at again after so long: a file may have changed.
const WITHOUT_EXPIRY: Duration = Duration::from_secs(15 * 60);
/// One attempt takes no longer. Some take their time: a program that asks a person, or roles that are taken on by way of others.
const ATTEMPT: Duration = Duration::from_secs(60);
/// Whoever asks waits no longer for one. It goes on then, and what it brings is kept.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same where there is something to go on with.
const PATIENCE_IN_HAND: Duration = Duration::from_secs(2);

/// What is known.
#[derive(Debug)]
struct Known {
    last: Option<Credentials>,
    /// When the provider is asked again, by the wall clock, as expiry is.
    ask_at: SystemTime,
    failing: bool,
}

/// Puts itself before a provider, whose failures never replace credentials that are valid still.
#[derive(Debug)]
pub(crate) struct LastingCredentials(Arc<Lasting>);

#[derive(Debug)]
struct Lasting {
    inner: SharedCredentialsProvider,
    known: Mutex<Known>,
    /// Held by the attempt that is under way.
    asking: Arc<tokio::sync::Mutex<()>>,
    now: fn() -> SystemTime,
}

impl LastingCredentials {
    pub(crate) fn new(inner: SharedCredentialsProvider) -> Self {
        Self::with_clock(inner, SystemTime::now)
    }

    fn with_clock(inner: SharedCredentialsProvider, now: fn() -> SystemTime) -> Self {
        let known = Known { last: None, ask_at: SystemTime::UNIX_EPOCH, failing: false };
        Self(Arc::new(Lasting { inner, known: Mutex::new(known), asking: Arc::default(), now }))
    }

    async fn provide(&self) -> Result<Credentials, CredentialsError> {
        let lasting = &self.0;
        if let Some(ready) = lasting.ready() {
            return Ok(ready);
        }
        // One attempt at a time. The others go on with what is valid, and wait where nothing is.
        let asking = Arc::clone(&lasting.asking);
        let asking = match (asking.clone().try_lock_owned(), lasting.valid()) {
            (Ok(asking), _) => asking,
            (Err(_), Some(valid)) => return Ok(valid),
            (Err(_), None) => {
                let ended = tokio::time::timeout(PATIENCE, asking.lock_owned()).await;
                ended.map_err(|_| CredentialsError::provider_timed_out(PATIENCE))?
            }
        };
        if let Some(ready) = lasting.ready() {
            return Ok(ready);
        }
        lasting.known().ask_at = (lasting.now)() + PAUSE;
        let patience = if lasting.valid().is_some() { PATIENCE_IN_HAND } else { PATIENCE };
        // It belongs to nobody who asks, any of whom may lose patience, and ends by itself.
        let attempt = tokio::spawn(Arc::clone(lasting).attempt(asking));
        match tokio::time::timeout(patience, attempt).await {
            Ok(Ok(told)) => told,
            Ok(Err(error)) => lasting.in_hand_or(CredentialsError::provider_error(error)),
            Err(_) => lasting.in_hand_or(CredentialsError::provider_timed_out(patience)),
        }
    }
}

impl Lasting {
    /// Asks the provider, and keeps what it gives.
    async fn attempt(self: Arc<Self>, _asking: OwnedMutexGuard<()>) -> Result<Credentials, CredentialsError> {
        let asked = tokio::time::timeout(ATTEMPT, self.inner.provide_credentials()).await;
        match asked.unwrap_or_else(|_| Err(CredentialsError::provider_timed_out(ATTEMPT))) {
            Ok(fresh) if is_valid(&fresh, (self.now)()) || self.valid().is_none() => {
                self.keep(&fresh);
                Ok(fresh)
            }
            Ok(_) => self.in_hand_or(CredentialsError::provider_error("the provider gave some that had expired")),
            Err(error) => self.in_hand_or(error),
        }
    }

    /// What is valid still, where an attempt failed or is not waited for.
    fn in_hand_or(&self, error: CredentialsError) -> Result<Credentials, CredentialsError> {
        let Some(valid) = self.valid() else { return Err(error) };
        if !core::mem::replace(&mut self.known().failing, true) {
            tracing::warn!(%error, "AWS credentials could not be renewed; the former ones are used while they are valid");
        }
        Ok(valid)
    }

    fn keep(&self, fresh: &Credentials) {
        let now = (self.now)();
        let mut known = self.known();
        known.ask_at = match fresh.expiry() {
            Some(expiry) => expiry.checked_sub(BEFORE_EXPIRY).unwrap_or(now).max(now + PAUSE),
            None => now + WITHOUT_EXPIRY,
        };
        known.last = Some(fresh.clone());
        if core::mem::replace(&mut known.failing, false) {
            tracing::info!("AWS credentials are renewed again");
        }
    }

    /// What is valid and need not be renewed yet.
    fn ready(&self) -> Option<Credentials> {
        let now = (self.now)();
        let known = self.known();
        known.last.clone().filter(|last| now < known.ask_at && is_valid(last, now))
    }

    fn valid(&self) -> Option<Credentials> {
        let now = (self.now)();
        self.known().last.clone().filter(|last| is_valid(last, now))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_valid(credentials: &Credentials, now: SystemTime) -> bool {
    credentials.expiry().is_none_or(|expiry| expiry > now)
}

impl ProvideCredentials for LastingCredentials {
    fn provide_credentials<'a>(&'a self) -> Provided<'a>
    where
        Self: 'a,
    {
        Provided::new(self.provide())
    }

    fn fallback_on_interrupt(&self) -> Option<Credentials> {
        self.0.valid()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use core::cell::Cell;
    use std::collections::VecDeque;

    std::thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(NOW.get())
    }

    #[derive(Debug)]
    enum Answer {
        Until(u64),
        Endless,
        Fails,
        Hangs,
        /// Until then, after so many seconds.
        Late(u64, u64),
    }

    /// Answers by script: the nth credentials are named by their number. Afterwards it fails.
    #[derive(Clone, Debug, Default)]
    struct Script(Arc<Mutex<(VecDeque<Answer>, u32)>>);

    impl Script {
        async fn answer(&self) -> Result<Credentials, CredentialsError> {
            let (answer, number) = {
                let mut script = self.0.lock().unwrap();
                script.1 += 1;
                (script.0.pop_front().unwrap_or(Answer::Fails), script.1)
            };
            let expiry = match answer {
                Answer::Until(seconds) => Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)),
                Answer::Endless => None,
                Answer::Fails => return Err(CredentialsError::provider_error("the endpoint is away")),
                Answer::Hangs => core::future::pending().await,
                Answer::Late(seconds, after) => {
                    tokio::time::sleep(Duration::from_secs(after)).await;
                    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
                }
            };
            Ok(Credentials::new(number.to_string(), "secret", None, expiry, "test"))
        }

        fn asked(&self) -> u32 {
            self.0.lock().unwrap().1
        }
    }

    impl ProvideCredentials for Script {
        fn provide_credentials<'a>(&'a self) -> Provided<'a>
        where
            Self: 'a,
        {
            Provided::new(self.answer())
        }
    }

    fn lasting(answers: impl IntoIterator<Item = Answer>) -> (LastingCredentials, Script) {
        let script = Script::default();
        script.0.lock().unwrap().0.extend(answers);
        (LastingCredentials::with_clock(SharedCredentialsProvider::new(script.clone()), now), script)
    }

    /// Which credentials are given at this time, and how often the provider was asked until then.
    async fn at(lasting: &LastingCredentials, script: &Script, seconds: u64) -> (Option<String>, u32) {
        NOW.set(seconds);
        let given = lasting.provide_credentials().await.ok().map(|given| given.access_key_id().to_owned());
        (given, script.asked())
    }

    fn given(name: &str, asked: u32) -> (Option<String>, u32) {
        (Some(name.to_owned()), asked)
    }

    #[tokio::test]
    async fn they_are_renewed_five_minutes_before_they_expire_and_not_before() {
        let (lasting, script) = lasting([Answer::Until(10_000), Answer::Until(20_000)]);
        assert_eq!(at(&lasting, &script, 1_000).await, given("1", 1));
        assert_eq!(at(&lasting, &script, 9_699).await, given("1", 1));
        assert_eq!(at(&lasting, &script, 9_700).await, given("2", 2));
        assert_eq!(at(&lasting, &script, 19_699).await, given("2", 2));
    }

    #[tokio::test]
    async fn a_failed_renewal_is_tried_again_after_pauses_and_never_replaces_what_is_valid() {
        let (lasting, script) = lasting([Answer::Until(1_000), Answer::Fails, Answer::Until(500), Answer::Fails]);
        assert_eq!(at(&lasting, &script, 100).await, given("1", 1));
        assert_eq!(at(&lasting, &script, 700).await, given("1", 2));
        assert_eq!(at(&lasting, &script, 729).await, given("1", 2), "thirty seconds between attempts");
        assert_eq!(at(&lasting, &script, 730).await, given("1", 3), "what has expired already replaces nothing");
        assert_eq!(lasting.fallback_on_interrupt().unwrap().access_key_id(), "1");
        assert_eq!(at(&lasting, &script, 999).await, given("1", 4));
        assert_eq!(at(&lasting, &script, 1_000).await, (None, 5), "what has expired is no use, and then every call asks");
        assert_eq!(at(&lasting, &script, 1_001).await, (None, 6));
        script.0.lock().unwrap().0.push_back(Answer::Until(9_000));
        assert_eq!(at(&lasting, &script, 1_002).await, given("7", 7));
    }

    #[tokio::test]
    async fn what_is_given_for_less_than_the_margin_is_asked_for_with_pauses_too() {
        let (lasting, script) = lasting([Answer::Until(1_000), Answer::Until(1_000), Answer::Until(5_000)]);
        assert_eq!(at(&lasting, &script, 800).await, given("1", 1));
        assert_eq!(at(&lasting, &script, 829).await, given("1", 1));
        assert_eq!(at(&lasting, &script, 830).await, given("2", 2));
        assert_eq!(at(&lasting, &script, 860).await, given("3", 3));
        assert_eq!(at(&lasting, &script, 4_699).await, given("3", 3));
    }

    #[tokio::test]
    async fn those_without_an_end_are_looked_at_every_quarter_of_an_hour() {
        let (lasting, script) = lasting([Answer::Endless, Answer::Endless]);
        assert_eq!(at(&lasting, &script, 1_000).await, given("1", 1));
        assert_eq!(at(&lasting, &script, 1_899).await, given("1", 1));
        assert_eq!(at(&lasting, &script, 1_900).await, given("2", 2));
        assert_eq!(at(&lasting, &script, 99_999).await, given("2", 3), "and stay when they cannot be");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_hangs_delays_one_caller_and_ends_as_a_failure() {
        let (lasting, script) = lasting([Answer::Until(1_000), Answer::Hangs, Answer::Hangs]);
        assert_eq!(at(&lasting, &script, 100).await, given("1", 1));
        NOW.set(800);
        let (first, second) = tokio::join!(lasting.provide_credentials(), lasting.provide_credentials());
        assert_eq!((first.unwrap().access_key_id(), second.unwrap().access_key_id()), ("1", "1"));
        assert_eq!(script.asked(), 2, "one of them asked");
        assert_eq!(at(&lasting, &script, 2_000).await, (None, 2), "nothing else is there, and it is not waited for without end");
        tokio::time::sleep(ATTEMPT).await;
        assert_eq!(at(&lasting, &script, 2_001).await, (None, 3), "it ended, and the next one began");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_takes_its_time_is_not_waited_for_and_what_it_brings_is_taken() {
        let (lasting, script) = lasting([Answer::Until(1_000), Answer::Late(5_000, 20), Answer::Late(9_000, 20)]);
        assert_eq!(at(&lasting, &script, 100).await, given("1", 1));
        assert_eq!(at(&lasting, &script, 800).await, given("1", 2), "the caller goes on with what is valid");
        assert_eq!(at(&lasting, &script, 840).await, given("1", 2), "and nobody asks again meanwhile");
        tokio::time::sleep(Duration::from_secs(19)).await;
        assert_eq!(at(&lasting, &script, 841).await, given("2", 2));
        assert_eq!(at(&lasting, &script, 5_000).await, (None, 3));
        tokio::time::sleep(Duration::from_secs(12)).await;
        assert_eq!(at(&lasting, &script, 5_001).await, given("3", 3), "whoever comes last waits for its end only");
    }
}
