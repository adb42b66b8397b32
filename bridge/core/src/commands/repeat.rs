//! Callers that say the same twice, told by the key that they give.

use super::command::State;
use crate::source_id::ContentDigest;

/// What a call with a key that was used before is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// The same command, which is answered as it stands: nothing is published again.
    Same,
    /// The same command, which is being carried out: the caller is told to come again.
    Running,
    /// The key names another command.
    Other,
}

/// What a call is whose key was used before: for a command with the digest `known`, which stands at `state`. With `replay` a command that is being carried out is answered like one
/// that has ended.
#[must_use]
pub fn repeat_of(known: &ContentDigest, state: State, asked: &ContentDigest, replay: bool) -> Repeat {
    if known != asked {
        Repeat::Other
    } else if state == State::Created && !replay {
        Repeat::Running
    } else {
        Repeat::Same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rr5_a_key_names_one_command() {
        let (one, other) = ([1; 32], [2; 32]);
        assert_eq!(repeat_of(&one, State::Published, &one, false), Repeat::Same);
        assert_eq!(repeat_of(&one, State::Succeeded, &one, false), Repeat::Same);
        assert_eq!(repeat_of(&one, State::Succeeded, &other, true), Repeat::Other);
        assert_eq!(repeat_of(&one, State::Created, &one, false), Repeat::Running);
        assert_eq!(repeat_of(&one, State::Created, &one, true), Repeat::Same);
    }
}
