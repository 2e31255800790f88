//! The programs (docs/sources/mmap.md#programs), as sequences of maps and unmaps.

use nofrag::units::Vpn;

use super::process::{Failure, MIB, PAGE, Process};

/// The generator of the published simulations: xorshift of 64 bits.
#[derive(Clone, Debug)]
pub(super) struct Xorshift(u64);

impl Xorshift {
    /// Starts in the state of the simulations, or in another one if the seed is not zero.
    pub(super) fn new(seed: u64) -> Xorshift {
        const PUBLISHED: u64 = 88_172_645_463_325_252;
        // Any state but zero will do; multiplying by an odd number and setting a bit keeps seeds apart.
        let other = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Xorshift(if seed == 0 { PUBLISHED } else { other })
    }

    #[inline]
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

pub(super) const SLOTS: usize = 600;

/// Number of iterations between the mapping and the unmapping of a slot.
const LIFETIME: usize = 540;

/// Pages that live at once in leakme, on average; the choice of the 540 live ones among the 600 slots moves them a
/// little.
pub(super) const LEAKME_LIVE: u64 = LIFETIME as u64 * eight_slots() / 8;

const fn eight_slots() -> u64 {
    let (mut pages, mut slot) = (0, 0);
    while slot < 8 {
        pages += leakme_pages(slot);
        slot += 1;
    }
    pages
}

/// Returns the pages of a slot: its number modulo eight in MiB, or 9,500,000 bytes.
pub(super) const fn leakme_pages(slot: usize) -> u64 {
    match slot % 8 {
        0 => 9_500_000_u64.div_ceil(4096),
        mib => mib as u64 * MIB,
    }
}

/// Runs leakme: 600 slots in turn, each mapped for 540 iterations. Returns the iteration that found no place, if one
/// did; `watch` sees the process after each one.
pub(super) fn leakme(
    process: &mut Process,
    iterations: u64,
    mut watch: impl FnMut(u64, &Process),
) -> Result<Option<u64>, Failure> {
    let mut slots: [Option<Vpn>; SLOTS] = [None; SLOTS];
    let mut slot = 0;
    for iteration in 0..iterations {
        let old = (slot + SLOTS - LIFETIME) % SLOTS;
        if let Some(start) = slots[old].take() {
            process.unmap(start, leakme_pages(old))?;
        }
        slots[slot] = process.map(leakme_pages(slot))?;
        if slots[slot].is_none() {
            return Ok(Some(iteration));
        }
        watch(iteration, process);
        slot = (slot + 1) % SLOTS;
    }
    Ok(None)
}

/// Maps pages that must find a place.
fn must_map(process: &mut Process, pages: u64) -> Result<Vpn, Failure> {
    process.map(pages)?.ok_or(Failure::NoPlace)
}

/// Runs leakme4: 128 maps of 1 MiB, every other one replaced, half of them by one page, and 64 more.
pub(super) fn leakme4(process: &mut Process) -> Result<(), Failure> {
    const MAPS: usize = 128;
    let mut maps = [Vpn(0); MAPS];
    for (i, map) in maps.iter_mut().enumerate() {
        *map = must_map(process, MIB)?;
        if i == 0 {
            // Standard output allocates a page on its first use, and keeps it.
            must_map(process, 1)?;
        }
    }
    for map in maps.iter().step_by(2) {
        process.unmap(*map, MIB)?;
    }
    for i in (0..MAPS).step_by(2) {
        must_map(process, if i & 4 == 0 { 1 } else { MIB })?;
    }
    for _ in 0..64 {
        must_map(process, MIB)?;
    }
    Ok(())
}

/// Operations between the mapping of five regions of one unit and the last map, which takes one of their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Between {
    /// 4, 2 and 3 are unmapped.
    Frees423,
    /// 2 is unmapped, two units are mapped, 3 is unmapped.
    LargerRequest,
}

/// Returns the number of the region, 1 to 5 in the order of mapping, that a map of one unit takes; zero for none of
/// them.
pub(super) fn five_regions(process: &mut Process, between: Between) -> Result<u64, Failure> {
    let unit = MIB;
    let mut regions = [Vpn(0); 5];
    for region in &mut regions {
        *region = must_map(process, unit)?;
    }
    let free = |process: &mut Process, region: usize| process.unmap(regions[region - 1], unit);
    match between {
        Between::Frees423 => {
            for region in [4, 2, 3] {
                free(process, region)?;
            }
        }
        Between::LargerRequest => {
            free(process, 2)?;
            must_map(process, 2 * unit)?;
            free(process, 3)?;
        }
    }
    let taken = must_map(process, unit)?;
    let of = regions.iter().position(|region| *region == taken);
    Ok(of.map_or(0, |at| at as u64 + 1))
}

/// Runs test_str02: stacks of 8 MiB, each with a guard on its lowest page; none is given back.
pub(super) fn stacks(process: &mut Process, threads: u64) -> Result<(), Failure> {
    for _ in 0..threads {
        let stack = must_map(process, 8 * MIB)?;
        process.guard(stack)?;
    }
    Ok(())
}

/// Replaces random areas of one to four pages that never merge (docs/sources/mmap.md#unmergeable): first three times as
/// many as there are, to age them, and then `measured` more, which alone are counted.
pub(super) fn replacements(
    process: &mut Process,
    areas: u64,
    measured: u64,
    seed: u64,
) -> Result<(), Failure> {
    let mut random = Xorshift::new(seed);
    let mut live = Vec::new();
    for _ in 0..areas {
        let pages = 1 + random.below(4);
        live.push((must_map(process, pages)?, pages));
    }
    for replacement in 0..3 * areas + measured {
        if replacement == 3 * areas {
            process.forget();
        }
        let i = random.below(areas) as usize;
        let (start, pages) = live[i];
        process.unmap(start, pages)?;
        let pages = 1 + random.below(4);
        live[i] = (must_map(process, pages)?, pages);
    }
    Ok(())
}

/// Sizes of a random mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    /// 80 % up to 256 KiB, 17 % up to 4 MiB, 3 % of 16 MiB.
    ThreeKinds,
    /// Powers of two of 4 KiB to 8 MiB.
    PowersOfTwo,
    /// 4 KiB to 2 MiB.
    Uniform,
}

impl Mix {
    fn draw(self, random: &mut Xorshift) -> u64 {
        match self {
            Mix::ThreeKinds => match random.below(100) {
                0..80 => 1 + random.below(64),
                80..97 => MIB * (1 + random.below(4)),
                _ => 16 * MIB,
            },
            Mix::PowersOfTwo => 1 << random.below(12),
            Mix::Uniform => 1 + random.below(512),
        }
    }
}

/// Runs a random mix that keeps 70 % of the window live (docs/sources/mmap.md#mixes). Requests without a place are
/// counted and dropped.
pub(super) fn mix(
    process: &mut Process,
    mix: Mix,
    operations: u64,
    seed: u64,
) -> Result<(), Failure> {
    let mut random = Xorshift::new(seed);
    // The target of the simulations was in bytes, rounded down at a hundredth.
    let target = process.window().len() * PAGE / 100 * 70;
    let nearly = target / 100 * 99;
    let bytes = |pages: u64| pages * PAGE;
    let mut live: Vec<(Vpn, u64)> = Vec::new();
    let mut sum = 0;
    while sum < target {
        let pages = mix.draw(&mut random);
        let Some(start) = process.map(pages)? else { break };
        live.push((start, pages));
        sum += bytes(pages);
    }
    for _ in 0..operations {
        if live.is_empty() {
            return Err(Failure::NoPlace);
        }
        let i = random.below(live.len() as u64) as usize;
        let (start, pages) = live[i];
        process.unmap(start, pages)?;
        sum -= bytes(pages);
        let pages = mix.draw(&mut random);
        let Some(start) = process.map(pages)? else {
            live.swap_remove(i);
            continue;
        };
        live[i] = (start, pages);
        sum += bytes(pages);
        while sum > target {
            let j = random.below(live.len() as u64) as usize;
            let (start, pages) = live.swap_remove(j);
            process.unmap(start, pages)?;
            sum -= bytes(pages);
        }
        while sum < nearly {
            let pages = mix.draw(&mut random);
            let Some(start) = process.map(pages)? else { break };
            live.push((start, pages));
            sum += bytes(pages);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leakme_asks_for_what_was_published() {
        let multiples = (0..SLOTS).filter(|slot| leakme_pages(*slot).is_multiple_of(2 * MIB));
        assert_eq!(multiples.count(), 225, "37.5 % of 600 slots");
        assert_eq!(leakme_pages(0), 2320);
        let live = LEAKME_LIVE as f64 / MIB as f64;
        assert!((live - 2501.7).abs() < 0.05, "{live}");
    }

    #[test]
    fn the_generator_draws_what_xorshift_does() {
        let mut random = Xorshift::new(0);
        let first = [(); 2].map(|()| random.below(u64::MAX));
        assert_eq!(first, [8_748_534_153_485_358_512, 3_040_900_993_826_735_515]);
    }
}
