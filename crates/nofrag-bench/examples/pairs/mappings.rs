//! An unmapping and a mapping of an address space.
//!
//! No two areas merge, so the index holds as many as are asked for. The space is filled from the top, then aged by two
//! pairs for each area.

use crate::{Outcome, Random, note_alias, timed};
use nofrag::mmap::{
    AddressSpace, AreaFlags, Attributes, Layout, MapFlags, Placement, Protection, SpaceConfig,
};
use nofrag::units::{PageCount, Vpn};
use std::error::Error;

/// Sizes are 1 to this many pages.
const LARGEST: u64 = 16;

struct Bench {
    space: AddressSpace,
    live: Vec<(Vpn, PageCount)>,
    random: Random,
}

impl Bench {
    fn new(placement: Placement, areas: usize) -> Result<Bench, Box<dyn Error>> {
        let config = SpaceConfig::new(Layout::X86_64, placement);
        let space = AddressSpace::new(SpaceConfig { map_limit: areas + 1, ..config });
        let mut bench = Bench { space, live: Vec::new(), random: Random(Random::SEED) };
        for _ in 0..areas {
            let area = bench.map()?;
            bench.live.push(area);
        }
        for _ in 0..2 * areas {
            bench.pair()?;
        }
        Ok(bench)
    }

    fn map(&mut self) -> Result<(Vpn, PageCount), Box<dyn Error>> {
        let pages = PageCount(1 + self.random.below(LARGEST));
        let attributes = Attributes::anonymous(Protection::READ_WRITE).with(AreaFlags::OPAQUE);
        Ok((self.space.map(pages, attributes, None, MapFlags::default())?, pages))
    }

    fn pair(&mut self) -> Outcome {
        let at = self.random.below(self.live.len() as u64) as usize;
        let (start, pages) = self.live[at];
        self.space.unmap(start, pages)?;
        self.live[at] = self.map()?;
        Ok(())
    }
}

pub(crate) fn run(placement: &str, areas: usize, pairs: u64) -> Outcome {
    let preset = Placement::preset(placement)?;
    note_alias(placement, preset.name);
    if areas == 0 {
        return Err("at least one area must be live".into());
    }
    let mut bench = Bench::new(preset.placement, areas)?;
    timed(pairs, || (0..pairs).try_for_each(|_| bench.pair()))
}
