//! Who gave a wrong key too often is not listened to for a while.

use crate::units::Instant;
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;
use std::collections::BTreeMap;

/// So many wrong keys within [`WINDOW`] are answered as wrong keys; after that nobody at the address is listened to until the window is over.
pub const TOLERATED: u32 = 5;
/// The window, which begins with the first wrong key.
pub const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are remembered at most. Whoever uses more of them pushes out the one whose window began first.
pub const REMEMBERED: usize = 1024;

/// Wrong keys by address.
#[derive(Clone, Debug, Default)]
pub struct Guesses(BTreeMap<IpAddr, Tally>);

#[derive(Clone, Copy, Debug)]
struct Tally {
    since: Instant,
    wrong: u32,
}

impl Guesses {
    /// For how long nobody at `address` is listened to; `None`: the request may be looked at.
    #[must_use]
    pub fn shut_out(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let tally = self.0.get(&place(address)).filter(|tally| tally.wrong >= TOLERATED)?;
        WINDOW.checked_sub(now.since(tally.since)).filter(|left| !left.is_zero())
    }

    /// Notes a wrong key.
    pub fn wrong(&mut self, address: IpAddr, now: Instant) {
        let place = place(address);
        self.0.retain(|_, tally| now.since(tally.since) < WINDOW);
        if !self.0.contains_key(&place) && self.0.len() >= REMEMBERED {
            let first = self.0.iter().min_by_key(|(_, tally)| tally.since).map(|(address, _)| *address);
            first.map(|address| self.0.remove(&address));
        }
        let tally = self.0.entry(place).or_insert(Tally { since: now, wrong: 0 });
        tally.wrong = tally.wrong.saturating_add(1);
    }
}

/// Of IPv6 the network: one host has as many addresses in it as it likes. An IPv4 address is the same however it is written.
fn place(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos((1_000 + seconds) * 1_000_000_000)
    }

    fn host(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn after_five_wrong_keys_the_address_waits_for_the_end_of_its_minute() {
        let mut guesses = Guesses::default();
        for second in 0..5 {
            assert_eq!(guesses.shut_out(host(1), at(second)), None);
            guesses.wrong(host(1), at(second));
        }
        assert_eq!(guesses.shut_out(host(1), at(10)), Some(Duration::from_secs(50)));
        assert_eq!(guesses.shut_out(host(2), at(10)), None, "others are listened to");
        assert_eq!(guesses.shut_out(host(1), at(60)), None);
        guesses.wrong(host(1), at(61));
        assert_eq!(guesses.shut_out(host(1), at(61)), None, "a new minute begins");
    }

    #[test]
    fn a_host_is_known_by_its_ipv6_network_and_by_its_ipv4_address_in_either_form() {
        let mut guesses = Guesses::default();
        for last in 1..=5 {
            guesses.wrong(format!("2001:db8::{last}").parse().unwrap(), at(0));
            guesses.wrong("::ffff:10.0.0.1".parse().unwrap(), at(0));
        }
        assert!(guesses.shut_out("2001:db8::ffff".parse().unwrap(), at(1)).is_some());
        assert!(guesses.shut_out("10.0.0.1".parse().unwrap(), at(1)).is_some());
        assert!(guesses.shut_out("2001:db8:0:1::1".parse().unwrap(), at(1)).is_none());
    }

    proptest! {
        /// However many addresses guess, the table is bounded, and nobody is tolerated more often than said.
        #[test]
        fn bounded_and_never_more_than_tolerated(steps in proptest::collection::vec((0_u32..3_000, 0_u64..2), 1..3_000)) {
            let (mut guesses, mut now) = (Guesses::default(), 0);
            for (number, pause) in steps {
                now += pause;
                if guesses.shut_out(host(number), at(now)).is_none() {
                    guesses.wrong(host(number), at(now));
                }
                prop_assert!(guesses.0.len() <= REMEMBERED);
                prop_assert!(guesses.0.values().all(|tally| tally.wrong <= TOLERATED));
            }
        }
    }
}
