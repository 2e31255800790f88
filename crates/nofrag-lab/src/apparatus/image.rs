//! The probe's program: an executable without a libc, a loader or a heap.
//!
//! It reads a batch of records from its standard input, makes one system call for each, and writes the results back. A
//! record is a system call's number, its six arguments, and the expected result; as soon as a result differs from that,
//! the rest of the batch is answered with [`NOT_DONE`], so that the process stays as it was when it first differed.
//! When nothing can be read any more, it ends.
//!
//! The program is position-bound and knows only its two buffers, so a header and the code make the whole file. It
//! exists twice: in 64 bits, and in 32 bits for the kernel's other set of windows; the assembler that compiles this
//! crate makes both, and no tool is needed where it runs.

#[cfg(target_arch = "x86_64")]
use std::arch::global_asm;
#[cfg(target_arch = "x86_64")]
use std::slice;

/// Width of the addresses of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Width {
    /// i386 code on the kernel's i386 face.
    Bits32,
    Bits64,
}

/// Words of a record: number, six arguments, expected result.
pub(crate) const RECORD_WORDS: usize = 8;

/// The most records in a batch.
pub(crate) const BATCH: usize = 1024;

/// The answer to a record that was not carried out.
pub(crate) const NOT_DONE: u64 = 1;

const RECORD_BYTES: u64 = 8 * RECORD_WORDS as u64;

/// The address at which the file is mapped.
const TEXT: u64 = 0x0804_8000;
/// The address to which records are read.
const RECORDS: u64 = 0x0805_0000;
/// The address at which answers are collected.
const ANSWERS: u64 = RECORDS + BATCH as u64 * RECORD_BYTES;
/// The address of the variables of the 32-bit program, which has too few registers.
const VARIABLES: u64 = ANSWERS + BATCH as u64 * 8;
const BUFFERS_END: u64 = VARIABLES + 0x1000;

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .rodata.nofrag_probe, \"a\", @progbits",
    "nofrag_probe_64:",
    // r12 counts records down, r14 keeps their number, r13 is 1 once a result differed from the expected one.
    "1: xor eax, eax",
    "xor edi, edi",
    "mov esi, {records}",
    "mov edx, {records_bytes}",
    "syscall", // read(0, records)
    "test rax, rax",
    "jle 5f",
    "shr rax, 6",
    "jz 5f",
    "mov r12, rax",
    "mov r14, rax",
    "mov ebx, {records}",
    "mov ebp, {answers}",
    "xor r13d, r13d",
    "2: mov eax, {not_done}",
    "test r13d, r13d",
    "jnz 3f",
    "mov rax, [rbx]",
    "mov rdi, [rbx + 8]",
    "mov rsi, [rbx + 16]",
    "mov rdx, [rbx + 24]",
    "mov r10, [rbx + 32]",
    "mov r8, [rbx + 40]",
    "mov r9, [rbx + 48]",
    "syscall",
    "cmp rax, [rbx + 56]",
    "je 3f",
    "mov r13d, 1",
    "3: mov [rbp], rax",
    "add rbx, {record_bytes}",
    "add rbp, 8",
    "dec r12",
    "jnz 2b",
    "mov eax, 1",
    "xor edi, edi",
    "mov esi, {answers}",
    "lea rdx, [r14 * 8]",
    "syscall", // write(0, answers): the standard input is a socket
    "test rax, rax",
    "jg 1b",
    "5: mov eax, 231",
    "xor edi, edi",
    "syscall", // exit_group(0)
    "nofrag_probe_64_end:",
    ".code32",
    "nofrag_probe_32:",
    "1: mov eax, 3",
    "xor ebx, ebx",
    "mov ecx, {records}",
    "mov edx, {records_bytes}",
    "int 0x80", // read(0, records)
    "test eax, eax",
    "jle 5f",
    "shr eax, 6",
    "jz 5f",
    "mov dword ptr [{left}], eax",
    "mov dword ptr [{count}], eax",
    "mov dword ptr [{record}], {records}",
    "mov dword ptr [{answer}], {answers}",
    "mov dword ptr [{stopped}], 0",
    "2: mov eax, {not_done}",
    "cmp dword ptr [{stopped}], 0",
    "jne 3f",
    "mov ebp, dword ptr [{record}]",
    "mov eax, [ebp]",
    "mov ebx, [ebp + 8]",
    "mov ecx, [ebp + 16]",
    "mov edx, [ebp + 24]",
    "mov esi, [ebp + 32]",
    "mov edi, [ebp + 40]",
    "mov ebp, [ebp + 48]",
    "int 0x80",
    "mov ebp, dword ptr [{record}]",
    "cmp eax, [ebp + 56]",
    "je 3f",
    "mov dword ptr [{stopped}], 1",
    // The upper half of an answer stays zero, as it was in fresh memory.
    "3: mov edi, dword ptr [{answer}]",
    "mov [edi], eax",
    "add dword ptr [{answer}], 8",
    "add dword ptr [{record}], {record_bytes}",
    "dec dword ptr [{left}]",
    "jnz 2b",
    "mov eax, 4",
    "xor ebx, ebx",
    "mov ecx, {answers}",
    "mov edx, dword ptr [{count}]",
    "shl edx, 3",
    "int 0x80", // write(0, answers)
    "test eax, eax",
    "jg 1b",
    "5: mov eax, 1",
    "xor ebx, ebx",
    "int 0x80", // exit(0)
    "nofrag_probe_32_end:",
    ".code64",
    ".popsection",
    records = const RECORDS,
    records_bytes = const BATCH as u64 * RECORD_BYTES,
    record_bytes = const RECORD_BYTES,
    answers = const ANSWERS,
    not_done = const NOT_DONE,
    left = const VARIABLES,
    count = const VARIABLES + 4,
    record = const VARIABLES + 8,
    answer = const VARIABLES + 12,
    stopped = const VARIABLES + 16,
);

// # Safety
// Only the addresses of these labels have a meaning, and the bytes between a label and its end.
#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    #[link_name = "nofrag_probe_64"]
    static CODE_64: u8;
    #[link_name = "nofrag_probe_64_end"]
    static CODE_64_END: u8;
    #[link_name = "nofrag_probe_32"]
    static CODE_32: u8;
    #[link_name = "nofrag_probe_32_end"]
    static CODE_32_END: u8;
}

/// Returns no code: there is no program for other processors, and none is started there.
#[cfg(not(target_arch = "x86_64"))]
fn code(_: Width) -> &'static [u8] {
    &[]
}

/// Returns the code between two labels of the assembly above.
#[cfg(target_arch = "x86_64")]
fn code(width: Width) -> &'static [u8] {
    let (start, end) = match width {
        Width::Bits64 => (&raw const CODE_64, &raw const CODE_64_END),
        Width::Bits32 => (&raw const CODE_32, &raw const CODE_32_END),
    };
    let len = end.addr().checked_sub(start.addr()).expect("the end label stands below its start");
    // SAFETY: both labels stand in one read-only section, the end after the start (checked above), with nothing but
    // the code between them, which is never written.
    unsafe { slice::from_raw_parts(start, len) }
}

/// Type of a segment that is loaded: the file itself at [`TEXT`], and the buffers at [`RECORDS`].
const LOAD: u32 = 1;
/// Type of the entry with the stack's permissions; without it an i386 process would make all readable memory
/// executable.
const STACK: u32 = 0x6474_e551;

const READ_EXECUTE: u32 = 5;
const READ_WRITE: u32 = 6;

/// An entry of the file's table of segments.
struct Segment {
    kind: u32,
    permissions: u32,
    address: u64,
    file_bytes: u64,
    memory_bytes: u64,
}

pub(crate) fn executable(width: Width) -> Vec<u8> {
    let code = code(width);
    let (header_bytes, segment_bytes) = match width {
        Width::Bits64 => (64, 56),
        Width::Bits32 => (52, 32),
    };
    let code_at = header_bytes + 3 * segment_bytes;
    let file_bytes = code_at + code.len() as u64;
    let segments = [
        (LOAD, READ_EXECUTE, TEXT, file_bytes, file_bytes),
        (LOAD, READ_WRITE, RECORDS, 0, BUFFERS_END - RECORDS),
        (STACK, READ_WRITE, 0, 0, 0),
    ];
    let mut file = File { width, bytes: Vec::new() };
    file.header(TEXT + code_at, header_bytes as u16, segment_bytes as u16, segments.len() as u16);
    for (kind, permissions, address, file_bytes, memory_bytes) in segments {
        file.segment(&Segment { kind, permissions, address, file_bytes, memory_bytes });
    }
    assert_eq!(file.bytes.len() as u64, code_at, "the tables are as long as they say");
    file.bytes.extend_from_slice(code);
    file.bytes
}

/// An ELF file in the making.
struct File {
    width: Width,
    bytes: Vec<u8>,
}

impl File {
    fn half(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn word(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends an address, an offset or a size: as wide as the program.
    fn wide(&mut self, value: u64) {
        match self.width {
            Width::Bits64 => self.bytes.extend_from_slice(&value.to_le_bytes()),
            Width::Bits32 => self.word(u32::try_from(value).expect("the probe lies low")),
        }
    }

    fn header(&mut self, entry: u64, header_bytes: u16, segment_bytes: u16, segments: u16) {
        let (class, machine) = match self.width {
            Width::Bits64 => (2, 62),
            Width::Bits32 => (1, 3),
        };
        self.bytes.extend_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1, 0]);
        self.bytes.extend_from_slice(&[0; 8]);
        self.half(2); // executable, at fixed addresses
        self.half(machine);
        self.word(1);
        self.wide(entry);
        self.wide(u64::from(header_bytes)); // segments follow the header
        self.wide(0); // no sections
        self.word(0);
        for value in [header_bytes, segment_bytes, segments, 0, 0, 0] {
            self.half(value);
        }
    }

    fn segment(&mut self, segment: &Segment) {
        let Segment { kind, permissions, address, file_bytes, memory_bytes } = *segment;
        self.word(kind);
        if self.width == Width::Bits64 {
            self.word(permissions);
        }
        self.wide(0); // all that is loaded begins with the file
        self.wide(address);
        self.wide(address);
        self.wide(file_bytes);
        self.wide(memory_bytes);
        if self.width == Width::Bits32 {
            self.word(permissions);
        }
        self.wide(0x1000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_are_small_and_their_headers_agree() {
        for (width, machine) in [(Width::Bits64, 62), (Width::Bits32, 3)] {
            let file = executable(width);
            assert!(file.len() < 1024, "{} bytes", file.len());
            assert_eq!((&file[..4], file[18]), (&b"\x7fELF"[..], machine));
        }
    }
}
