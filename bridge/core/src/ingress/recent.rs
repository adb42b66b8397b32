//! The posts that came last, by their ids: a repeat is answered like the first one, and nothing of it is kept.
//!
//! It is the owner's memory and ends with the process. Behind it stand the names in the mailbox, which outlive it as long as the mail is there, and the
//! id that travels with the message.

use crate::source_id::ContentDigest;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, VecDeque};

/// So many ids are remembered, about 200 bytes each.
const ROOM: usize = 4_096;

/// What a post with an id is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The first one: carry it out, then say how it ended with [`Posts::end`].
    First,
    /// Accepted before.
    Repeat,
    /// The first one is being carried out just now.
    Busy,
    /// The id was given to another message before.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending,
    Accepted,
}

/// What is known of ids.
#[derive(Debug)]
pub struct Posts {
    room: usize,
    known: HashMap<ContentDigest, (ContentDigest, State)>,
    accepted: VecDeque<ContentDigest>,
}

impl Default for Posts {
    fn default() -> Self {
        Self { room: ROOM, known: HashMap::new(), accepted: VecDeque::new() }
    }
}

impl Posts {
    /// A post by `receiver` with the caller's `id`, which says `content`.
    pub fn begin(&mut self, receiver: &str, id: &str, content: ContentDigest) -> Begun {
        let key = key_of(receiver, id);
        match self.known.get(&key) {
            Some(known) => met(known, content),
            None => {
                self.known.insert(key, (content, State::Pending));
                Begun::First
            }
        }
    }

    /// What is known of a post, without beginning it; `None`: nothing.
    #[must_use]
    pub fn known(&self, receiver: &str, id: &str, content: ContentDigest) -> Option<Begun> {
        self.known.get(&key_of(receiver, id)).map(|known| met(known, content))
    }

    /// A post that was the first of its id ended. What was not accepted is forgotten: the next one is the first.
    pub fn end(&mut self, receiver: &str, id: &str, accepted: bool) {
        let key = key_of(receiver, id);
        if !accepted {
            self.known.remove(&key);
            return;
        }
        let Some((_, state)) = self.known.get_mut(&key) else { return };
        if core::mem::replace(state, State::Accepted) == State::Accepted {
            return;
        }
        self.accepted.push_back(key);
        if self.accepted.len() > self.room
            && let Some(oldest) = self.accepted.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

/// What a post is whose id is known.
fn met((known, state): &(ContentDigest, State), content: ContentDigest) -> Begun {
    match state {
        _ if *known != content => Begun::Other,
        State::Accepted => Begun::Repeat,
        State::Pending => Begun::Busy,
    }
}

fn key_of(receiver: &str, id: &str) -> ContentDigest {
    let mut hash = Sha256::new();
    hash.update((receiver.len() as u64).to_be_bytes());
    hash.update(receiver);
    hash.update(id);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_repeat_is_told_from_another_message_and_from_one_under_way() {
        let mut posts = Posts::default();
        assert_eq!(posts.begin("in", "a", [1; 32]), Begun::First);
        assert_eq!(posts.begin("in", "a", [1; 32]), Begun::Busy);
        assert_eq!(posts.known("in", "a", [1; 32]), Some(Begun::Busy));
        posts.end("in", "a", false);
        assert_eq!(posts.known("in", "a", [1; 32]), None);
        assert_eq!(posts.begin("in", "a", [2; 32]), Begun::First, "nothing is known of what was not accepted");
        posts.end("in", "a", true);
        assert_eq!(posts.begin("in", "a", [2; 32]), Begun::Repeat);
        assert_eq!(posts.begin("in", "a", [1; 32]), Begun::Other);
        assert_eq!(posts.begin("other", "a", [1; 32]), Begun::First);
    }

    proptest! {
        /// Accepted ones are repeats until `room` others were accepted; memory is bounded by that and by what is under way.
        #[test]
        fn what_was_accepted_lately_is_a_repeat(ids in proptest::collection::vec(0_u8..9, 0..80), room in 1_usize..5) {
            let mut posts = Posts { room, ..Posts::default() };
            let mut model: Vec<u8> = Vec::new();
            for id in ids {
                let begun = posts.begin("in", &id.to_string(), [id; 32]);
                prop_assert_eq!(begun, if model.contains(&id) { Begun::Repeat } else { Begun::First });
                if begun == Begun::First {
                    posts.end("in", &id.to_string(), true);
                    model.push(id);
                    if model.len() > room { model.remove(0); }
                }
                prop_assert!(posts.known.len() <= room);
            }
        }
    }
}
