//! A buffer that grows to gigabytes and is never copied, beside a `Vec` that grows the same way.
//!
//! ```sh
//! cargo run --release -p nofrag-backing --example growable_buffer
//! cargo run --release -p nofrag-backing --example growable_buffer -- --mib 4096 --json
//! ```
//!
//! Both receive the same pieces. Each time a `Vec` is full it asks for twice as much; the copied bytes are counted from
//! its address and capacity. (Large ones may be moved by the kernel without a copy, `mremap`: then its address changes
//! all the same, and so does that of everything in it.) Exit code 1 if the buffer moved, or its contents are wrong.

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use nofrag_backing::faults;
use nofrag_backing::shapes::GrowableBuffer;
use serde_json::json;

/// A buffer that grows and is never copied, beside a `Vec`.
#[derive(Parser)]
struct Arguments {
    /// Grow to this many MiB.
    #[arg(long, default_value_t = 1024)]
    mib: usize,
    /// Bytes of each piece.
    #[arg(long, default_value_t = 64 << 10)]
    piece: usize,
    /// Print figures as JSON.
    #[arg(long)]
    json: bool,
}

struct Growth {
    seconds: f64,
    moves: u64,
    moved_bytes: u64,
    longest_ns: u64,
}

/// Adds pieces until there are `bytes`; `add` adds one and returns the address of the contents.
fn grow(bytes: usize, piece: &[u8], mut add: impl FnMut(&[u8]) -> usize) -> Growth {
    let (mut moves, mut moved_bytes, mut longest_ns, mut len) = (0, 0, 0, 0);
    let mut address = None;
    let begin = Instant::now();
    while len < bytes {
        let piece_begin = Instant::now();
        let now = add(&piece[..piece.len().min(bytes - len)]);
        longest_ns = longest_ns.max(piece_begin.elapsed().as_nanos() as u64);
        if address.replace(now).is_some_and(|before| before != now) {
            moves += 1;
            moved_bytes += len as u64;
        }
        len += piece.len();
    }
    Growth { seconds: begin.elapsed().as_secs_f64(), moves, moved_bytes, longest_ns }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { mib, piece, json } = Arguments::parse();
    let bytes = mib << 20;
    let piece: Vec<u8> = (0..piece.max(1)).map(|at| at as u8 | 1).collect();

    let mut vec = Vec::new();
    let of_vec = grow(bytes, &piece, |piece| {
        vec.extend_from_slice(piece);
        vec.as_ptr().addr()
    });
    drop(vec);

    // Addresses for far more bytes than needed: they cost nothing.
    let mut buffer = GrowableBuffer::with_capacity((bytes * 8).max(1 << 36))?;
    let before = faults::made();
    let mut refusal = None;
    let of_buffer = grow(bytes, &piece, |piece| {
        refusal = buffer.extend_from_slice(piece).err().or(refusal);
        buffer.as_ptr().addr()
    });
    let calls = faults::made().since(&before).total();
    if let Some(refusal) = refusal {
        return Err(refusal.into());
    }
    let is_right =
        buffer.len() == bytes && buffer.chunks(piece.len()).all(|part| piece.starts_with(part));
    buffer.truncate(bytes / 2);
    let begin = Instant::now();
    let purged = buffer.purge()?;
    let purge_s = begin.elapsed().as_secs_f64();
    let holds = is_right && of_buffer.moves == 0 && calls == 0 && purged > 0;

    if json {
        let of = |growth: &Growth| {
            json!({ "seconds": growth.seconds, "moves": growth.moves, "moved_bytes": growth.moved_bytes,
                    "longest_ns": growth.longest_ns })
        };
        let report = json!({ "bytes": bytes, "vec": of(&of_vec), "buffer": of(&of_buffer), "calls": calls,
                             "purged_bytes": purged, "purge_seconds": purge_s, "holds": holds });
        println!("{report}");
    } else {
        println!("grown to {mib} MiB in pieces of {} bytes\n", piece.len());
        println!(
            "{:<18}{:>9}{:>8}{:>14}{:>16}",
            "", "seconds", "moves", "moved, MiB", "longest, us"
        );
        for (name, growth) in [("Vec", &of_vec), ("GrowableBuffer", &of_buffer)] {
            let Growth { seconds, moves, moved_bytes, longest_ns } = growth;
            let (moved, longest) = (moved_bytes >> 20, longest_ns / 1000);
            println!("{name:<18}{seconds:>9.3}{moves:>8}{moved:>14}{longest:>16}");
        }
        println!("\nsystem calls of the buffer while it grew: {calls}");
        println!(
            "half of it given back in one call: {} MiB in {:.1} ms",
            purged >> 20,
            purge_s * 1e3
        );
        println!(
            "{}",
            if holds { "it never moved" } else { "FAILED: it moved, or its contents are wrong" }
        );
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
