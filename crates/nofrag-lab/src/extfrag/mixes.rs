//! Load beside the page cache: the mixes of the count model (docs/sources/pages.md#count-model-settings), and two that
//! the document says would differ (pages.md#fault-classes).
//!
//! They are stated for 4 GiB. Burst, transients and writeback grow with memory ([`Mix::scaled`]), the first two as the
//! count model's own settings for 8 GiB do. The count model's reserves are left out: the machine has the one that
//! khugepaged sets. Writeback and the orders of slabs are those of Linux 6.1 in guests, which the count model lacks.

use crate::world::load::Mix;

/// Orders of slab caches in Linux 6.1 (pages.md#guest-slab), in the order of `SlabKind::ALL`.
pub(super) const SLAB_ORDERS: [u8; 6] = [2, 0, 1, 2, 0, 0];

const CALIBRATED: Mix = Mix {
    name: "calibrated",
    dma32: 375,
    burst: 4096,
    transients: 60_000,
    transient_chance: 1000,
    // 1,750 for each GiB, as the table of the world has it; a test compares them.
    writeback: 7000,
    extra_slab: 0,
    slab_orders: SLAB_ORDERS,
};

/// Returns every mix: the calibrated one, S1 to S4, then one that allocates many slab objects besides, and one whose
/// slab caches use large blocks.
pub(super) const fn mixes() -> &'static [Mix] {
    const MIXES: &[Mix] = &[
        CALIBRATED,
        Mix { name: "S1", burst: 24, ..CALIBRATED },
        Mix { name: "S2", transients: 20_000, transient_chance: 250, ..CALIBRATED },
        Mix { name: "S3", burst: 32_768, transient_chance: 500, ..CALIBRATED },
        Mix { name: "S4", dma32: 60, ..CALIBRATED },
        Mix { name: "slab-intensive", extra_slab: 3000, ..CALIBRATED },
        Mix { name: "high-order-slab", slab_orders: [3, 1, 2, 3, 1, 1], ..CALIBRATED },
    ];
    MIXES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::costs::World;
    use crate::world::load::STATED_FOR_GIB;

    #[test]
    fn writeback_is_that_of_the_table() {
        assert_eq!(
            CALIBRATED.writeback as u64,
            STATED_FOR_GIB * World::built_in().writeback_blocks
        );
    }

    #[test]
    fn eight_gib_are_scaled_as_the_count_model_has_it() {
        let scaled = CALIBRATED.scaled(8 << 18);
        assert_eq!((scaled.burst, scaled.transients), (8192, 120_000));
        assert_eq!(CALIBRATED.scaled(4 << 18), CALIBRATED);
    }
}
