//! Topic filters by the rules of MQTT 5, sections 4.7 and 4.8.

use core::fmt;

/// What is wrong with a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterError {
    /// It is empty.
    Empty,
    /// It has more than 65,535 bytes.
    TooLong,
    /// It contains U+0000.
    NulCharacter,
    /// A `#` that is not a whole last level.
    MisplacedHash,
    /// A `+` that is not a whole level.
    MisplacedPlus,
    /// `$share` without a group name and a filter, or with a wildcard in the group name.
    BadShare,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "it is empty",
            Self::TooLong => "it is longer than 65535 bytes",
            Self::NulCharacter => "it contains U+0000",
            Self::MisplacedHash => "`#` must be the whole last level",
            Self::MisplacedPlus => "`+` must be a whole level",
            Self::BadShare => "a shared filter is $share/GROUP/FILTER, without wildcards in GROUP",
        })
    }
}

impl std::error::Error for FilterError {}

/// Group and inner filter of `$share/group/filter`; `None` where the filter is not shared.
#[must_use]
pub fn shared(filter: &str) -> Option<(&str, &str)> {
    filter.strip_prefix("$share/")?.split_once('/')
}

/// The part that topics are compared with: without `$share/group/`.
#[must_use]
pub fn topic_part(filter: &str) -> &str {
    shared(filter).map_or(filter, |(_, inner)| inner)
}

/// Checks `filter`, shared or not.
///
/// # Errors
/// The first rule that it breaks.
pub fn validate(filter: &str) -> Result<(), FilterError> {
    if filter.len() > 65_535 {
        return Err(FilterError::TooLong);
    }
    if filter.contains('\0') {
        return Err(FilterError::NulCharacter);
    }
    if filter == "$share" || filter.starts_with("$share/") {
        let (group, inner) = shared(filter).ok_or(FilterError::BadShare)?;
        if group.is_empty() || group.contains(['+', '#']) || inner.is_empty() {
            return Err(FilterError::BadShare);
        }
        return validate_levels(inner);
    }
    validate_levels(filter)
}

fn validate_levels(filter: &str) -> Result<(), FilterError> {
    if filter.is_empty() {
        return Err(FilterError::Empty);
    }
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        if level.contains('#') && (level != "#" || levels.peek().is_some()) {
            return Err(FilterError::MisplacedHash);
        }
        if level.contains('+') && level != "+" {
            return Err(FilterError::MisplacedPlus);
        }
    }
    Ok(())
}

/// Whether a message published to `topic` belongs to `filter`, which is taken as valid. A shared filter is compared without its prefix. Wildcards in
/// the first level do not match topics that begin with `$`.
#[must_use]
pub fn matches(filter: &str, topic: &str) -> bool {
    let filter = topic_part(filter);
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut topic_levels = topic.split('/');
    for level in filter.split('/') {
        if level == "#" {
            return true;
        }
        match topic_levels.next() {
            Some(have) if level == "+" || level == have => {}
            Some(_) | None => return false,
        }
    }
    topic_levels.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Literal transcription of the specification: tries every way in which `#` may stand for levels.
    fn oracle(filter: &[&str], topic: &[&str]) -> bool {
        match (filter.first(), topic.first()) {
            (None, None) => true,
            (Some(&"#"), _) => true,
            (Some(&"+"), Some(_)) => oracle(&filter[1..], &topic[1..]),
            (Some(want), Some(have)) if want == have => oracle(&filter[1..], &topic[1..]),
            _ => false,
        }
    }

    fn level() -> impl Strategy<Value = String> {
        prop_oneof![
            Just(String::new()),
            Just("a".into()),
            Just("b".into()),
            Just("$x".into()),
            Just("+".into()),
            Just("#".into()),
            Just("a+".into())
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_the_oracle(filter in prop::collection::vec(level(), 1..5), topic in prop::collection::vec(prop_oneof![Just(""), Just("a"), Just("b"), Just("$x")], 1..5)) {
            let joined = filter.join("/");
            prop_assume!(validate(&joined).is_ok());
            let topic_text = topic.join("/");
            let levels: Vec<&str> = joined.split('/').collect();
            let hidden = topic_text.starts_with('$') && matches!(levels[0], "+" | "#");
            prop_assert_eq!(matches(&joined, &topic_text), !hidden && oracle(&levels, &topic));
            prop_assert_eq!(matches(&format!("$share/g/{joined}"), &topic_text), matches(&joined, &topic_text));
        }

        #[test]
        fn valid_means_that_wildcards_stand_alone(filter in prop::collection::vec(level(), 1..5)) {
            let joined = filter.join("/");
            let hash = filter.iter().position(|level| level.contains('#'));
            let fine = !joined.is_empty()
                && filter.iter().all(|level| !level.contains('+') || level == "+")
                && hash.is_none_or(|at| at == filter.len() - 1 && filter[at] == "#");
            prop_assert_eq!(validate(&joined).is_ok(), fine);
        }

        #[test]
        fn a_topic_matches_itself_and_everything(topic in "[a-z/]{1,20}") {
            prop_assert!(matches(&topic, &topic));
            prop_assert!(matches("#", &topic));
        }
    }

    #[test]
    fn the_examples_of_the_specification() {
        for (filter, topic, expected) in [
            ("sport/tennis/player1/#", "sport/tennis/player1", true),
            ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true),
            ("sport/#", "sport", true),
            ("sport/tennis/+", "sport/tennis/player1/ranking", false),
            ("sport/+", "sport", false),
            ("sport/+", "sport/", true),
            ("+/+", "/finance", true),
            ("/+", "/finance", true),
            ("+", "/finance", false),
            ("#", "$SYS/broker", false),
            ("+/monitor/Clients", "$SYS/monitor/Clients", false),
            ("$SYS/#", "$SYS/broker", true),
            ("$SYS/monitor/+", "$SYS/monitor/Clients", true),
            ("$share/g/a/+", "a/b", true),
            ("A", "a", false),
        ] {
            assert_eq!(matches(filter, topic), expected, "{filter} {topic}");
        }
    }

    #[test]
    fn shared_filters_need_a_group_and_a_filter() {
        for wrong in
            ["$share", "$share/", "$share/g", "$share/g/", "$share//a", "$share/g+/a", "$share/#/a", "", "a\0", "a/#/b", "a#", "b+"]
        {
            assert!(validate(wrong).is_err(), "{wrong:?}");
        }
        for right in ["$share/g/a", "$share/g/#", "$share/g//", "$share/g/$SYS/#", "/", "+/+/#", "$sharex/+"] {
            assert_eq!(validate(right), Ok(()), "{right:?}");
        }
        assert_eq!(shared("$share/g/a/b"), Some(("g", "a/b")));
        assert_eq!(topic_part("a/b"), "a/b");
        assert_eq!(validate(&"a".repeat(65_536)), Err(FilterError::TooLong));
    }
}
