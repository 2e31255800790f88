//! Moves runs of memory while other threads write to them, with every way of keeping the writers away and without any.
//!
//! ```text
//! cargo run --release -p nofrag-backing --example live_moves [MOVES]
//! ```
//!
//! First every way in turns, with runs of 1, 16, 64 and 512 pages; then `MOVES` (a million) with runs of 64 pages, by
//! pins and by userfaultfd. The writes that are lost without protection show that the others had something to lose.

use std::error::Error;
use std::time::Duration;

use nofrag_backing::moving::measure::{self, Plan, Row, Way};
use nofrag_backing::moving::userfaultfd::{Features, Userfaultfd};

fn main() -> Result<(), Box<dyn Error>> {
    let moves = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    let without = Userfaultfd::open(Features::WRITE_PROTECT_SHARED).err();
    if let Some(why) = &without {
        println!("without userfaultfd: {why}");
    }
    let allowed = |way: &Way| without.is_none() || !way.needs_userfaultfd();
    let plan = |ways: &[Way], pages, moves, turn, pause| Plan {
        ways: ways.iter().copied().filter(allowed).collect(),
        pages,
        moves,
        writers: 1,
        turn,
        pause: Duration::from_micros(pause),
    };
    println!(
        "{:22} {:>5} {:>8} {:>10} {:>8} {:>8} {:>9} {:>9}",
        "way", "pages", "moves", "writes", "lost", "ns/move", "p99", "x control"
    );
    for (pages, moves) in [(1, 20_000), (16, 20_000), (64, 20_000), (512, 2000)] {
        print(&measure::live_moves(&plan(&Way::ALL, pages, moves, 200, 20))?);
    }
    for way in [Way::Pins, Way::WriteProtect] {
        print(&measure::live_moves(&plan(&[way], 64, moves, 10_000, 0))?);
    }
    Ok(())
}

fn print(rows: &[Row]) {
    let control = rows.iter().find(|row| row.way == Way::Unprotected);
    for row in rows {
        let Row { way, pages, moves, writes, lost, cost, .. } = row;
        let ratio = control.map(|control| cost.median_ns as f64 / control.cost.median_ns as f64);
        let ratio = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        println!(
            "{:22} {pages:>5} {moves:>8} {writes:>10} {lost:>8} {:>8} {:>9} {ratio:>9}",
            way.name(),
            cost.median_ns,
            cost.p99_ns
        );
    }
}
