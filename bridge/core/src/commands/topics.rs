//! The topics of commands and replies.

use thiserror::Error;

/// Longest topic, in bytes, that commands and replies use.
const MAX_TOPIC: usize = 1_024;
const TARGET: &str = "{target}";
const INSTANCE: &str = "{instance_id}";

/// The topics of one gateway: its templates with the prefix filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topics {
    request: String,
    reply: String,
    legacy: Option<String>,
    share_group: String,
}

/// A template that cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TopicError {
    /// A wildcard stands in it.
    #[error("`{0}` has a wildcard: a topic that is published to has none")]
    Wildcard(String),
    /// It does not have each placeholder once, as a level of its own.
    #[error("`{template}` needs `{placeholder}` once, as a whole level")]
    Placeholder {
        /// The template.
        template: String,
        /// What it needs.
        placeholder: &'static str,
    },
    /// It is empty, too long, begins with `$`, or has a character that topics must not have.
    #[error("`{0}` is no topic to publish to: it is empty, longer than 1,024 bytes, begins with `$`, or has a control character")]
    Unusable(String),
}

/// A target that cannot stand in a topic.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a target is one level of a topic: 1 to 256 bytes without `/`, `+`, `#`, and control characters")]
pub struct TargetError;

/// Who answers, and to which instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyPlace<'t> {
    /// The instance; `None` where the device has a topic of its own for all its answers.
    pub instance: Option<&'t str>,
    /// The target.
    pub target: &'t str,
}

/// Whether a target can stand in a topic.
///
/// # Errors
/// Where it cannot.
pub fn check_target(target: &str) -> Result<(), TargetError> {
    let plain = |c: char| !matches!(c, '/' | '+' | '#') && !c.is_control();
    if target.is_empty() || target.len() > 256 || !target.chars().all(plain) { Err(TargetError) } else { Ok(()) }
}

impl Topics {
    /// The topics of templates that were filled with the prefix. `share_group` is empty where replies are not shared.
    ///
    /// # Errors
    /// The first template that cannot be used.
    pub fn new(request: &str, reply: &str, legacy: Option<&str>, share_group: &str) -> Result<Self, TopicError> {
        check(request, &[TARGET])?;
        check(reply, &[TARGET, INSTANCE])?;
        if let Some(legacy) = legacy {
            check(legacy, &[TARGET])?;
        }
        Ok(Self {
            request: request.to_owned(),
            reply: reply.to_owned(),
            legacy: legacy.map(str::to_owned),
            share_group: share_group.to_owned(),
        })
    }

    /// Where a command for `target` is published.
    #[must_use]
    pub fn request(&self, target: &str) -> String {
        self.request.replace(TARGET, target)
    }

    /// Where `target` is asked to answer.
    #[must_use]
    pub fn reply(&self, instance: &str, target: &str) -> String {
        let levels = self.reply.split('/').map(|level| match level {
            TARGET => target,
            INSTANCE => instance,
            other => other,
        });
        levels.collect::<Vec<_>>().join("/")
    }

    /// What an instance subscribes for itself alone.
    #[must_use]
    pub fn direct_filter(&self, instance: &str) -> String {
        self.reply(instance, "+")
    }

    /// What all instances subscribe as one group, so that one of them gets every reply; none where replies are not shared.
    #[must_use]
    pub fn shared_filters(&self) -> Vec<String> {
        let legacy = self.legacy.iter().map(|legacy| legacy.replace(TARGET, "+"));
        if self.share_group.is_empty() {
            // What names no instance is for all of them: the first to write it is the one that counts.
            return legacy.collect();
        }
        core::iter::once(self.reply("+", "+")).chain(legacy).map(|filter| format!("$share/{}/{filter}", self.share_group)).collect()
    }

    /// Who published to `topic`, as the topic tells: the broker lets a device write to its own topics alone.
    #[must_use]
    pub fn place<'t>(&self, topic: &'t str) -> Option<ReplyPlace<'t>> {
        let found = |template: &str| {
            let (mut instance, mut target) = (None, None);
            let mut levels = topic.split('/');
            for expected in template.split('/') {
                let level = levels.next()?;
                match expected {
                    TARGET => target = Some(level),
                    INSTANCE => instance = Some(level),
                    other if other == level => {}
                    _ => return None,
                }
            }
            let target = target.filter(|target| check_target(target).is_ok())?;
            levels.next().is_none().then_some(ReplyPlace { instance, target })
        };
        found(&self.reply).or_else(|| found(self.legacy.as_deref()?))
    }
}

fn check(template: &str, placeholders: &[&'static str]) -> Result<(), TopicError> {
    if template.contains(['+', '#']) {
        return Err(TopicError::Wildcard(template.to_owned()));
    }
    if template.is_empty() || template.len() > MAX_TOPIC || template.starts_with('$') || template.contains(char::is_control) {
        return Err(TopicError::Unusable(template.to_owned()));
    }
    for &placeholder in placeholders {
        let whole = template.split('/').filter(|level| *level == placeholder).count();
        if whole != 1 || template.matches(placeholder).count() != 1 {
            return Err(TopicError::Placeholder { template: template.to_owned(), placeholder });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn topics() -> Topics {
        Topics::new("plant/{target}/command", "plant/reply/{instance_id}/{target}", Some("plant/{target}/response"), "bridge-reply")
            .unwrap()
    }

    #[test]
    fn a_reply_goes_to_the_instance_and_to_one_of_all() {
        let topics = topics();
        assert_eq!(topics.request("pump-1"), "plant/pump-1/command");
        assert_eq!(topics.reply("i7", "pump-1"), "plant/reply/i7/pump-1");
        assert_eq!(topics.direct_filter("i7"), "plant/reply/i7/+");
        assert_eq!(topics.shared_filters(), ["$share/bridge-reply/plant/reply/+/+", "$share/bridge-reply/plant/+/response"]);
        assert_eq!(topics.place("plant/reply/i7/pump-1"), Some(ReplyPlace { instance: Some("i7"), target: "pump-1" }));
        assert_eq!(topics.place("plant/pump-1/response"), Some(ReplyPlace { instance: None, target: "pump-1" }));
        for other in ["plant/reply/i7", "plant/reply/i7/pump-1/x", "plant//response", "other/reply/i7/pump-1", ""] {
            assert_eq!(topics.place(other), None, "{other}");
        }
        assert!(Topics::new("a/{target}", "r/{instance_id}/{target}", None, "").unwrap().shared_filters().is_empty());
    }

    #[test]
    fn r11_templates_have_no_wildcards_and_every_placeholder_once() {
        let error = |request: &str, reply: &str| Topics::new(request, reply, None, "g").unwrap_err();
        let good = "r/{instance_id}/{target}";
        assert_eq!(error("a/+/{target}", good), TopicError::Wildcard("a/+/{target}".to_owned()));
        assert_eq!(error("a/{target}", "r/#"), TopicError::Wildcard("r/#".to_owned()));
        for request in ["a", "a/{target}/{target}", "a/x{target}"] {
            assert_eq!(error(request, good), TopicError::Placeholder { template: request.to_owned(), placeholder: TARGET });
        }
        assert!(matches!(error("a/{target}", "r/{target}"), TopicError::Placeholder { placeholder: INSTANCE, .. }));
        for request in ["", "$SYS/{target}", "a\0/{target}"] {
            assert_eq!(error(request, good), TopicError::Unusable(request.to_owned()));
        }
    }

    #[test]
    fn a_target_is_one_level() {
        for bad in ["", "a/b", "+", "#", "a#", "a\n", &"x".repeat(257)] {
            assert_eq!(check_target(bad), Err(TargetError), "{bad}");
        }
        assert_eq!(check_target("Pumpe 1 ä"), Ok(()));
    }

    proptest! {
        #[test]
        fn what_a_target_is_asked_to_publish_to_tells_who_it_is(target in "[^/+#\\p{Cc}]{1,20}", instance in "[0-9a-f]{32}") {
            let topic = topics().reply(&instance, &target);
            prop_assert_eq!(topics().place(&topic), Some(ReplyPlace { instance: Some(&instance), target: &target }));
        }
    }
}
