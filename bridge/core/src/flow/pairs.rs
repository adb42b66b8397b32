//! `10:1,300:60`: ten in any second and three hundred in any minute.

use core::fmt;
use core::time::Duration;
use thiserror::Error;

/// The largest number of messages of a pair.
pub const MAX_COUNT: u32 = 1_000_000_000;
/// The longest time of a pair, in seconds: a day.
pub const MAX_SECONDS: u32 = 86_400;

/// So many messages in so much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    /// Messages, 1 or more.
    pub count: u32,
    /// Seconds, 1 or more.
    pub seconds: u32,
}

impl Pair {
    /// Its time.
    #[must_use]
    pub const fn period(self) -> Duration {
        Duration::from_secs(self.seconds as u64)
    }

    /// The most that this pair alone lets through in `seconds`, whatever the messages do.
    const fn most_in(self, seconds: u32) -> u64 {
        self.count as u64 * seconds.div_ceil(self.seconds) as u64
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.count, self.seconds)
    }
}

/// Pairs that all must hold; one or more, each with a time of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pairs(Vec<Pair>);

/// Why a text is no list of pairs. Pairs are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PairsError {
    /// A pair that is not two whole numbers above zero.
    #[error("pair {0} is not COUNT:SECONDS, two whole numbers above zero")]
    Syntax(usize),
    /// A pair that is out of range.
    #[error("pair {0} is out of range: at most {MAX_COUNT} messages and {MAX_SECONDS} seconds")]
    Range(usize),
    /// A pair with the time of an earlier one.
    #[error("pair {0} has the same time as an earlier one")]
    Duplicate(usize),
}

impl PairsError {
    /// Its code in `check`.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Syntax(_) => "E_LIMIT_SYNTAX",
            Self::Range(_) => "E_LIMIT_RANGE",
            Self::Duplicate(_) => "E_LIMIT_DUP",
        }
    }
}

impl Pairs {
    /// Reads `10:1,300:60`.
    ///
    /// # Errors
    /// The first pair that is wrong, and why.
    pub fn parse(text: &str) -> Result<Self, PairsError> {
        let mut pairs: Vec<Pair> = Vec::new();
        for (index, part) in text.split(',').enumerate() {
            let pair = pair(part.trim(), index + 1)?;
            if pairs.iter().any(|earlier| earlier.seconds == pair.seconds) {
                return Err(PairsError::Duplicate(index + 1));
            }
            pairs.push(pair);
        }
        Ok(Self(pairs))
    }

    /// The pairs, as they were written.
    #[must_use]
    pub fn as_slice(&self) -> &[Pair] {
        &self.0
    }

    /// The largest number of messages of any pair.
    #[must_use]
    pub fn largest_count(&self) -> u32 {
        self.0.iter().map(|pair| pair.count).max().unwrap_or_default()
    }

    /// The longest time of any pair.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.0.iter().map(|pair| pair.period()).max().unwrap_or_default()
    }

    /// Messages a second that all pairs together let through for long: whole ones, 1 at least.
    #[must_use]
    pub fn sustained(&self) -> u64 {
        self.0.iter().map(|pair| u64::from(pair.count / pair.seconds).max(1)).min().unwrap_or(1)
    }

    /// Pairs that another one never lets come into play.
    #[must_use]
    pub fn idle(&self) -> Vec<Pair> {
        let kept_below = |pair: &Pair, by: &Pair| by.seconds != pair.seconds && by.most_in(pair.seconds) <= u64::from(pair.count);
        self.0.iter().filter(|pair| self.0.iter().any(|by| kept_below(pair, by))).copied().collect()
    }
}

fn pair(text: &str, number: usize) -> Result<Pair, PairsError> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (count, seconds) =
        text.split_once(':').filter(|(count, seconds)| digits(count) && digits(seconds)).ok_or(PairsError::Syntax(number))?;
    let within = |text: &str, most: u32| text.parse::<u32>().ok().filter(|value| *value <= most).ok_or(PairsError::Range(number));
    let pair = Pair { count: within(count, MAX_COUNT)?, seconds: within(seconds, MAX_SECONDS)? };
    if pair.count == 0 || pair.seconds == 0 { Err(PairsError::Syntax(number)) } else { Ok(pair) }
}

impl fmt::Display for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, pair) in self.0.iter().enumerate() {
            write!(f, "{}{pair}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
    use super::*;

    #[test]
    fn c_2_each_wrong_text_has_its_error_and_the_number_of_the_pair() {
        for (text, error) in [
            ("10", PairsError::Syntax(1)),
            ("10:", PairsError::Syntax(1)),
            ("a:1", PairsError::Syntax(1)),
            ("0:1", PairsError::Syntax(1)),
            ("1:0", PairsError::Syntax(1)),
            ("-1:1", PairsError::Syntax(1)),
            ("+1:1", PairsError::Syntax(1)),
            ("1:1:1", PairsError::Syntax(1)),
            ("", PairsError::Syntax(1)),
            ("10:1,", PairsError::Syntax(2)),
            ("10:1,,5:2", PairsError::Syntax(2)),
            ("10:1,20:1", PairsError::Duplicate(2)),
            ("1000000001:1", PairsError::Range(1)),
            ("10:1,1:86401", PairsError::Range(2)),
            ("99999999999999999999:1", PairsError::Range(1)),
        ] {
            assert_eq!(Pairs::parse(text), Err(error), "{text}");
        }
        assert_eq!(Pairs::parse("10:1, 300:60").unwrap().to_string(), "10:1,300:60");
        assert_eq!(Pairs::parse("1000000000:86400").unwrap().as_slice(), [Pair { count: MAX_COUNT, seconds: MAX_SECONDS }]);
    }

    #[test]
    fn b_5_sustained_rates() {
        for (text, rate) in
            [("10:1,300:60", 5), ("20:5", 4), ("5:600", 1), ("1:60", 1), ("100:1", 100), ("1000:1,50000:60", 833), ("50000:60", 833)]
        {
            assert_eq!(Pairs::parse(text).unwrap().sustained(), rate, "{text}");
        }
    }

    #[test]
    fn a_pair_that_never_comes_into_play_is_found() {
        let idle = |text: &str| Pairs::parse(text).unwrap().idle().iter().map(Pair::to_string).collect::<Vec<_>>();
        assert_eq!(idle("10:1,700:60"), ["700:60"]);
        assert_eq!(idle("10:1,600:60"), ["600:60"]);
        assert_eq!(idle("10:1,599:60"), Vec::<String>::new());
        assert_eq!(idle("10:1,5:60"), ["10:1"]);
        assert_eq!(idle("10:1"), Vec::<String>::new());
    }
}
