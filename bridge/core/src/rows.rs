//! The rows of an outbox log, as every store keeps them.
//!
//! A log is a sequence of slots. Slot 0 is the head row; every other slot holds an anchor (an owner's flag) or a segment (a group of entries
//! that were made durable by one write). A store only needs put-if-absent, consistent reads in slot order, and deletes.

use crate::identity::{Epoch, Id128, Position, Slot};
use crate::message::Entry;
use crate::units::UnixMillis;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::io::Read;
use thiserror::Error;

/// A row above slot 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// A new owner's flag.
    Anchor(Anchor),
    /// A group of entries.
    Segment(Segment),
}

/// What a new owner puts at the first free slot before it does anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// The owner's epoch.
    pub epoch: Epoch,
    /// Random; by it the owner recognises its own write.
    pub anchor_id: Id128,
    /// The owner's name, for people.
    pub owner: String,
    /// When it was opened, by the owner's wall clock.
    pub opened_at: UnixMillis,
    /// Every slot up to this one was settled when the row was written.
    pub drained: Slot,
    /// The owner drained the log and closed it for good: nothing follows, and the log may be removed. Absent in a store reads as `false`.
    pub retired: bool,
}

/// Entries made durable by one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The owner's epoch.
    pub epoch: Epoch,
    /// Random; by it the owner recognises its own write.
    pub segment_id: Id128,
    /// How many entries `body` holds. Of a segment in parts, the first tells them all and the others 0.
    pub count: u32,
    /// What `body` is: [`CODEC_POSTCARD_ZSTD`] or [`CODEC_PART`].
    pub codec: u8,
    /// The packed entries, or a part of them.
    pub body: Bytes,
    /// When it was written, by the owner's wall clock.
    pub created_at: UnixMillis,
    /// The earliest expiry among its entries.
    pub earliest_expiry: Option<UnixMillis>,
    /// Every slot up to this one was settled when the row was written.
    pub drained: Slot,
}

/// A row without its entries: what decides whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowMeta {
    /// The row's slot.
    pub slot: Slot,
    /// The epoch of the owner that wrote it.
    pub epoch: Epoch,
    /// Its anchor or segment id.
    pub id: Id128,
    /// The head as its writer knew it.
    pub drained: Slot,
}

impl Row {
    /// When it was written, by its owner's wall clock.
    #[must_use]
    pub const fn written_at(&self) -> UnixMillis {
        match self {
            Self::Anchor(anchor) => anchor.opened_at,
            Self::Segment(segment) => segment.created_at,
        }
    }

    /// The epoch of the owner that wrote the row.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        match self {
            Self::Anchor(anchor) => anchor.epoch,
            Self::Segment(segment) => segment.epoch,
        }
    }

    /// The random id by which its owner recognises the row.
    #[must_use]
    pub const fn id(&self) -> Id128 {
        match self {
            Self::Anchor(anchor) => anchor.anchor_id,
            Self::Segment(segment) => segment.segment_id,
        }
    }

    /// The head as its writer knew it.
    #[must_use]
    pub const fn drained(&self) -> Slot {
        match self {
            Self::Anchor(anchor) => anchor.drained,
            Self::Segment(segment) => segment.drained,
        }
    }

    /// The row at `slot`, without its entries.
    #[must_use]
    pub const fn meta(&self, slot: Slot) -> RowMeta {
        RowMeta { slot, epoch: self.epoch(), id: self.id(), drained: self.drained() }
    }
}

/// The head row, slot 0: written when the lane goes idle, at a clean stop, and when settled work piles up behind a stuck entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The epoch of the owner that wrote it.
    pub epoch: Epoch,
    /// Grows with every head row that an owner writes in one epoch: a request that the store applies late cannot undo a later one of the same
    /// `drained`. Absent in a store reads as 0.
    pub revision: u64,
    /// Every slot up to this one is settled; rows there are garbage.
    pub drained: Slot,
    /// Entries above `drained` that are settled already: ascending, disjoint.
    pub settled_ahead: Vec<SettledRange>,
    /// How often the entries at these positions were tried by owners before: ascending by position.
    pub attempts: Vec<(Position, u32)>,
}

impl Head {
    /// Whether the row may be written over `standing`: not under a lower epoch, not with less `drained`, and within one epoch only as a later
    /// revision. The one rule of every store.
    #[must_use]
    pub const fn may_replace(&self, standing: &Self) -> bool {
        let later = self.epoch.0 > standing.epoch.0 || self.epoch.0 == standing.epoch.0 && self.revision > standing.revision;
        later && self.drained.0 >= standing.drained.0
    }
}

/// Settled entries: every position from `from` up to and including `to`, across slots. Which positions exist between them does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettledRange {
    /// The first settled position.
    pub from: Position,
    /// The last settled position.
    pub to: Position,
}

/// Packed by [`pack`]: entries in postcard, then zstd.
pub const CODEC_POSTCARD_ZSTD: u8 = 1;

/// A part of a segment whose packed entries do not fit into one row: a [`Part`] in postcard, then its piece of them. A release that does not know
/// parts meets an unknown codec, and stops instead of taking the head past them.
pub const CODEC_PART: u8 = 2;

/// What one row of a segment in parts tells of itself.
///
/// The parts stand in consecutive slots, each written once the one before is known to stand. All of them, contiguous and of one epoch, are a
/// segment, whose entries have their positions in the first one's slot; anything less was never confirmed to anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The same in all parts of one segment, and in no other.
    pub group: Id128,
    /// Its number, from 0.
    pub index: u32,
    /// How many parts there are.
    pub of: u32,
    /// How the whole is packed.
    pub codec: u8,
}

/// Cuts packed entries into the bodies of rows that hold `max_piece` bytes of them each.
///
/// # Errors
/// [`PackError`] where the encoder fails, which no part of this program makes happen.
pub fn split(packed: &Bytes, group: Id128, max_piece: usize) -> Result<Vec<Bytes>, PackError> {
    let pieces = packed.chunks(max_piece.max(1));
    let of = u32::try_from(pieces.len()).map_err(|_| PackError::Encode)?;
    (0..of)
        .zip(pieces)
        .map(|(index, piece)| {
            let part = Part { group, index, of, codec: CODEC_POSTCARD_ZSTD };
            let mut body = postcard::to_allocvec(&part).map_err(|_| PackError::Encode)?;
            body.extend_from_slice(piece);
            Ok(Bytes::from(body))
        })
        .collect()
}

/// Reads what [`split`] wrote; `None` where the segment is whole in itself.
///
/// # Errors
/// [`PackError::Damaged`] where the row is a part and does not say which.
pub fn part(segment: &Segment) -> Result<Option<(Part, &[u8])>, PackError> {
    if segment.codec != CODEC_PART {
        return Ok(None);
    }
    let (part, piece) = postcard::take_from_bytes::<Part>(&segment.body).map_err(|_| PackError::Damaged)?;
    if part.index < part.of { Ok(Some((part, piece))) } else { Err(PackError::Damaged) }
}

/// zstd level: higher ones gain a few per cent on such small bodies and cost several times the CPU.
const ZSTD_LEVEL: i32 = 3;

/// A body larger than this after unpacking was not written by this program (segments are closed far below it).
const MAX_UNPACKED_BYTES: u64 = 64 * 1024 * 1024;

/// Packs entries into a segment's body.
///
/// # Errors
/// [`PackError`] where the encoder fails, which no entry of this program makes happen.
pub fn pack(entries: &[std::sync::Arc<Entry>]) -> Result<Bytes, PackError> {
    let plain = postcard::to_allocvec(entries).map_err(|_| PackError::Encode)?;
    let mut compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(|_| PackError::Encode)?;
    // Four bytes a segment, so that a flipped bit is found and not decoded into another message.
    compressor.include_checksum(true).map_err(|_| PackError::Encode)?;
    compressor.compress(&plain).map(Bytes::from).map_err(|_| PackError::Encode)
}

/// Unpacks a segment's body.
///
/// # Errors
/// [`PackError`] where the codec is unknown (written by a newer release), or the body is damaged or does not hold `count` entries.
pub fn unpack(segment: &Segment) -> Result<Vec<Entry>, PackError> {
    unpack_body(segment.codec, &segment.body, segment.count)
}

/// Unpacks `count` entries that [`pack`] packed.
///
/// # Errors
/// As [`unpack`].
pub fn unpack_body(codec: u8, body: &[u8], count: u32) -> Result<Vec<Entry>, PackError> {
    if codec != CODEC_POSTCARD_ZSTD {
        return Err(PackError::UnknownCodec { codec });
    }
    let mut plain = Vec::with_capacity(body.len().saturating_mul(4));
    zstd::stream::read::Decoder::with_buffer(body)
        .and_then(|decoder| decoder.take(MAX_UNPACKED_BYTES).read_to_end(&mut plain))
        .map_err(|_| PackError::Damaged)?;
    let entries: Vec<Entry> = postcard::from_bytes(&plain).map_err(|_| PackError::Damaged)?;
    if entries.len() != count as usize { Err(PackError::Damaged) } else { Ok(entries) }
}

/// A body that cannot be packed or read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PackError {
    /// The encoder refused.
    #[error("the entries could not be packed")]
    Encode,
    /// A newer release wrote this log.
    #[error("codec {codec} is unknown: a newer release wrote this log; run that release, or drain the log with it before going back")]
    UnknownCodec {
        /// The codec found.
        codec: u8,
    },
    /// Not what was written.
    #[error("the packed entries are damaged")]
    Damaged,
}
