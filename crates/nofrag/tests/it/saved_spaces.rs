//! Spaces that are saved, and restored from what strangers may have written.

use nofrag::check::Check;
use nofrag::ranges::{
    AlignClasses, AlignRule, Config, Counters, Fit, Index, RangeAllocator, Request, Span,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

fn holes(allocator: &RangeAllocator) -> Vec<Span> {
    allocator.iter_free().collect()
}

/// Saves a used space of each design and restores it: the same holes, and the same places for the same requests.
#[test]
fn a_restored_space_goes_on_as_the_saved_one() {
    let align_classes = AlignClasses::new(&[3, 9]).unwrap();
    for (index, size_index) in [
        (Index::WideBlocks, true),
        (Index::WideBlocks, false),
        (Index::AugmentedTree(AlignRule::Unpadded), false),
    ] {
        let mut space = RangeAllocator::new(Config { index, align_classes, size_index });
        for part in 0..3 {
            space.add_span(Span::sized(part << 40, 1 << 20).unwrap()).unwrap();
        }
        let mut random = Pcg64Mcg::seed_from_u64(3);
        let mut live = Vec::new();
        for _ in 0..2_000 {
            let size = random.random_range(1..2_000);
            live.extend(space.alloc(&Request::new(size)));
            if live.len() > 300 {
                let at = random.random_range(0..live.len());
                space.free(live.swap_remove(at)).unwrap();
            }
        }
        let text = serde_json::to_string(&space).unwrap();
        let mut restored: RangeAllocator = serde_json::from_str(&text).unwrap();
        assert_eq!((restored.stats(), holes(&restored)), (space.stats(), holes(&space)));
        assert_eq!(*restored.counters(), Counters::default());
        assert_eq!(serde_json::to_string(&restored).unwrap(), text);
        restored.check().unwrap();
        for _ in 0..200 {
            let request = Request::new(random.random_range(1..2_000)).align(8);
            assert_eq!(restored.alloc(&request), space.alloc(&request), "{index:?}");
        }
        for span in live {
            restored.free(span).unwrap();
        }
        let best = restored.alloc(&Request::new(9).fit(Fit::Best));
        assert_eq!(best.is_ok(), index == Index::WideBlocks);
    }
}

#[test]
fn a_space_has_a_readable_form() {
    let mut space = RangeAllocator::over(Span::new(0, 100).unwrap()).unwrap();
    space.alloc_at(Span::new(10, 20).unwrap()).unwrap();
    let text = serde_json::to_string(&space).unwrap();
    let config = r#"{"index":"WideBlocks","align_classes":[],"size_index":false}"#;
    assert_eq!(
        text,
        format!(r#"{{"config":{config},"space":[[0,100]],"free":[[0,10],[20,100]]}}"#)
    );
    let request = Request::new(5).align(4).within(Span::new(3, 9).unwrap());
    let text = serde_json::to_string(&request).unwrap();
    assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
}

/// Input that makes no sense is an error of the reader, and what the allocator says.
#[test]
fn nonsense_is_refused() {
    let refused = |space: &str, free: &str, classes: &str| {
        let config =
            format!(r#"{{"index":"WideBlocks","align_classes":{classes},"size_index":true}}"#);
        let text = format!(r#"{{"config":{config},"space":{space},"free":{free}}}"#);
        serde_json::from_str::<RangeAllocator>(&text).map_err(|why| why.to_string()).err()
    };
    assert_eq!(refused("[[0,9]]", "[[1,3],[7,9]]", "[1,2]"), None);
    assert_eq!(refused("[[0,9],[9,12]]", "[[8,10]]", "[]"), None, "spans that touch are one");
    for (space, free, classes, why) in [
        ("[[0,9],[8,12]]", "[]", "[]", "a part of the span is in the space already"),
        ("[[0,9]]", "[[8,10]]", "[]", "a part of the range lies outside the space"),
        ("[[0,9]]", "[[1,5],[4,6]]", "[]", "a part of the range is free already"),
        ("[[9,9]]", "[]", "[]", "the range is empty"),
        ("[[9,8]]", "[]", "[]", "the range is inverted"),
        ("[[-1,8]]", "[]", "[]", "invalid value"),
        ("[[0,18446744073709551616]]", "[]", "[]", "invalid"),
        ("[]", "[]", "[2,1]", "at most four ascending exponents"),
        ("[]", "[]", "[1,2,3,4,5]", "at most four ascending exponents"),
    ] {
        let said = refused(space, free, classes).expect("it makes no sense");
        assert!(said.contains(why), "{said} instead of {why}");
    }
}
