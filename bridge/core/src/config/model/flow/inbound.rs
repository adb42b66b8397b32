//! `flow.inbound`: what is taken in.

use crate::config::values::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is taken in from brokers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Inbound {
    /// How many bytes of each session may have been received and be neither acknowledged nor, of quality of service 0, done with. While that much is, nothing more is read from
    /// the broker, but for what one read brings; the keep-alive goes on. At least 1 KiB for each message of the largest `receive_maximum`.
    pub max_buffered_bytes: u64,
    /// For how long a limit may hold the acknowledgement of a message; at most 30m. 0s: not at all. What `ack_hold_action` says happens then; `disconnect` needs a time. A destination or a store that stands still is waited for as long as it takes, whatever this says.
    pub ack_hold_max: Span,
    /// What happens to a message that was held for `ack_hold_max`. Without an outbox, and with `direct_hold`, it stays held where nothing is written here.
    pub ack_hold_action: AckHoldAction,
    /// How many messages of quality of service 0 wait in memory to be taken in, for each session, at most: no receive window bounds them, and the broker does not repeat them.
    #[schemars(range(max = 100_000))]
    pub qos0_buffer_messages: u32,
    /// What happens to a message of quality of service 0 that finds `qos0_buffer_messages` waiting.
    pub qos0_on_full: Qos0OnFull,
    /// `qos0_on_full: pause_socket`: for how long the socket is not read at most. Below the `keep_alive` of every session, since the broker hears nothing meanwhile. Left out: half of `keep_alive`.
    pub socket_pause_max: Option<Span>,
    /// The receive buffer of connections to brokers, in KiB; 0 as the operating system has it, which is nearly always right.
    #[schemars(range(max = 16_384))]
    pub tcp_receive_buffer_kib: u32,
    /// A process that for so long has taken nothing and acknowledged nothing leaves the groups of its `$share` subscriptions, as long as it knows of another
    /// one of the bridge that gives full service, so that the others get its share; it comes back with the first message that it takes, or when there is
    /// no other, and then stays for twice this time at least. Left out: never. 2s to 1h. What it holds is acknowledged as before. Of others it knows by
    /// their rows among the members, which are believed for three times `cluster.member_interval`: if the last other one dies without a word, what is published until
    /// then has no receiver.
    pub unshare_after: Option<Span>,
}

impl Default for Inbound {
    fn default() -> Self {
        Self {
            max_buffered_bytes: 16 * 1024 * 1024,
            ack_hold_max: Span::secs(60),
            ack_hold_action: AckHoldAction::Park,
            qos0_buffer_messages: 1_000,
            qos0_on_full: Qos0OnFull::DropNewest,
            socket_pause_max: None,
            tcp_receive_buffer_kib: 0,
            unshare_after: None,
        }
    }
}

/// What happens to a message whose acknowledgement was held for too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AckHoldAction {
    /// It is kept in the outbox and acknowledged, and sent when its limit admits it.
    #[default]
    Park,
    /// The connection is ended, and the broker sends it again by the next one. Not with `ephemeral` sessions, which the broker forgets with their connections.
    Disconnect,
}

/// What happens to a message of quality of service 0 for which there is no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Qos0OnFull {
    /// It is dropped, and counted.
    #[default]
    DropNewest,
    /// The oldest one that waits is dropped, and counted.
    DropOldest,
    /// The socket is not read until there is room, for `socket_pause_max` at most; then it is dropped, and counted. Messages of other qualities of service wait too.
    PauseSocket,
}
