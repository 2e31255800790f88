//! The texts of all errors, word for word.

use core::error::Error;

use nofrag::ranges::OutOfMetadata;

/// Verifies that each error has its text, whatever width is asked for, and names no source.
fn check_messages(rows: &[(&dyn Error, &str)]) {
    for (error, text) in rows {
        assert_eq!(error.to_string(), *text, "{error:?}");
        assert_eq!(format!("{error:200}"), *text, "{error:?}");
        assert!(error.source().is_none(), "{error:?}");
    }
}

#[test]
fn ranges() {
    use nofrag::check::Violation;
    use nofrag::ranges::{
        AddSpanError, AllocError, FreeError, RelocateError, Span, SpanError, TakeError,
    };
    let nothing = "no memory for the allocator's own records; nothing changed";
    let foreign = "a part of the range lies outside the space";
    let violation = Violation { law: "no two", at: 17, expected: 1, found: 0 };
    check_messages(&[
        (&violation, "broken law \"no two\" at 0x11: expected 1, found 0"),
        (&OutOfMetadata, nothing),
        (&SpanError::Empty, "the range is empty: its end must lie above its start"),
        (&SpanError::Inverted, "the range is inverted: its end lies below its start"),
        (&SpanError::Overflow, "the range ends beyond the 64-bit numbers"),
        (&AllocError::ZeroSize, "a request for zero numbers"),
        (&AllocError::AlignNotPowerOfTwo, "the alignment is not a power of two"),
        (
            &AllocError::FitNotIndexed,
            "this index design knows the lowest fit alone; take `Index::WideBlocks` for others",
        ),
        (
            &AllocError::Misfit { largest: 12, align: 8, within: Span::ALL },
            "no free range holds the request at a multiple of 8; the largest one has 12",
        ),
        (
            &AllocError::Misfit { largest: 12, align: 1, within: Span::new(4, 9).unwrap() },
            "no free range holds the request inside 0x4..0x9; the largest one has 12",
        ),
        (
            &AllocError::Misfit { largest: 12, align: 8, within: Span::new(4, 9).unwrap() },
            "no free range holds the request at a multiple of 8 inside 0x4..0x9; the largest one has 12",
        ),
        (
            &AllocError::Exhausted { largest: 12 },
            "no free range serves the request; the largest one has 12",
        ),
        (&AllocError::from(OutOfMetadata), nothing),
        (&TakeError::Foreign, foreign),
        (&TakeError::Taken, "a part of the range is allocated"),
        (&TakeError::from(OutOfMetadata), nothing),
        (&FreeError::Foreign, foreign),
        (&FreeError::NotAllocated, "a part of the range is free already"),
        (&FreeError::from(OutOfMetadata), nothing),
        (&AddSpanError::Overlaps, "a part of the span is in the space already"),
        (&AddSpanError::from(OutOfMetadata), nothing),
        (&RelocateError::NotAllocated, "the old range is not wholly allocated"),
        (&RelocateError::Foreign, "a part of a range lies outside the space"),
        (&RelocateError::NoPlace(AllocError::ZeroSize), "no new place: a request for zero numbers"),
        (&RelocateError::Taken, "a part of the wanted place is allocated"),
        (&RelocateError::OutOfMetadata, nothing),
    ]);
}

#[test]
fn areas_and_their_groups() {
    use nofrag::units::Vpn;
    use nofrag::vmap::{AreaError, FreeAreaError, GroupError, LoadError};
    let nothing = "no memory for the space's own records";
    let no_cpu = "the CPU is not one of the space's";
    check_messages(&[
        (&AreaError::ZeroSize, "a request for zero pages"),
        (&AreaError::AlignNotPowerOfTwo, "the alignment is not a power of two"),
        (&AreaError::OutsideSpace, "the wanted bounds lie outside the space"),
        (&AreaError::UnknownCpu, no_cpu),
        (&AreaError::CpuHeld, "a handle for this CPU is out: allocate through it"),
        (
            &AreaError::Exhausted { largest: 7 },
            "no place, even after reclaim; the largest has 7 pages",
        ),
        (&AreaError::WouldBlock, "no place without reclaim, which the request forbids"),
        (&AreaError::from(OutOfMetadata), nothing),
        (&FreeAreaError::Foreign, "the page lies outside the space"),
        (&FreeAreaError::UnknownCpu, no_cpu),
        (&FreeAreaError::NotAllocated, "no area covers the page"),
        (&FreeAreaError::IsRam, "the page was mapped by map_ram: free it by unmap_ram"),
        (&FreeAreaError::DoubleFree, "the area was freed already"),
        (
            &FreeAreaError::NotAStart { start: Vpn(64) },
            "the page lies inside the area that starts at 64",
        ),
        (&LoadError::Foreign, "a part of the area lies outside the space"),
        (&LoadError::UnknownCpu, no_cpu),
        (&LoadError::Taken, "a part of the area is taken, or it is too small"),
        (&LoadError::from(OutOfMetadata), nothing),
        (&GroupError::Mismatched, "no pieces, or not as many offsets as sizes"),
        (&GroupError::ZeroSize, "a piece has zero pages"),
        (&GroupError::Misaligned, "the alignment is no power of two, or an offset breaks it"),
        (&GroupError::Overlapping, "two pieces overlap"),
        (&GroupError::UnknownCpu, no_cpu),
        (&GroupError::Exhausted, "no base serves all pieces, even after reclaim"),
        (&GroupError::from(OutOfMetadata), nothing),
    ]);
}

#[test]
fn small_mappings_and_their_spaces() {
    use nofrag::units::{PageCount, Vpn};
    use nofrag::vmap::{
        AreaError, Busy, ConfigError, HandOverError, MapRamError, UnknownPreset, UnmapRamError,
    };
    type MapError = MapRamError<OutOfMetadata>;
    let nothing = "no memory for the space's own records";
    let no_cpu = "the CPU is not one of the space's";
    let refused = "the mapper refused: no memory for the allocator's own records; nothing changed";
    check_messages(&[
        (&MapError::ZeroSize, "a request for zero pages"),
        (&MapError::UnknownCpu, no_cpu),
        (&MapError::CpuHeld, "a handle for this CPU is out: map through it"),
        (
            &MapError::Exhausted { largest: 7 },
            "no place, even after reclaim; the largest has 7 pages",
        ),
        (&MapError::WouldBlock, "no place without reclaim, which the request forbids"),
        (&MapError::from(AreaError::OutOfMetadata), nothing),
        (&MapError::Install(OutOfMetadata), refused),
        (&UnmapRamError::Foreign, "a page lies outside the space"),
        (&UnmapRamError::UnknownCpu, no_cpu),
        (&UnmapRamError::NotMapped, "nothing that map_ram made covers the page"),
        (&UnmapRamError::DoubleUnmap, "the mapping was unmapped already"),
        (
            &UnmapRamError::WrongSize { pages: PageCount(9) },
            "the mapping that starts there has 9 pages",
        ),
        (
            &UnmapRamError::NotAStart { start: Vpn(64) },
            "the page lies inside the mapping that starts at 64",
        ),
        (&ConfigError::NoCpus, "a space needs at least one CPU"),
        (&ConfigError::TooManyCpus, "at most 2^14 CPUs"),
        (&ConfigError::SpanTooLarge, "at most 2^45 pages"),
        (&ConfigError::Contradiction("they differ"), "they differ"),
        (&ConfigError::from(OutOfMetadata), nothing),
        (&Busy::Held, "another handle for this CPU is out"),
        (&Busy::UnknownCpu, no_cpu),
        (&HandOverError::from(Busy::Held), "a handle for one of the CPUs is out"),
        (&HandOverError::from(Busy::UnknownCpu), no_cpu),
        (&HandOverError::from(OutOfMetadata), nothing),
        (&UnknownPreset, "no such preset: use `nofrag` or `linux-X.Y` from 3.19 on"),
    ]);
}

#[test]
fn address_spaces() {
    use nofrag::mmap::{
        FixedError, GrowError, MapError, MoveError, ProtectError, UnknownPlacement, UnmapError,
    };
    let nothing = "no memory for the allocator's own records; nothing changed";
    let outside = "a part of the range lies outside the space";
    let no_pages = "a range of zero pages was named";
    let limit = 3;
    let too_many = "there would be more areas than the limit of 3";
    check_messages(&[
        (&MapError::ZeroSize, "a mapping of zero pages was asked for"),
        (&MapError::AlignNotPowerOfTwo, "the alignment is not a power of two"),
        (&MapError::TooLong, "the space has fewer pages than were asked for"),
        (&MapError::NoSuchWindow, "the layout has no window of that kind"),
        (
            &MapError::NoPlace { largest: 5 },
            "no hole serves the request; the largest one has 5 pages",
        ),
        (&MapError::TooManyAreas { limit }, too_many),
        (&MapError::from(OutOfMetadata), nothing),
        (&FixedError::ZeroSize, no_pages),
        (&FixedError::Outside, outside),
        (&FixedError::Taken { area: 255 }, "the area at page 0xff is in the way"),
        (&FixedError::TooManyAreas { limit }, too_many),
        (&FixedError::from(OutOfMetadata), nothing),
        (&UnmapError::ZeroSize, no_pages),
        (&UnmapError::Outside, outside),
        (&UnmapError::TooManyAreas { limit }, too_many),
        (&UnmapError::from(OutOfMetadata), nothing),
        (&ProtectError::ZeroSize, no_pages),
        (&ProtectError::Outside, outside),
        (&ProtectError::NotMapped { hole: 255 }, "page 0xff is not mapped"),
        (&ProtectError::TooManyAreas { limit }, too_many),
        (&ProtectError::from(OutOfMetadata), nothing),
        (&GrowError::NoStack, "no area that grows down lies above the page"),
        (&GrowError::GuardGap { neighbour: 255 }, "the area at page 0xff is within the guard gap"),
        (&GrowError::Outside, outside),
        (&GrowError::from(OutOfMetadata), nothing),
        (&MoveError::NotOneArea, "a range of the move is not wholly mapped as one area"),
        (&MoveError::NotExpandable, "areas of this kind never grow"),
        (&MoveError::Outside, outside),
        (&MoveError::ZeroSize, "a move to zero pages was asked for"),
        (&MoveError::Overlap, "the old and the new range overlap"),
        (&MoveError::Taken { area: 255 }, "the area at page 0xff is in the way"),
        (
            &MoveError::NoPlace(MapError::TooLong),
            "no new place: the space has fewer pages than were asked for",
        ),
        (&MoveError::TooManyAreas { limit }, too_many),
        (&MoveError::from(OutOfMetadata), nothing),
        (
            &UnknownPlacement,
            "no such placement: use `nofrag`, `linux-X.Y` from 2.4 on, or a named one",
        ),
    ]);
}

#[test]
fn memory_maps_and_blocks() {
    use nofrag::page::{
        AllocAtError, BlockTypeError, FreeBulkError, FreeError, MapError, NodeId, PageConfigError,
        ZoneKind,
    };
    use nofrag::units::Pfn;
    let freed = FreeBulkError { freed: 2, error: FreeError::DoubleFree(Pfn(8)) };
    check_messages(&[
        (&MapError::NodeCount(65), "65 nodes; there must be 1 to 64"),
        (&MapError::Distances, "distances must be square, 10 to the same node, and nowhere less"),
        (&MapError::ZoneTwice(NodeId(1), ZoneKind::Normal), "node 1 has two zones Normal"),
        (&MapError::Overlap(Pfn(8)), "frame 8 belongs to two ranges"),
        (&MapError::OutsideZone(Pfn(8)), "frame 8 is outside the zone that it is cut from"),
        (&MapError::CpuTwice(3), "CPU 3 belongs to two nodes"),
        (&MapError::TooLarge, "more frames or CPUs than can be numbered"),
        (&MapError::OutOfMetadata, "no memory for the map"),
        (&PageConfigError::Map(MapError::CpuTwice(3)), "CPU 3 belongs to two nodes"),
        (
            &PageConfigError::WatermarkScaleFactor(0),
            "watermark_scale_factor is 0; it must be 1 to 3000",
        ),
        (&PageConfigError::NoBoost, "the policy does not boost watermarks"),
        (&PageConfigError::OutOfMetadata, "no memory for the metadata of frames"),
        (&FreeError::Unknown(Pfn(8)), "frame 8 is not managed"),
        (&FreeError::DoubleFree(Pfn(8)), "frame 8 is free already"),
        (&FreeError::NotAHead { head: Pfn(8) }, "the frame's block begins at frame 8"),
        (&freed, "block 2 of the list: frame 8 is free already"),
        (&AllocAtError::Unknown(Pfn(8)), "frame 8 is not managed"),
        (&AllocAtError::Misaligned(Pfn(8)), "no block of this order begins at 8"),
        (&AllocAtError::InUse(Pfn(8)), "the block at frame 8 is not all free"),
        (&BlockTypeError::Unknown(Pfn(8)), "frame 8 is not managed"),
        (&BlockTypeError::Straddles(Pfn(8)), "the pageblock of frame 8 is shared"),
    ]);
}

#[test]
fn contents_and_images() {
    use nofrag::page::{
        ContentsError, FragmentationPolicy, ImageError, Migratetype, PageConfigError, UnknownPolicy,
    };
    use nofrag::units::{Order, Pfn};
    let presets = FragmentationPolicy::PRESETS.iter().map(|preset| format!(" {preset}"));
    let unknown =
        "there is no such preset; the presets are".to_owned() + &presets.collect::<String>();
    check_messages(&[
        (&UnknownPolicy, &unknown),
        (&ContentsError::from(PageConfigError::NoBoost), "the policy does not boost watermarks"),
        (&ContentsError::Unknown(Pfn(8)), "the block at frame 8 is not managed memory of one zone"),
        (&ContentsError::Misaligned(Pfn(8)), "no block of this order begins at frame 8"),
        (
            &ContentsError::OutOfOrder(Pfn(8)),
            "the block at frame 8 does not lie behind the one named before it",
        ),
        (&ContentsError::Straddles(Pfn(8)), "the pageblock of frame 8 is shared"),
        (&ContentsError::NotFree(Pfn(8)), "no free block begins at frame 8"),
        (
            &ContentsError::StrictLists(Pfn(8)),
            "the policy lists the block at frame 8 under its pageblock's type",
        ),
        (&ImageError::from(PageConfigError::NoBoost), "the policy does not boost watermarks"),
        (&ImageError::Shape, "the zones or CPUs are not those of the memory map"),
        (&ImageError::Outside(Pfn(8)), "frame 8 is outside its zone's memory"),
        (&ImageError::Misaligned(Pfn(8)), "no block of this order begins at frame 8"),
        (&ImageError::Overlap(Pfn(8)), "two blocks share frame 8"),
        (
            &ImageError::NoSuchList(Order::PAGEBLOCK, Migratetype::Cma),
            "CPUs keep no CMA blocks of order 9",
        ),
    ]);
}
