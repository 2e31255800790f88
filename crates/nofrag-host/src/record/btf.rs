//! The two facts that the recorder needs from the kernel's own description of its types (BTF): the names of a
//! function's parameters, and the size of a structure.
//!
//! The format is documented with the kernel (`bpf/btf`): a header, a row of types, and their names. Types are numbered
//! from 1 in their order in the file; a function names the type that holds its parameters.

#[derive(Debug)]
pub(super) struct Types<'a> {
    names: &'a [u8],
    /// The types in their order: kind, name, size or type, and the variable part.
    types: Vec<Described<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct Described<'a> {
    kind: u32,
    name: usize,
    /// The size of a structure; for a function, the number of the type that holds its parameters.
    size_or_type: u32,
    /// The type's bytes behind its fixed part.
    rest: &'a [u8],
}

const MAGIC: u16 = 0xeb9f;
/// Bytes of the fixed part of a type.
const FIXED: usize = 12;

const STRUCT: u32 = 4;
const FUNCTION: u32 = 12;
const PARAMETERS: u32 = 13;

/// Returns the number of bytes behind the fixed part of a type with `members` members; `None` for an unknown kind,
/// behind which nothing can be read.
fn rest_of(kind: u32, members: usize) -> Option<usize> {
    match kind {
        1 | 14 | 17 => Some(4),
        2 | 7..=12 | 16 | 18 => Some(0),
        3 => Some(12),
        STRUCT | 5 | 15 | 19 => Some(12 * members),
        6 | PARAMETERS => Some(8 * members),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl<'a> Types<'a> {
    /// Reads the types from the bytes of `/sys/kernel/btf/vmlinux`; `None` if the bytes are not BTF.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Types<'a>> {
        let magic = u16::from_le_bytes(*bytes.first_chunk()?);
        if magic != MAGIC {
            return None;
        }
        let at = |place| Some(word(bytes, place)? as usize);
        let body = bytes.get(at(4)?..)?;
        let section = |from: usize, length: usize| body.get(from..)?.get(..length);
        let mut left = section(at(8)?, at(12)?)?;
        let names = section(at(16)?, at(20)?)?;
        let mut types = Vec::new();
        while let (Some(name), Some(info), Some(size_or_type)) =
            (word(left, 0), word(left, 4), word(left, 8))
        {
            let (kind, members) = (info >> 24 & 31, (info & 0xffff) as usize);
            let Some(length) = rest_of(kind, members) else { break };
            let rest = left.get(FIXED..FIXED + length)?;
            types.push(Described { kind, name: name as usize, size_or_type, rest });
            left = &left[FIXED + length..];
        }
        Some(Types { names, types })
    }

    fn name(&self, at: usize) -> Option<&'a str> {
        let bytes = self.names.get(at..)?;
        let end = bytes.iter().position(|&byte| byte == 0)?;
        std::str::from_utf8(&bytes[..end]).ok()
    }

    fn find(&self, kind: u32, name: &str) -> Option<&Described<'a>> {
        let mut found = self.types.iter().filter(|one| one.kind == kind);
        found.find(|one| self.name(one.name) == Some(name))
    }

    /// Returns the names of a function's parameters, in their order.
    pub(super) fn parameters(&self, function: &str) -> Option<Vec<&'a str>> {
        let number = self.find(FUNCTION, function)?.size_or_type as usize;
        let list = self.types.get(number.checked_sub(1)?)?;
        if list.kind != PARAMETERS {
            return None;
        }
        let (parameters, _) = list.rest.as_chunks::<8>();
        parameters.iter().map(|parameter| self.name(word(parameter, 0)? as usize)).collect()
    }

    /// Returns the size of a structure in bytes.
    pub(super) fn size(&self, structure: &str) -> Option<u32> {
        Some(self.find(STRUCT, structure)?.size_or_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the types of a kernel with `struct page` of 64 bytes and `int f(int first, int second)`.
    fn bytes() -> Vec<u8> {
        let names = b"\0page\0f\0first\0second\0int\0";
        let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        let types = [
            words(&[21, 1 << 24, 4, 32]),
            words(&[1, STRUCT << 24 | 1, 64, 8, 1, 0]),
            words(&[0, PARAMETERS << 24 | 2, 1, 8, 1, 14, 1]),
            words(&[6, FUNCTION << 24 | 1, 3]),
        ]
        .concat();
        let mut bytes = [MAGIC.to_le_bytes(), [1, 0]].concat();
        let sizes = [24, 0, types.len() as u32, types.len() as u32, names.len() as u32];
        bytes.extend(words(&sizes));
        bytes.extend(types);
        bytes.extend(names);
        bytes
    }

    #[test]
    fn a_function_has_its_parameters_and_a_structure_its_size() {
        let bytes = bytes();
        let types = Types::parse(&bytes).unwrap();
        assert_eq!(types.parameters("f"), Some(vec!["first", "second"]));
        assert_eq!(types.size("page"), Some(64));
        assert_eq!((types.parameters("page"), types.size("f")), (None, None));
    }

    #[test]
    fn what_was_cut_anywhere_gives_no_wrong_answer() {
        let bytes = bytes();
        for length in 0..bytes.len() {
            let Some(types) = Types::parse(&bytes[..length]) else { continue };
            assert!(types.parameters("f").is_none_or(|names| names == ["first", "second"]));
            assert!(types.size("page").is_none_or(|size| size == 64));
        }
    }

    /// Reads the running kernel's own description.
    #[test]
    fn the_running_kernel_says_how_large_a_page_description_is() {
        let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            return eprintln!("skipped: this kernel does not describe its types");
        };
        let types = Types::parse(&bytes).unwrap();
        assert!(types.size("page").is_some_and(|size| (32..=256).contains(&size)));
        let names = types.parameters("do_exit").unwrap();
        assert_eq!(names.len(), 1, "{names:?}");
    }
}
