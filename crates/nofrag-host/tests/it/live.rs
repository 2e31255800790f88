//! The host on which the tests run. A test is skipped, with the reason printed, where the host shows no addresses.

use nofrag_host::source::{self, Root};
use nofrag_host::vmalloc::survey;

/// Checks that the lazy bytes of this host are counted apart, and are at most the limit plus one free in flight per CPU
/// (docs/sources/vmap.md#oracle-16).
///
/// A host that is busy freeing may exceed this bound until its drain worker has run, hence the retries.
#[test]
fn oracle_16_lazy_share_of_this_host() {
    let mut seen = Vec::new();
    for _ in 0..5 {
        let vmallocinfo = match source::read_vmallocinfo(&Root::Live) {
            Ok(text) => text,
            Err(why) => {
                eprintln!("skipped: {why}");
                return;
            }
        };
        let report = survey(&source::read_rest(&Root::Live, vmallocinfo)).unwrap();
        assert_eq!(report.host.malformed_lines, 0, "{:?}", report.malformed);
        assert_eq!(report.totals.live_bytes + report.lazy.bytes, report.totals.bytes);
        let Some(cpus) = report.host.cpus_online else {
            eprintln!("skipped: the number of online CPUs is not known");
            return;
        };
        if !report.lazy.is_over_limit(cpus) {
            return;
        }
        seen.push(report.lazy);
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    panic!("lazy areas stay above the limit: {seen:?}");
}
