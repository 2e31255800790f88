//! One column of a chunk: many values of one field, in few bytes.
//!
//! A column has a descriptor of eight bytes and a payload. Its values are reduced in one of five ways:
//!
//! | encoding | payload |
//! |---|---|
//! | constant | the value, 8 bytes |
//! | dictionary | up to 256 distinct values, 8 bytes each, then a plane of their numbers |
//! | plain | planes of the values |
//! | delta | the first value, 8 bytes, then planes of the differences between neighbours, which are not negative |
//! | zigzag | the same, with differences `d` of either sign as `(d << 1) ^ (d >> 63)` |
//!
//! A *plane* holds one byte of each value, the lowest byte in the first plane (a byte shuffle): bytes of equal weight
//! resemble each other. Each plane is packed by itself, since each has statistics of its own: as one byte if all bytes
//! are equal, else with zstd, else unpacked.

use zstd::bulk::{Compressor, Decompressor};

use super::layout::{u32_at, u64_at};
use crate::lists::grow;

/// Size of a column's descriptor in bytes.
const DESCRIPTOR: usize = 8;
/// Level of compression. Higher levels cost far more time than they save bytes.
const LEVEL: i32 = 3;

const CONSTANT: u8 = 0;
const DICTIONARY: u8 = 1;
const PLAIN: u8 = 2;
const DELTA: u8 = 3;
const ZIGZAG: u8 = 4;

const STORED: u32 = 0;
const ZSTD: u32 = 1;
const FILLED: u32 = 2;
/// Largest length of a packed plane; the two bits above hold its encoding.
const PLANE_LENGTH: u32 = (1 << 30) - 1;

/// The distribution of a column's values; decides which encodings are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Few distinct values.
    Few,
    /// Each value near to the one before.
    Near,
    Any,
}

/// Identity of a column: a field of a kind of event, or one of all events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColumnId {
    /// 0 for columns of all events, else one more than the number of the kind.
    pub(super) owner: u8,
    /// Number of the column among the owner's.
    pub(super) field: u8,
}

/// A column in its packed form in a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedColumn<'a> {
    pub(super) id: ColumnId,
    encoding: u8,
    width: u8,
    payload: &'a [u8],
}

/// The error for a chunk whose body is damaged although its checksum is right: no sound writer wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged;

/// The working memory for packing columns.
pub(super) struct Packer {
    zstd: Compressor<'static>,
    reduced: Vec<u64>,
    plane: Vec<u8>,
    packed: Vec<u8>,
}

impl Packer {
    pub(super) fn new() -> std::io::Result<Packer> {
        let zstd = Compressor::new(LEVEL)?;
        Ok(Packer { zstd, reduced: Vec::new(), plane: Vec::new(), packed: Vec::new() })
    }

    /// Appends a column of `values`, of which there is at least one.
    pub(super) fn column(
        &mut self,
        id: ColumnId,
        shape: Shape,
        values: &[u64],
        body: &mut Vec<u8>,
    ) -> std::io::Result<()> {
        let at = body.len();
        body.extend_from_slice(&[id.owner, id.field, 0, 0, 0, 0, 0, 0]);
        let (encoding, width) = self.payload(shape, values, body)?;
        let length =
            u32::try_from(body.len() - at - DESCRIPTOR).expect("at most 9 MiB by MAX_EVENTS");
        body[at + 2] = encoding;
        body[at + 3] = width;
        body[at + 4..at + 8].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }

    /// Appends the payload of a column; returns its encoding and its width: the number of planes, or for a dictionary
    /// one less than the number of its entries.
    fn payload(
        &mut self,
        shape: Shape,
        values: &[u64],
        body: &mut Vec<u8>,
    ) -> std::io::Result<(u8, u8)> {
        let first = values[0];
        if values.iter().all(|&value| value == first) {
            body.extend_from_slice(&first.to_le_bytes());
            return Ok((CONSTANT, 0));
        }
        if shape == Shape::Few
            && let Some(entries) = self.dictionary(values)
        {
            body.extend(entries.iter().flat_map(|entry| entry.to_le_bytes()));
            self.planes(1, body)?;
            return Ok((DICTIONARY, (entries.len() - 1) as u8));
        }
        self.reduced.clear();
        let encoding = match shape {
            Shape::Few | Shape::Any => {
                self.reduced.extend_from_slice(values);
                PLAIN
            }
            Shape::Near => {
                body.extend_from_slice(&first.to_le_bytes());
                let pairs = values.iter().zip(std::iter::once(&first).chain(values));
                let deltas = pairs.map(|(value, before)| value.wrapping_sub(*before));
                if values.is_sorted() {
                    self.reduced.extend(deltas);
                    DELTA
                } else {
                    let zigzag = |d: u64| (d << 1) ^ ((d as i64 >> 63) as u64);
                    self.reduced.extend(deltas.map(zigzag));
                    ZIGZAG
                }
            }
        };
        let bits = 64 - self.reduced.iter().fold(0, |all, value| all | value).leading_zeros();
        let width = bits.div_ceil(8).max(1) as u8;
        self.planes(width, body)?;
        Ok((encoding, width))
    }

    /// Returns the distinct values in the order in which they appear, with the number of each value in `reduced`;
    /// `None` if there are more than a byte can number.
    fn dictionary(&mut self, values: &[u64]) -> Option<Vec<u64>> {
        let mut entries: Vec<u64> = Vec::new();
        self.reduced.clear();
        for &value in values {
            // The previous entry is the likeliest; the list is short, or given up soon.
            let number = match self.reduced.last() {
                Some(&last) if entries[last as usize] == value => last as usize,
                _ => entries.iter().position(|&entry| entry == value).unwrap_or(entries.len()),
            };
            if number == entries.len() {
                if entries.len() == 256 {
                    return None;
                }
                entries.push(value);
            }
            self.reduced.push(number as u64);
        }
        Some(entries)
    }

    /// Appends `width` planes of the values in `reduced`.
    fn planes(&mut self, width: u8, body: &mut Vec<u8>) -> std::io::Result<()> {
        for plane in 0..width {
            self.plane.clear();
            self.plane.extend(self.reduced.iter().map(|value| (value >> (8 * plane)) as u8));
            let first = self.plane[0];
            if self.plane.iter().all(|&byte| byte == first) {
                body.extend_from_slice(&(FILLED << 30 | u32::from(first)).to_le_bytes());
                continue;
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "a plane is as long as a chunk has events, which are there"
            )]
            self.packed.resize(zstd::zstd_safe::compress_bound(self.plane.len()), 0);
            let length = self.zstd.compress_to_buffer(&self.plane, &mut self.packed)?;
            let (how, bytes) = if length < self.plane.len() {
                (ZSTD, &self.packed[..length])
            } else {
                (STORED, &self.plane[..])
            };
            body.extend_from_slice(&(how << 30 | bytes.len() as u32).to_le_bytes());
            body.extend_from_slice(bytes);
        }
        Ok(())
    }
}

/// Returns the columns of a body, in order.
pub(super) fn columns(body: &[u8]) -> impl Iterator<Item = Result<PackedColumn<'_>, Damaged>> {
    let mut rest = body;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let column = split_column(&mut rest);
        if column.is_err() {
            rest = &[];
        }
        Some(column)
    })
}

fn split_column<'a>(rest: &mut &'a [u8]) -> Result<PackedColumn<'a>, Damaged> {
    let descriptor = take(rest, DESCRIPTOR)?;
    let payload = take(rest, u32_at(descriptor, 4) as usize)?;
    let id = ColumnId { owner: descriptor[0], field: descriptor[1] };
    Ok(PackedColumn { id, encoding: descriptor[2], width: descriptor[3], payload })
}

/// Takes `count` bytes off the front.
fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], Damaged> {
    let (front, back) = rest.split_at_checked(count).ok_or(Damaged)?;
    *rest = back;
    Ok(front)
}

/// Fills an empty list with `count` equal values. A failed allocation counts as damage: the events of the chunk are
/// lost, and counted.
pub(super) fn fill<T: Clone>(values: &mut Vec<T>, count: usize, value: T) -> Result<(), Damaged> {
    grow(values, count, value).map_err(|_| Damaged)
}

/// The working memory for unpacking columns.
pub(super) struct Unpacker {
    zstd: Decompressor<'static>,
    plane: Vec<u8>,
}

impl Unpacker {
    pub(super) fn new() -> std::io::Result<Unpacker> {
        Ok(Unpacker { zstd: Decompressor::new()?, plane: Vec::new() })
    }

    /// Reads the `count` values of a column into `values`. Allocates no more than these values and one plane of them.
    pub(super) fn column(
        &mut self,
        column: &PackedColumn<'_>,
        count: usize,
        values: &mut Vec<u64>,
    ) -> Result<(), Damaged> {
        let mut rest = column.payload;
        values.clear();
        match column.encoding {
            CONSTANT => {
                fill(values, count, u64_at(take(&mut rest, 8)?, 0))?;
            }
            DICTIONARY => {
                let entries = take(&mut rest, 8 * (usize::from(column.width) + 1))?;
                let entries: Vec<u64> =
                    entries.chunks_exact(8).map(|entry| u64_at(entry, 0)).collect();
                let plane = self.plane(&mut rest, count)?;
                if plane.iter().any(|&number| usize::from(number) >= entries.len()) {
                    return Err(Damaged);
                }
                values.try_reserve_exact(count).map_err(|_| Damaged)?;
                values.extend(plane.iter().map(|&number| entries[usize::from(number)]));
            }
            PLAIN => self.planes(column.width, &mut rest, count, values)?,
            DELTA | ZIGZAG => {
                let mut value = u64_at(take(&mut rest, 8)?, 0);
                self.planes(column.width, &mut rest, count, values)?;
                let zigzag = column.encoding == ZIGZAG;
                for delta in values {
                    let step =
                        if zigzag { (*delta >> 1) ^ (*delta & 1).wrapping_neg() } else { *delta };
                    value = value.wrapping_add(step);
                    *delta = value;
                }
            }
            _ => return Err(Damaged),
        }
        if rest.is_empty() { Ok(()) } else { Err(Damaged) }
    }

    /// Unpacks `width` planes, the lowest bytes first, and joins them to `count` values.
    fn planes(
        &mut self,
        width: u8,
        rest: &mut &[u8],
        count: usize,
        values: &mut Vec<u64>,
    ) -> Result<(), Damaged> {
        if !(1..=8).contains(&width) {
            return Err(Damaged);
        }
        fill(values, count, 0)?;
        for number in 0..width {
            let plane = self.plane(rest, count)?;
            for (value, &byte) in values.iter_mut().zip(plane) {
                *value |= u64::from(byte) << (8 * number);
            }
        }
        Ok(())
    }

    /// Unpacks the next plane, which has `count` bytes.
    fn plane(&mut self, rest: &mut &[u8], count: usize) -> Result<&[u8], Damaged> {
        let head = u32_at(take(rest, 4)?, 0);
        let length = (head & PLANE_LENGTH) as usize;
        self.plane.clear();
        match head >> 30 {
            STORED if length == count => {
                self.plane.try_reserve_exact(count).map_err(|_| Damaged)?;
                self.plane.extend_from_slice(take(rest, count)?);
            }
            ZSTD => {
                let packed = take(rest, length)?;
                fill(&mut self.plane, count, 0)?;
                let unpacked = self.zstd.decompress_to_buffer(packed, &mut self.plane[..]);
                if unpacked.ok() != Some(count) {
                    return Err(Damaged);
                }
            }
            FILLED if length < 256 => fill(&mut self.plane, count, length as u8)?,
            _ => return Err(Damaged),
        }
        Ok(&self.plane)
    }
}
