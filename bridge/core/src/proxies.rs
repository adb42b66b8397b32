//! Whose request it is where proxies pass requests on: they tell in `X-Forwarded-For`, and so does anybody who wants to be taken for somebody else. So only what the
//! configuration's own proxies wrote is believed.

use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;
use ipnet::IpNet;

/// The proxies whose word is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies(Vec<IpNet>);

/// Reads a network, such as `10.0.0.0/8`, or one address. `None`: neither, or one that everybody is in, or one of IPv4 addresses written as IPv6 (`::ffff:10.0.0.0/104`):
/// addresses are compared as what they are, so nobody would ever be in it.
#[must_use]
pub fn network(text: &str) -> Option<IpNet> {
    let read = IpNet::from_str(text).or_else(|_| IpAddr::from_str(text).map(IpNet::from)).ok()?;
    let mapped = matches!(read.trunc().addr(), IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    (read.prefix_len() > 0 && !mapped).then(|| read.trunc())
}

impl Proxies {
    /// Whether there are none: then nobody can tell the clients behind one address apart.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those in these networks; what is none is left out, as `check` refuses it.
    pub fn of<'t>(networks: impl IntoIterator<Item = &'t str>) -> Self {
        Self(networks.into_iter().filter_map(network).collect())
    }

    /// Where a request comes from that `peer` sent, with these values of `X-Forwarded-For` in their order. Each proxy writes the address that it got the request
    /// from behind what it found: from the right, the first one that is no proxy is the client. What no proxy can have written ends the search, at the
    /// proxy that passed it on.
    #[must_use]
    pub fn client<'h>(&self, peer: IpAddr, forwarded: impl DoubleEndedIterator<Item = &'h str>) -> IpAddr {
        let mut client = peer.to_canonical();
        for hop in forwarded.rev().flat_map(|value| value.rsplit(',')) {
            if !self.0.iter().any(|network| network.contains(&client)) {
                break;
            }
            let Some(address) = address(hop.trim()) else { break };
            client = address;
        }
        client
    }
}

/// An address as proxies write it: with a port or without, an IPv6 address in brackets or bare.
fn address(hop: &str) -> Option<IpAddr> {
    let bare = hop.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(hop);
    let read = bare.parse().ok().or_else(|| hop.parse::<SocketAddr>().ok().map(|address| address.ip()));
    read.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn client(peer: &str, forwarded: &[&str]) -> IpAddr {
        Proxies::of(["10.0.0.0/8", "192.0.2.7", "2001:db8:1::/48"]).client(ip(peer), forwarded.iter().copied())
    }

    #[test]
    fn from_the_right_the_first_that_is_no_proxy_is_the_client() {
        for (peer, forwarded, expected) in [
            ("203.0.113.9", &["198.51.100.1"][..], "203.0.113.9"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["1.1.1.1, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["1.1.1.1", "198.51.100.1 , 192.0.2.7,10.9.9.9"], "198.51.100.1"),
            ("10.0.0.1", &["10.1.1.1, 10.2.2.2"], "10.1.1.1"),
            ("192.0.2.8", &["198.51.100.1"], "192.0.2.8"),
            ("::ffff:10.0.0.1", &["198.51.100.1:4711"], "198.51.100.1"),
            ("2001:db8:1::5", &["[2001:db8:2::9]:443"], "2001:db8:2::9"),
            ("10.0.0.1", &["[2001:db8:2::9]"], "2001:db8:2::9"),
            ("10.0.0.1", &["198.51.100.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1, _hidden, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["198.51.100.1,"], "10.0.0.1"),
        ] {
            assert_eq!(client(peer, forwarded), ip(expected), "{peer} {forwarded:?}");
        }
        assert_eq!(Proxies::default().client(ip("10.0.0.1"), ["1.1.1.1"].into_iter()), ip("10.0.0.1"), "nobody is believed");
    }

    #[test]
    fn a_network_is_read_in_either_form_and_never_everybody() {
        assert_eq!(network("10.1.2.3/8").unwrap().to_string(), "10.0.0.0/8");
        assert_eq!(network("2001:db8::1").unwrap().to_string(), "2001:db8::1/128");
        for text in ["", "10.0.0.0/33", "10.0.0/8", "proxy.example.com", "0.0.0.0/0", "::/0", "::ffff:10.0.0.0/104", "::ffff:10.0.0.1"] {
            assert_eq!(network(text), None, "{text}");
        }
    }

    proptest! {
        /// Whatever a client writes there, it is taken for nobody but itself.
        #[test]
        fn nobody_can_be_taken_for_somebody_else(written in "[0-9a-f:., \\[\\]_]{0,60}", own in any::<[u8; 4]>()) {
            let own = IpAddr::from(own);
            prop_assume!(!["10.", "192.0.2.7"].iter().any(|trusted| own.to_string().starts_with(trusted)));
            let proxied = format!("{written}, {own}");
            let of = Proxies::of(["10.0.0.0/8", "192.0.2.7"]);
            prop_assert_eq!(of.client("10.3.3.3".parse().unwrap(), [proxied.as_str()].into_iter()), own);
            prop_assert_eq!(of.client(own, [written.as_str()].into_iter()), own);
        }
    }
}
