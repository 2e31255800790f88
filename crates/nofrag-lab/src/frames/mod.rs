//! `frames`: the engine beside real kernels, frame by frame.

mod events;
mod follow;
mod lru;
mod state;

pub use follow::{Difference, Score, Tally};
pub use lru::{LruDifference, LruTally};

use nofrag::page::FragmentationPolicy;

/// Trial.
pub fn trial(before: &str, events: &str, after: &str, policy: FragmentationPolicy) -> Tally {
    let state = state::State::read(before).expect("state");
    let lines = events::read(events).expect("events");
    let heard = follow::Heard::default();
    let mut follower = follow::Follower::new(&state, policy, &heard).expect("restored");
    let mut lru = lru::Lru::new(&state, &policy).expect("lists");
    for line in &lines {
        follower.follow(line);
        lru.follow(line);
    }
    let lists = lru.finish(&state::State::read(after).expect("state")).expect("lists");
    println!("{:?}", LruTally { differences: Vec::new(), ..lists.clone() });
    println!(
        "lru {:?} {:#?}",
        lists.causes(),
        lists.differences.iter().take(4).collect::<Vec<_>>()
    );
    follower.finish(lines.len());
    let ours = follower.image();
    let theirs = state::State::read(after).expect("state").image().expect("image");
    for (a, b) in ours.zones.iter().zip(&theirs.zones) {
        let free =
            |z: &nofrag::page::ZoneImage| z.free.iter().map(|l| l.blocks.len()).sum::<usize>();
        println!(
            "zone: free equal {} ({} {}), cpus equal {}, blocks equal {} , boost {:?} {:?}, below {} {}, comp {:?} {:?}",
            a.free == b.free,
            free(a),
            free(b),
            a.cpus == b.cpus,
            a.pageblocks == b.pageblocks,
            a.boost,
            b.boost,
            a.below_high,
            b.below_high,
            a.compaction,
            b.compaction
        );
        for (x, y) in a.cpus.iter().zip(&b.cpus) {
            if x != y {
                println!(
                    "  cpu: batch {} {} min {} {} max {} {} high {} {} factor {} {} freed {} {} large {} {} lists {}",
                    x.batch,
                    y.batch,
                    x.high_min,
                    y.high_min,
                    x.high_max,
                    y.high_max,
                    x.high,
                    y.high,
                    x.factor,
                    y.factor,
                    x.freed,
                    y.freed,
                    x.freed_large,
                    y.freed_large,
                    x.lists == y.lists
                );
            }
        }
    }
    follower.tally
}
