//! The fixed parts of a recording: its first bytes, the head in front of each chunk, its last bytes.
//!
//! Every number is little-endian. A reader checks a head's checksum first, so that it believes no length that was not
//! written; `docs/format.md` describes every byte.

/// The first eight bytes of a recording. The first byte is not text, so that no text is taken for a recording.
pub const MAGIC: [u8; 8] = *b"\x89NOFRAG\n";
/// Major version of the format. A reader refuses a recording with a larger one.
pub const MAJOR: u16 = 1;
/// Minor version of the format: grows when a part is added that older readers may skip.
pub const MINOR: u16 = 0;

/// Bytes of a recording before its first chunk.
pub(super) const FILE_HEAD: usize = 16;
/// Bytes of the head of a chunk.
pub(super) const CHUNK_HEAD: usize = 48;
/// Bytes of a chunk's head between magic and checksum.
pub(super) const HEAD_CONTENT: usize = 40;
/// Bytes behind the last chunk of a finished recording.
pub(super) const FOOTER: usize = 24;
/// The first bytes of a chunk.
pub(super) const CHUNK_MAGIC: [u8; 4] = *b"NFck";
const FOOTER_MAGIC: [u8; 8] = *b"NFRAGEND";

/// Most events of a chunk.
pub(super) const MAX_EVENTS: u32 = 1 << 20;

/// The contents of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkType {
    /// Facts about the trace beside its events, as JSON.
    Meta,
    /// The files of one moment.
    Snapshot,
    /// The events of one CPU in one stretch of time.
    Events,
    /// The losses; written when the recording ends.
    End,
    /// The offsets of all other chunks.
    Index,
    /// A type of a later version: skipped.
    Unknown(u16),
}

impl ChunkType {
    pub(super) fn number(self) -> u16 {
        match self {
            ChunkType::Meta => 1,
            ChunkType::Snapshot => 2,
            ChunkType::Events => 3,
            ChunkType::End => 4,
            ChunkType::Index => 5,
            ChunkType::Unknown(number) => number,
        }
    }

    fn from_number(number: u16) -> ChunkType {
        match number {
            1 => ChunkType::Meta,
            2 => ChunkType::Snapshot,
            3 => ChunkType::Events,
            4 => ChunkType::End,
            5 => ChunkType::Index,
            number => ChunkType::Unknown(number),
        }
    }
}

/// The fields in front of a chunk's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkHead {
    pub(super) kind: ChunkType,
    /// The CPU of the events; 0 in chunks without events.
    pub(super) cpu: u16,
    pub(super) count: u32,
    pub(super) length: u64,
    /// Time of the first event.
    pub(super) first: u64,
    /// Time up to which this CPU's events are all written: at least the time of its last event.
    pub(super) until: u64,
    pub(super) body_crc: u32,
}

impl ChunkHead {
    pub(super) fn to_bytes(self) -> [u8; CHUNK_HEAD] {
        let mut bytes = [0; CHUNK_HEAD];
        bytes[..4].copy_from_slice(&CHUNK_MAGIC);
        bytes[4..44].copy_from_slice(&self.content());
        let crc = crc32fast::hash(&bytes[..44]);
        bytes[44..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a head; `None` if the bytes are not a head, or damaged.
    pub(super) fn from_bytes(bytes: &[u8; CHUNK_HEAD]) -> Option<ChunkHead> {
        let sound = bytes[..4] == CHUNK_MAGIC && crc32fast::hash(&bytes[..44]) == u32_at(bytes, 44);
        sound.then(|| ChunkHead::from_content(bytes[4..44].try_into().expect("forty bytes")))
    }

    /// Returns the bytes of the head between the magic and the checksum.
    pub(super) fn content(self) -> [u8; HEAD_CONTENT] {
        let mut bytes = [0; HEAD_CONTENT];
        bytes[0..2].copy_from_slice(&self.kind.number().to_le_bytes());
        bytes[2..4].copy_from_slice(&self.cpu.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.count.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.length.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.first.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.until.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.body_crc.to_le_bytes());
        bytes
    }

    pub(super) fn from_content(bytes: &[u8; HEAD_CONTENT]) -> ChunkHead {
        ChunkHead {
            kind: ChunkType::from_number(u16_at(bytes, 0)),
            cpu: u16_at(bytes, 2),
            count: u32_at(bytes, 4),
            length: u64_at(bytes, 12),
            first: u64_at(bytes, 20),
            until: u64_at(bytes, 28),
            body_crc: u32_at(bytes, 36),
        }
    }
}

/// The defect in the first bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadHead {
    /// The file is not a recording.
    Foreign,
    /// The file was a recording, and its version cannot be known.
    Damaged,
    /// The file is of a version that this reader does not know.
    Major(u16),
}

/// Returns the first bytes of a recording.
pub(super) fn file_head() -> [u8; FILE_HEAD] {
    let mut bytes = [0; FILE_HEAD];
    bytes[0..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&MAJOR.to_le_bytes());
    bytes[10..12].copy_from_slice(&MINOR.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..12]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Checks that a recording that begins with these bytes can be read.
pub(super) fn check_file_head(bytes: &[u8]) -> Result<(), BadHead> {
    if !bytes.starts_with(&MAGIC) {
        return Err(BadHead::Foreign);
    }
    if bytes.len() < FILE_HEAD || crc32fast::hash(&bytes[..12]) != u32_at(bytes, 12) {
        return Err(BadHead::Damaged);
    }
    match u16_at(bytes, 8) {
        MAJOR => Ok(()),
        major => Err(BadHead::Major(major)),
    }
}

/// Returns the last bytes of a recording whose index begins at `index`.
pub(super) fn footer(index: u64) -> [u8; FOOTER] {
    let mut bytes = [0; FOOTER];
    bytes[0..8].copy_from_slice(&index.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..12]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes[16..24].copy_from_slice(&FOOTER_MAGIC);
    bytes
}

/// Returns the offset of the index; `None` if these are not the last bytes of a finished recording.
pub(super) fn parse_footer(bytes: &[u8; FOOTER]) -> Option<u64> {
    let sound = bytes[16..24] == FOOTER_MAGIC && crc32fast::hash(&bytes[..12]) == u32_at(bytes, 12);
    sound.then(|| u64_at(bytes, 0))
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
