//! Every call fails once, and all calls before it are undone.

use nofrag::check::Check;
use nofrag::vmap::MapRamError;
use nofrag_backing::faults::{self, Call, Fault};
use nofrag_backing::frames::{Frames, FramesConfig};
use nofrag_backing::mapped::{
    MapFramesError, Mapped, MappedConfig, MappedError, VmallocError, VmallocRequest,
};
use rustix::io::Errno;
use std::sync::Arc;

use super::{Read, owner, pages, read_in_child, scatter, shown_areas, space, stamp};
use crate::frames::MIB;

fn refused(call: Call, after: u32) -> faults::Armed {
    faults::inject([Fault { after, ..Fault::once(call, Errno::NOMEM) }])
}

#[test]
fn a_mapping_that_fails_half_way_is_undone_whole() {
    let mapped = space(8, 64);
    let here = owner(&mapped, 0);
    let blocks = scatter(&mapped, 20);
    for after in 0..20 {
        let armed = refused(Call::Mmap, after);
        let area = mapped.map_ram(here, &blocks);
        drop(armed);
        let error = MapFramesError::System(Errno::NOMEM);
        assert_eq!(area, Err(MapRamError::Install(error)), "after {after}");
        assert_eq!(shown_areas(&mapped).len(), 0, "after {after}");
        assert_eq!(mapped.mappings().0, 0);
        assert_eq!(mapped.check(), Ok(()), "after {after}");
    }
    let free = mapped.frames().stats().free;
    for after in 0..3 {
        let armed = refused(Call::Mmap, after);
        let area = mapped.vmalloc(here, &VmallocRequest::new(600 * 4096));
        drop(armed);
        assert_eq!(area, Err(VmallocError::Map(MapFramesError::System(Errno::NOMEM))));
        assert_eq!((mapped.frames().stats().free, mapped.check()), (free, Ok(())));
    }
}

/// `mmap` fails where the kernel allows no more mappings; then the mapped pages are at least out of reach.
#[test]
fn an_undo_that_fails_hides_what_it_cannot_take_away() {
    let mapped = space(8, 64);
    let here = owner(&mapped, 0);
    let blocks = scatter(&mapped, 8);
    let armed = faults::inject([Fault { after: 5, ..Fault::always(Call::Mmap, Errno::NOMEM) }]);
    let area = mapped.map_ram(here, &blocks);
    drop(armed);
    assert!(area.is_err());
    assert_eq!(mapped.check(), Ok(()));
    mapped.frames().free_bulk(here, &blocks).unwrap();
    assert_eq!(mapped.frames().stats().free, mapped.frames().len(), "nothing holds them");
    let start = nofrag::units::Vpn(mapped.span().start());
    assert_eq!(read_in_child(&mapped, start), Read::Signal(libc::SIGSEGV));
}

/// Neither `mmap` nor `mprotect` works: frames stay held, the addresses unused, until a flush succeeds.
#[test]
fn a_flush_that_fails_keeps_frames_and_addresses_apart() {
    let mapped = space(4, 64);
    let here = owner(&mapped, 0);
    let request = VmallocRequest::new(600 * 4096);
    let area = mapped.vmalloc(here, &request).unwrap();
    pages(&area).for_each(|vpn| stamp(&mapped, vpn, 0x44));
    let old = area.start();
    mapped.vfree(here, area).unwrap();
    let both = [Call::Mmap, Call::Mprotect].map(|call| Fault::always(call, Errno::NOMEM));
    let armed = faults::inject(both);
    mapped.settle();
    assert_eq!(read_in_child(&mapped, old), Read::Byte(0x44));
    assert_eq!(mapped.frames().stats().free.0, 1024 - 600, "what can be seen is not handed out");
    assert_eq!(mapped.check(), Ok(()));
    let again = mapped.vmalloc(here, &VmallocRequest::new(4096));
    let why = VmallocError::Map(MapFramesError::System(Errno::NOMEM));
    assert_eq!(again, Err(why), "addresses whose flush is owed are not used");
    drop(armed);
    let again = mapped.vmalloc(here, &VmallocRequest::new(4096)).expect("it is made up for");
    assert_eq!(mapped.frames().stats().free.0, 1023);
    assert_eq!((mapped.check(), mapped.counters().refused > 0), (Ok(()), true));
    mapped.vfree(here, again).unwrap();
}

#[test]
fn a_space_that_cannot_be_reserved_is_refused() {
    let frames = Arc::new(Frames::new(&FramesConfig::new(MIB)).unwrap());
    let config = MappedConfig::new(MIB);
    let armed = refused(Call::Mmap, 0);
    let none = Mapped::new(Arc::clone(&frames), &config).map(drop);
    drop(armed);
    assert_eq!(none, Err(MappedError::System(Errno::NOMEM)));
    let empty = Mapped::new(Arc::clone(&frames), &MappedConfig { bytes: 0, ..config }).map(drop);
    assert_eq!(empty, Err(MappedError::Empty));
    let huge = MappedConfig { bytes: u64::MAX, ..config };
    assert!(Mapped::new(Arc::clone(&frames), &huge).is_err());
    let armed = refused(Call::Munmap, 0);
    let mapped = Mapped::new(frames, &config).expect("slack that stays does no harm");
    drop(armed);
    assert_eq!(mapped.check(), Ok(()));
}

#[test]
fn advice_that_is_refused_changes_nothing() {
    let mapped = space(4, 64);
    let here = owner(&mapped, 0);
    let area = mapped.vmalloc(here, &VmallocRequest::new(MIB)).unwrap();
    let armed = refused(Call::Madvise, 0);
    assert_eq!(mapped.populate(&area), Err(MappedError::System(Errno::NOMEM)));
    drop(armed);
    assert_eq!(mapped.populate(&area), Ok(()));
    mapped.vfree(here, area).unwrap();
    assert_eq!(mapped.check(), Ok(()));
}

/// Mappings that are out of reach are still there: they count until they are gone.
#[test]
fn what_is_only_out_of_reach_is_still_counted() {
    let mapped = space(8, 64);
    let here = owner(&mapped, 0);
    let blocks = scatter(&mapped, 8);
    let area = mapped.map_ram(here, &blocks).unwrap();
    let start = area.start();
    mapped.unmap_ram(here, area).unwrap();
    let armed = faults::inject([Fault::always(Call::Mmap, Errno::NOMEM)]);
    mapped.settle();
    drop(armed);
    assert_eq!((shown_areas(&mapped).len(), mapped.mappings().0), (8, 9));
    assert_eq!(read_in_child(&mapped, start), Read::Signal(libc::SIGSEGV));
    mapped.frames().free_bulk(here, &blocks).unwrap();
    assert_eq!(mapped.frames().stats().free, mapped.frames().len(), "nothing holds them");
    assert_eq!(mapped.check(), Ok(()));
    mapped.settle();
    assert_eq!((shown_areas(&mapped).len(), mapped.mappings().0), (0, 0));
    assert_eq!(mapped.check(), Ok(()));
}
