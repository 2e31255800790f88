//! Address spaces under test, as large as x86-64's and at the same place.

use nofrag::cpu::CpuSet;
use nofrag::ranges::Span;
use nofrag::vmap::{VmapConfig, VmapPolicy};

/// Where x86-64 begins its vmalloc range with four-level page tables, as a page number.
const VMALLOC_START_PAGE: u64 = 0xffff_c900_0000_0000 >> 12;

/// 32 TiB: the size of that range.
pub(crate) const VMALLOC_PAGES: u64 = 1 << 33;

/// A space of `pages` pages for `cpus` emulated CPUs; an error says what is wrong.
pub(crate) fn config(policy: VmapPolicy, pages: u64, cpus: usize) -> Result<VmapConfig, String> {
    let span = Span::sized(VMALLOC_START_PAGE, pages).map_err(|error| error.to_string())?;
    let cpus = CpuSet::first(cpus as u32).map_err(|error| error.to_string())?;
    Ok(VmapConfig { span, cpus, policy })
}
