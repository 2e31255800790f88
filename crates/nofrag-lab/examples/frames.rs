use nofrag::page::FragmentationPolicy;
fn main() {
    for dir in std::env::args().skip(1) {
        let read = |name: &str| {
            let out = std::process::Command::new("zstdcat")
                .arg(format!("{dir}/{name}"))
                .output()
                .unwrap();
            String::from_utf8(out.stdout).unwrap()
        };
        let policy = if dir.contains("6.12") {
            FragmentationPolicy::LINUX_6_12
        } else {
            FragmentationPolicy::LINUX_6_1
        };
        println!("== {dir}");
        let t = nofrag_lab::frames::trial(
            &read("state-before.json.zst"),
            &read("events.txt.zst"),
            &read("state-after.json.zst"),
            policy,
        );
        println!("frames {:?}", t.frames.iter().map(|s| (s.same, s.of)).collect::<Vec<_>>());
        println!(
            "zones {:?} bulk {:?} refills {:?} drains {:?} fallbacks {:?} unfollowed {}",
            t.zones,
            t.bulk,
            t.refills,
            t.drains,
            t.fallbacks,
            t.unfollowed.len()
        );
        println!(
            "decisions {:?} marks {:?} positions {:?} runs {:?} moves {:?} ends {:?}",
            t.decisions, t.marks, t.positions, t.runs, t.run_moves, t.run_ends
        );
        for u in t.unfollowed.iter().take(5) {
            println!("  unfollowed {u:?}");
        }
        for d in t
            .differences
            .iter()
            .filter(|d| std::env::var("ONLY").map_or(true, |o| d.what == o))
            .take(std::env::var("N").map_or(6, |n| n.parse().unwrap()))
        {
            let cut = |s: &str| s.chars().take(900).collect::<String>();
            println!(
                "  {} {}: kernel {} engine {}",
                d.line,
                d.what,
                cut(&d.kernel),
                cut(&d.engine)
            );
        }
    }
}
