//! `Prefer: wait=N` of RFC 7240: for how long a caller wants to wait for the end of a command.

use axum::http::HeaderMap;
use core::time::Duration;

/// How long the caller wants to wait; `None` where it does not say, or says nothing that can be understood: such a preference is passed over, as the standard has it.
/// Of several the first counts.
#[must_use]
pub fn wait(headers: &HeaderMap) -> Option<Duration> {
    let lists = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let first = lists.flat_map(|list| split(list, ',')).find_map(|preference| {
        // What follows a semicolon are parameters, of which `wait` has none.
        let named = split(preference, ';').into_iter().next().unwrap_or_default();
        let (name, value) = named.split_once('=').map_or((named, ""), |(name, value)| (name, value));
        name.trim().eq_ignore_ascii_case("wait").then(|| value.trim())
    })?;
    seconds(first.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(first))
}

/// Whole seconds. So many that they cannot be counted are as many as can be.
fn seconds(text: &str) -> Option<Duration> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| Duration::from_secs(text.parse().unwrap_or(u64::MAX)))
}

/// The parts of a list; a separator within quotes separates nothing.
fn split(list: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut begin, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, c) in list.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            c if c == separator && !quoted => {
                parts.push(&list[begin..at]);
                begin = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&list[begin..]);
    parts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use axum::http::HeaderValue;

    fn waits(values: &[&str]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("prefer", HeaderValue::from_str(value).unwrap());
        }
        wait(&headers).map(|wait| wait.as_secs())
    }

    #[test]
    fn a_wait_is_found_however_it_is_written() {
        for (values, seconds) in [
            (&["wait=10"][..], 10),
            (&["WAIT = 10"], 10),
            (&["wait=\"10\""], 10),
            (&["respond-async, wait=10"], 10),
            (&["respond-async", "wait=10"], 10),
            (&["wait=10; foo=\"a,b\", wait=20"], 10),
            (&["foo=\"a, wait=3\", wait=10"], 10),
            (&["foo=\"a\\\", wait=3\", wait=10"], 10),
            (&["handling=lenient,,wait=0"], 0),
            (&["wait=99999999999999999999999"], u64::MAX),
        ] {
            assert_eq!(waits(values), Some(seconds), "{values:?}");
        }
    }

    #[test]
    fn what_is_no_wait_is_passed_over() {
        for values in [
            &[][..],
            &[""],
            &["respond-async"],
            &["wait"],
            &["wait="],
            &["wait=-1"],
            &["wait=1.5"],
            &["wait=+1"],
            &["wait=ten"],
            &["waiting=10"],
            &["a;wait=1"],
        ] {
            assert_eq!(waits(values), None, "{values:?}");
        }
    }
}
