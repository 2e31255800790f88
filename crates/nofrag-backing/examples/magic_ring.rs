//! Messages from thread to thread through a ring without a seam, beside a ring that copies around its end.
//!
//! ```sh
//! cargo run --release -p nofrag-backing --example magic_ring
//! ```
//!
//! The same messages go through both rings, in turns. In the ring without a seam a message is written and read in
//! place; in the other one it is written in two parts where it wraps, and copied out to be read in one piece. Exit code
//! 1 if a message is wrong or not contiguous.

use std::cell::UnsafeCell;
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use clap::Parser;
use nofrag_backing::shapes::{Consumer, Producer, ring};
use serde_json::json;

/// Messages through a ring without a seam, beside one that copies around its end.
#[derive(Parser)]
struct Arguments {
    /// Bytes of the ring, in KiB.
    #[arg(long, default_value_t = 256)]
    kib: usize,
    /// Messages in each turn.
    #[arg(long, default_value_t = 200_000)]
    messages: u32,
    /// Bytes of the longest message.
    #[arg(long, default_value_t = 4096)]
    longest: usize,
    /// Turns of each ring.
    #[arg(long, default_value_t = 3)]
    turns: usize,
    /// Print figures as JSON.
    #[arg(long)]
    json: bool,
}

/// Returns the bytes of the message with this number, its header (length and number, 4 bytes each) included.
fn length(number: u32, longest: usize) -> usize {
    let mixed = (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    8 + mixed as usize % (longest.max(9) - 8)
}

fn write(message: &mut [u8], number: u32) {
    let (length, fill) = (message.len() as u32, number as u8);
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message[4..8].copy_from_slice(&number.to_ne_bytes());
    message[8..].fill(fill);
}

fn is_right(message: &[u8], number: u32, longest: usize) -> bool {
    message.len() == length(number, longest)
        && message[4..8] == number.to_ne_bytes()
        // Without a way out in the middle, so that it takes many bytes at a time.
        && message[8..].iter().fold(true, |right, &byte| right & (byte == number as u8))
}

/// Sends all messages through the ring without a seam; returns true if every one arrived right.
fn without_a_seam(mut to: Producer, mut from: Consumer, messages: u32, longest: usize) -> bool {
    let writer = thread::spawn(move || {
        for number in 0..messages {
            let bytes = length(number, longest);
            while to.room(bytes).is_none() {
                thread::yield_now();
            }
            let mut room = to.room(bytes).expect("only this thread takes room");
            write(&mut room, number);
            room.publish(bytes);
        }
    });
    let mut right = true;
    let mut number = 0;
    while number < messages {
        let mut rest = from.readable();
        if rest.is_empty() {
            thread::yield_now();
        }
        // Messages that were published together are read together; each message makes room as soon as it was read.
        while let Some(header) = rest.first_chunk() {
            let length = u32::from_ne_bytes(*header) as usize;
            right &= is_right(&rest[..length], number, longest);
            number += 1;
            from.release(length);
            rest = from.seen();
        }
    }
    writer.join().is_ok() && right
}

/// A ring in one mapping: a message that wraps is copied in two parts.
///
/// 1. Bytes from `read` to `written` are the reader's, all others the writer's.
struct Seamed {
    bytes: Box<[UnsafeCell<u8>]>,
    written: AtomicU64,
    read: AtomicU64,
}

// SAFETY: law 1 says at any moment which side has each byte; writer and reader below go by it.
unsafe impl Sync for Seamed {}

impl Seamed {
    /// Copies a message of the writer's into its part of the ring.
    fn copy_in(&self, at: u64, from: &[u8]) {
        let start = at as usize % self.bytes.len();
        let (first, second) = from.split_at(from.len().min(self.bytes.len() - start));
        for (part, start) in [(first, start), (second, 0)] {
            let place = self.bytes[start..][..part.len()].as_ptr().cast::<u8>().cast_mut();
            // SAFETY: inside the ring (the slice has checked), and the writer's own (law 1): it has waited for room.
            unsafe { place.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
        }
    }

    /// Copies a message out of the reader's part of the ring.
    fn copy_out(&self, at: u64, into: &mut [u8]) {
        let start = at as usize % self.bytes.len();
        let split = into.len().min(self.bytes.len() - start);
        let (first, second) = into.split_at_mut(split);
        for (part, start) in [(first, start), (second, 0)] {
            let place = self.bytes[start..][..part.len()].as_ptr().cast::<u8>();
            // SAFETY: inside the ring (the slice has checked), and the reader's own (law 1): it was published.
            unsafe { part.as_mut_ptr().copy_from_nonoverlapping(place, part.len()) };
        }
    }
}

/// Sends all messages through a ring with a seam; returns true if every one arrived right, and the number of bytes that
/// were copied into and out of the ring.
fn around_the_end(bytes: usize, messages: u32, longest: usize) -> (bool, u64) {
    let ring = Seamed {
        bytes: (0..bytes).map(|_| UnsafeCell::new(0)).collect(),
        written: AtomicU64::new(0),
        read: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut message = vec![0; longest + 8];
            let mut written = 0;
            for number in 0..messages {
                let length = length(number, longest);
                write(&mut message[..length], number);
                while written + length as u64 - ring.read.load(Ordering::Acquire) > bytes as u64 {
                    thread::yield_now();
                }
                ring.copy_in(written, &message[..length]);
                written += length as u64;
                ring.written.store(written, Ordering::Release);
            }
        });
        let (mut read, mut right) = (0, true);
        let mut message = vec![0; longest + 8];
        for number in 0..messages {
            while ring.written.load(Ordering::Acquire) == read {
                thread::yield_now();
            }
            let mut header = [0; 4];
            ring.copy_out(read, &mut header);
            let length = u32::from_ne_bytes(header) as usize;
            ring.copy_out(read, &mut message[..length]);
            right &= is_right(&message[..length], number, longest);
            read += length as u64;
            ring.read.store(read, Ordering::Release);
        }
        // In and out.
        (right, read * 2)
    })
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { kib, messages, longest, turns, json } = Arguments::parse();
    let turns = turns.max(1);
    let bytes = (kib << 10).max(longest * 2).next_power_of_two();
    let (mut seamless, mut seamed) = (Vec::new(), Vec::new());
    let (mut holds, mut copied) = (true, 0);
    for _ in 0..turns {
        let (to, from) = ring(bytes)?;
        let begin = Instant::now();
        holds &= without_a_seam(to, from, messages, longest);
        seamless.push(begin.elapsed().as_secs_f64());
        let begin = Instant::now();
        let (right, copies) = around_the_end(bytes, messages, longest);
        seamed.push(begin.elapsed().as_secs_f64());
        holds &= right;
        copied += copies;
    }
    let passed: u64 = (0..messages).map(|number| length(number, longest) as u64).sum();
    let (seamless, seamed) = (median(seamless), median(seamed));
    if json {
        let report = json!({ "ring_bytes": bytes, "messages": messages, "bytes": passed, "turns": turns,
            "seamless_seconds": seamless, "seamed_seconds": seamed, "seamed_copied_bytes": copied / turns as u64,
            "ratio": seamed / seamless, "holds": holds });
        println!("{report}");
    } else {
        println!(
            "{messages} messages of up to {longest} bytes through {} KiB, median of {turns} turns\n",
            bytes >> 10
        );
        println!("{:<26}{:>9}{:>10}{:>22}", "", "seconds", "MiB/s", "copied around it, MiB");
        let mib = passed as f64 / f64::from(1 << 20);
        println!("{:<26}{seamless:>9.3}{:>10.0}{:>22}", "ring without a seam", mib / seamless, 0);
        let around = (copied / turns as u64) >> 20;
        println!(
            "{:<26}{seamed:>9.3}{:>10.0}{around:>22}",
            "ring that copies around",
            mib / seamed
        );
        println!(
            "\nratio {:.1}; {}",
            seamed / seamless,
            if holds { "all messages right" } else { "FAILED" }
        );
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
