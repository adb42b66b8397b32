//! What goes wrong between a caller and a double of a store, as the test says. Shared by the faulty stores.

use super::Shared;
use causeway_core::outcome::{Fault, Outcome};
use core::hash::Hash;
use core::time::Duration;
use std::collections::HashMap;

/// What happens to a call. A read that does not get its answer is an error, however it got lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Injection {
    /// Refused: it certainly takes no effect.
    Refuse(Fault),
    /// The request gets lost: it takes no effect, and nobody knows.
    LoseRequest(Fault),
    /// The answer gets lost: it took effect, and nobody knows.
    LoseAnswer(Fault),
    /// Nobody knows, and it takes effect only with `apply_late`: a request that the store applies after its caller gave up.
    ApplyLate(Fault),
    /// It takes effect after this long by tokio's clock.
    Delay(Duration),
    /// It waits for `release`, then takes effect.
    Hold,
}

/// The injections of one double: `C` names its kinds of calls, `L` is a write that is still under way.
#[derive(Debug)]
pub(super) struct Injector<C, L> {
    shared: Shared<State<C, L>>,
}

#[derive(Debug)]
struct State<C, L> {
    rules: Vec<Rule<C>>,
    calls: HashMap<C, u64>,
    late: Vec<L>,
    held: usize,
    releases: u64,
}

#[derive(Debug)]
struct Rule<C> {
    call: C,
    skip: u64,
    times: u64,
    injection: Injection,
}

impl<C: Copy + Eq + Hash, L> Injector<C, L> {
    pub(super) fn new() -> Self {
        Self { shared: Shared::new(State { rules: Vec::new(), calls: HashMap::new(), late: Vec::new(), held: 0, releases: 0 }) }
    }

    pub(super) fn inject(&self, call: C, skip: u64, times: u64, injection: Injection) {
        self.shared.change(|state| state.rules.push(Rule { call, skip, times, injection }));
    }

    pub(super) fn heal(&self) {
        self.shared.change(|state| state.rules.clear());
    }

    pub(super) fn calls(&self, call: C) -> u64 {
        self.shared.look().calls.get(&call).copied().unwrap_or_default()
    }

    pub(super) async fn calls_at_least(&self, call: C, count: u64) {
        self.shared.wait_for(|state| (state.calls.get(&call).copied().unwrap_or_default() >= count).then_some(())).await;
    }

    pub(super) async fn held_at_least(&self, count: usize) {
        self.shared.wait_for(|state| (state.held >= count).then_some(())).await;
    }

    pub(super) fn release(&self) {
        self.shared.change(|state| state.releases += 1);
    }

    /// The writes that are still under way, in the order in which they were made.
    pub(super) fn take_late(&self) -> Vec<L> {
        self.shared.change(|state| std::mem::take(&mut state.late))
    }

    /// Counts the call and takes the injection that meets it.
    fn meet(&self, call: C) -> Option<Injection> {
        self.shared.change(|state| {
            *state.calls.entry(call).or_default() += 1;
            for rule in state.rules.iter_mut().filter(|rule| rule.call == call && rule.times > 0) {
                if rule.skip == 0 {
                    rule.times -= 1;
                    return Some(rule.injection.clone());
                }
                rule.skip -= 1;
            }
            None
        })
    }

    async fn pause(&self, injection: &Injection) {
        match injection {
            Injection::Delay(delay) => tokio::time::sleep(*delay).await,
            Injection::Hold => {
                let held = Held::enter(&self.shared);
                self.shared.wait_for(|state| (state.releases > held.releases).then_some(())).await;
            }
            Injection::Refuse(_) | Injection::LoseRequest(_) | Injection::LoseAnswer(_) | Injection::ApplyLate(_) => {}
        }
    }

    pub(super) async fn read<T>(&self, call: C, answer: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        match self.meet(call) {
            None => answer.await,
            Some(Injection::Refuse(fault) | Injection::LoseRequest(fault) | Injection::LoseAnswer(fault) | Injection::ApplyLate(fault)) => {
                Err(fault)
            }
            Some(pause @ (Injection::Delay(_) | Injection::Hold)) => {
                self.pause(&pause).await;
                answer.await
            }
        }
    }

    pub(super) async fn write<T>(&self, call: C, late: impl FnOnce() -> L, answer: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        match self.meet(call) {
            None => answer.await,
            Some(Injection::Refuse(fault)) => Outcome::NotDone(fault),
            Some(Injection::LoseRequest(fault)) => Outcome::Unknown(fault),
            Some(Injection::LoseAnswer(fault)) => {
                drop(answer.await);
                Outcome::Unknown(fault)
            }
            Some(Injection::ApplyLate(fault)) => {
                let late = late();
                self.shared.change(|state| state.late.push(late));
                Outcome::Unknown(fault)
            }
            Some(pause @ (Injection::Delay(_) | Injection::Hold)) => {
                self.pause(&pause).await;
                answer.await
            }
        }
    }
}

/// Counted as held for as long as it lives, so that a call that is dropped counts no more.
struct Held<'a, C, L> {
    shared: &'a Shared<State<C, L>>,
    releases: u64,
}

impl<'a, C, L> Held<'a, C, L> {
    fn enter(shared: &'a Shared<State<C, L>>) -> Self {
        let releases = shared.change(|state| {
            state.held += 1;
            state.releases
        });
        Self { shared, releases }
    }
}

impl<C, L> Drop for Held<'_, C, L> {
    fn drop(&mut self) {
        self.shared.change(|state| state.held -= 1);
    }
}

/// The methods by which a test injects, which every faulty store has: its type, the trait it stands for, and its kinds of calls.
macro_rules! injections {
    ($store:ident, $port:path, $call:ty) => {
        impl<S: $port> $store<S> {
            /// Puts itself before `inner`.
            pub fn new(inner: S) -> Self {
                Self { inner, injector: Injector::new() }
            }

            /// The store inside, whose network never fails.
            pub const fn inner(&self) -> &S {
                &self.inner
            }

            /// The next call of this kind.
            pub fn inject_next(&self, call: $call, injection: Injection) {
                self.inject(call, 0, 1, injection);
            }

            /// `times` calls of this kind, after `skip` more that work. Where several injections meet a call, the first given has it; each counts
            /// all calls of its kind that reach it.
            pub fn inject(&self, call: $call, skip: u64, times: u64, injection: Injection) {
                self.injector.inject(call, skip, times, injection);
            }

            /// Forgets every injection.
            pub fn heal(&self) {
                self.injector.heal();
            }

            /// How many calls of this kind were made, whatever became of them.
            #[must_use]
            pub fn calls(&self, call: $call) -> u64 {
                self.injector.calls(call)
            }

            /// Waits until at least `count` calls of this kind were made.
            pub async fn calls_at_least(&self, call: $call, count: u64) {
                self.injector.calls_at_least(call, count).await;
            }

            /// Waits until at least `count` calls are held.
            pub async fn held_at_least(&self, count: usize) {
                self.injector.held_at_least(count).await;
            }

            /// Lets the held calls go on.
            pub fn release(&self) {
                self.injector.release();
            }
        }
    };
}
pub(super) use injections;
