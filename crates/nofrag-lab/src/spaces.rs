//! Address spaces under test, of the size of x86-64's and at its place.

use nofrag::cpu::CpuSet;
use nofrag::ranges::Span;
use nofrag::vmap::{VmapConfig, VmapPolicy};

/// Start of x86-64's vmalloc range with four-level page tables, as a page number.
const VMALLOC_START_PAGE: u64 = 0xffff_c900_0000_0000 >> 12;

/// Pages of x86-64's vmalloc range: 32 TiB.
pub(crate) const VMALLOC_PAGES: u64 = 1 << 33;

/// Returns a space of `pages` pages for `cpus` emulated CPUs; an error names the fault.
pub(crate) fn config(policy: VmapPolicy, pages: u64, cpus: usize) -> Result<VmapConfig, String> {
    let span = Span::sized(VMALLOC_START_PAGE, pages).map_err(|error| error.to_string())?;
    let cpus = CpuSet::first(cpus as u32).map_err(|error| error.to_string())?;
    Ok(VmapConfig { span, cpus, policy })
}
