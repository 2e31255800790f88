//! nofrag's own policy for page frames: what it keeps whole.

use nofrag::cpu::CpuId;
use nofrag::page::{
    FragmentationPolicy, MemoryMap, MinFree, NodeMap, PageAllocator, PageConfig, PageRequest,
    ZoneKind, ZoneMap,
};
use nofrag::units::{Nanos, Order, PageCount, Pfn};
use rand::RngExt;
use rand::SeedableRng;
use rand_pcg::Pcg64;

/// Frames of a machine of 256 MiB.
const FRAMES: u64 = 1 << 16;

/// Pageblocks without a page in use, in a hundred, and the pages that must move until free ones fill whole pageblocks.
#[derive(Clone, Copy, Debug)]
struct Survey {
    whole_percent: f64,
    moves: u64,
}

struct FragTest {
    pages: PageAllocator,
    cpu: CpuId,
    live: Vec<Pfn>,
    random: Pcg64,
}

impl FragTest {
    /// Returns a machine whose memory was filled with single pages, of which a random half was given back.
    fn half_full(policy: FragmentationPolicy, seed: u64) -> FragTest {
        let zones = vec![ZoneMap::new(ZoneKind::Normal, Pfn(0), PageCount(FRAMES))];
        let map = MemoryMap::new(vec![NodeMap { cpus: vec![0], zones }], &[]).unwrap();
        let cpu = map.cpus().by_rank(0).unwrap();
        let config = PageConfig { min_free: MinFree::Pages(0), ..PageConfig::new(map, policy) };
        let pages = PageAllocator::new(&config).unwrap();
        let mut test =
            FragTest { pages, cpu, live: Vec::new(), random: Pcg64::seed_from_u64(seed) };
        while test.take() {}
        assert!(test.live.len() as u64 > FRAMES * 99 / 100, "nearly all of memory can be had");
        test.give(test.live.len() / 2);
        test
    }

    fn take(&mut self) -> bool {
        let page = self.pages.alloc(Nanos(0), self.cpu, PageRequest::user(Order::ZERO)).ok();
        self.live.extend(page);
        page.is_some()
    }

    /// Gives `count` pages back, chosen at random.
    fn give(&mut self, count: usize) {
        for _ in 0..count {
            let page = self.live.swap_remove(self.random.random_range(0..self.live.len()));
            self.pages.free(self.cpu, page).unwrap();
        }
    }

    /// Replaces a tenth of all pages, chosen at random.
    fn step(&mut self) {
        let tenth = self.live.len() / 10;
        self.give(tenth);
        for _ in 0..tenth {
            assert!(self.take(), "half of memory is free");
        }
    }

    fn survey(&self) -> Survey {
        let mut used = vec![0_u64; (FRAMES / 512) as usize];
        for page in &self.live {
            used[(page.0 / 512) as usize] += 1;
        }
        used.sort_unstable();
        let whole = used.iter().filter(|&&used| used == 0).count();
        let could_be = ((FRAMES - self.live.len() as u64) / 512) as usize;
        Survey {
            whole_percent: whole as f64 / used.len() as f64 * 100.0,
            moves: used[..could_be].iter().sum(),
        }
    }
}

fn after_99_steps(preset: &str, seed: u64) -> Survey {
    let policy = FragmentationPolicy::preset(preset).unwrap().policy;
    let mut test = FragTest::half_full(policy, seed);
    for _ in 0..99 {
        test.step();
    }
    test.survey()
}

#[test]
fn after_the_frag_test_nearly_half_of_all_pageblocks_are_whole() {
    for seed in 1..=3 {
        let (ours, linux) = (after_99_steps("nofrag", seed), after_99_steps("linux-4.20", seed));
        assert!(ours.whole_percent >= 45.0, "{ours:?}");
        assert!(ours.moves * 20 <= linux.moves, "{ours:?}, Linux {linux:?}");
        assert!(linux.whole_percent <= 0.5, "{linux:?}");
    }
}
