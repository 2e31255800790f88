//! Slab caches: small objects that share pages.
//!
//! A cache cuts blocks of one order into objects of one size, as Linux 6.1 with XFS does
//! (docs/sources/pages.md#guest-slab). Slabs with room form a stack; the top one gives the next object. A slab that has
//! lost all its objects gives its block back at once. Kernels also keep slabs for single CPUs, and some empty ones;
//! here there are none.

use nofrag::page::Migratetype;
use nofrag::units::Order;

use super::contents::FrameNumber;

const NONE: u32 = u32::MAX;
const PAGE_BYTES: u64 = 4096;

/// The kind of objects in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum SlabKind {
    /// Inodes of the file system: 16 in 16 KiB.
    Inode,
    /// Directory entries: 21 in a page.
    Dentry,
    /// Nodes of the trees that find pages of files: 14 in 8 KiB.
    RadixNode,
    /// The file system's own object for a file: 16 in 16 KiB (`kmalloc-1k`).
    Private,
    /// The journal's object for an inode: 20 in a page.
    LogItem,
    /// Open files: 16 in a page.
    Handle,
}

impl SlabKind {
    pub(crate) const ALL: [SlabKind; 6] = [
        SlabKind::Inode,
        SlabKind::Dentry,
        SlabKind::RadixNode,
        SlabKind::Private,
        SlabKind::LogItem,
        SlabKind::Handle,
    ];

    /// Returns the bytes of an object in Linux 6.1 with XFS (pages.md#guest-slab); those of a handle are unconfirmed.
    const fn object_bytes(self) -> u64 {
        match self {
            SlabKind::Inode | SlabKind::Private => 1024,
            SlabKind::Dentry => 192,
            SlabKind::RadixNode => 584,
            SlabKind::LogItem => 200,
            SlabKind::Handle => 256,
        }
    }

    /// Returns the number of objects in a slab of `order`.
    const fn objects(self, order: Order) -> u32 {
        ((PAGE_BYTES << order.get()) / self.object_bytes()) as u32
    }

    pub(crate) const fn migratetype(self) -> Migratetype {
        match self {
            SlabKind::Private | SlabKind::LogItem | SlabKind::Handle => Migratetype::Unmovable,
            _ => Migratetype::Reclaimable,
        }
    }
}

/// The number of a slab; objects are known by their slab alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlabId(pub(crate) u32);

#[derive(Clone, Copy, Debug)]
struct Slab {
    frame: FrameNumber,
    kind: SlabKind,
    used: u32,
    /// Neighbours in the stack of slabs with room.
    above: u32,
    below: u32,
}

#[derive(Clone, Copy, Debug)]
struct Cache {
    order: Order,
    /// The top of the stack.
    top: u32,
    objects: u32,
}

#[derive(Debug)]
pub(crate) struct Slabs {
    caches: [Cache; SlabKind::ALL.len()],
    slabs: Vec<Slab>,
    /// Free numbers, of slabs that are gone.
    unused: Vec<u32>,
}

impl Slabs {
    /// Creates caches whose slabs have `orders`, in the order of [`SlabKind::ALL`].
    pub(crate) fn new(orders: [u8; SlabKind::ALL.len()]) -> Slabs {
        let cache = |kind: SlabKind| {
            let order = Order::new(orders[kind as usize]).expect("mixes name orders up to 10");
            Cache { order, top: NONE, objects: kind.objects(order) }
        };
        Slabs { caches: SlabKind::ALL.map(cache), slabs: Vec::new(), unused: Vec::new() }
    }

    pub(crate) fn order(&self, kind: SlabKind) -> Order {
        self.caches[kind as usize].order
    }

    /// Takes an object of a slab that has room; `None` if a new slab is needed.
    pub(crate) fn take(&mut self, kind: SlabKind) -> Option<SlabId> {
        let top = self.caches[kind as usize].top;
        if top == NONE {
            return None;
        }
        self.slabs[top as usize].used += 1;
        if self.slabs[top as usize].used == self.caches[kind as usize].objects {
            self.unstack(top);
        }
        Some(SlabId(top))
    }

    /// Adds a new slab with one object in use, which is returned.
    pub(crate) fn add(&mut self, kind: SlabKind, frame: FrameNumber) -> SlabId {
        let slab = Slab { frame, kind, used: 1, above: NONE, below: NONE };
        let id = if let Some(id) = self.unused.pop() {
            self.slabs[id as usize] = slab;
            id
        } else {
            self.slabs.push(slab);
            (self.slabs.len() - 1) as u32
        };
        if self.caches[kind as usize].objects > 1 {
            self.stack(id);
        }
        SlabId(id)
    }

    /// Takes an object back; returns the block of its slab if that is to be freed.
    pub(crate) fn give_back(&mut self, SlabId(id): SlabId) -> Option<(FrameNumber, Order)> {
        let slab = &mut self.slabs[id as usize];
        assert!(slab.used > 0, "an object is given back once");
        slab.used -= 1;
        let (left, objects) = (slab.used, self.caches[slab.kind as usize].objects);
        if left + 1 == objects && left > 0 {
            self.stack(id);
        }
        if left > 0 {
            return None;
        }
        if objects > 1 {
            self.unstack(id);
        }
        self.unused.push(id);
        let Slab { frame, kind, .. } = self.slabs[id as usize];
        Some((frame, self.order(kind)))
    }

    fn stack(&mut self, id: u32) {
        let cache = &mut self.caches[self.slabs[id as usize].kind as usize];
        let below = std::mem::replace(&mut cache.top, id);
        if below != NONE {
            self.slabs[below as usize].above = id;
        }
        let slab = &mut self.slabs[id as usize];
        (slab.above, slab.below) = (NONE, below);
    }

    fn unstack(&mut self, id: u32) {
        let Slab { kind, above, below, .. } = self.slabs[id as usize];
        if above == NONE {
            self.caches[kind as usize].top = below;
        } else {
            self.slabs[above as usize].below = below;
        }
        if below != NONE {
            self.slabs[below as usize].above = above;
        }
    }

    /// Returns the number of pages that all slabs of a kind take.
    #[cfg(test)]
    pub(crate) fn pages(&self, kind: SlabKind) -> u64 {
        let of_kind = self.slabs.iter().filter(|slab| slab.kind == kind && slab.used > 0);
        of_kind.count() as u64 * self.order(kind).pages()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_hold_as_many_objects_as_those_of_6_1() {
        let slabs = Slabs::new([2, 0, 1, 2, 0, 0]);
        assert_eq!(slabs.caches.map(|cache| cache.objects), [16, 21, 14, 16, 20, 16]);
    }

    #[test]
    fn the_slab_that_got_room_last_gives_next_and_an_empty_one_goes() {
        let mut slabs = Slabs::new([2, 0, 0, 2, 0, 0]);
        let kind = SlabKind::RadixNode;
        let mut objects = Vec::new();
        for frame in [70, 80] {
            let slab = slabs.add(kind, frame);
            objects.push(slab);
            objects.extend((0..6).map(|_| slabs.take(kind).expect("seven fit")));
        }
        assert_eq!(slabs.take(kind), None);
        assert_eq!(slabs.give_back(objects[7]), None);
        assert_eq!(slabs.give_back(objects[0]), None);
        assert_eq!(slabs.take(kind), Some(objects[0]));
        let freed: Vec<_> = objects[..7].iter().filter_map(|&slab| slabs.give_back(slab)).collect();
        assert_eq!(freed, [(70, Order::ZERO)]);
        assert_eq!(slabs.take(kind), Some(objects[7]));
        assert_eq!(slabs.pages(kind), 1);
    }

    #[test]
    fn slabs_of_one_object_come_and_go() {
        let mut slabs = Slabs::new([0; 6]);
        slabs.caches[SlabKind::Inode as usize].objects = 1;
        let slab = slabs.add(SlabKind::Inode, 5);
        assert_eq!(slabs.take(SlabKind::Inode), None);
        assert_eq!(slabs.give_back(slab), Some((5, Order::ZERO)));
    }
}
