//! Units: types that say what a number counts. All shifts between units are in this file.

use core::fmt;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// Returns the number without its unit.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

unit! {
    /// A virtual page number: a virtual address divided by the page size.
    Vpn
}
unit! {
    /// A page frame number: a physical address divided by the page size.
    Pfn
}
unit! {
    /// A count of pages, as a type of its own.
    PageCount
}
unit! {
    /// A duration or an instant of the caller's clock, in nanoseconds.
    Nanos
}

/// The size of a page, a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    shift: u8,
}

impl PageSize {
    /// 4 KiB, the base page of x86-64 and most of arm64.
    pub const KIB_4: PageSize = PageSize { shift: 12 };

    /// Returns the size of a page of `bytes` bytes; `None` unless that is a power of two.
    #[must_use]
    pub const fn new(bytes: u64) -> Option<PageSize> {
        if bytes.is_power_of_two() {
            Some(PageSize { shift: bytes.trailing_zeros() as u8 })
        } else {
            None
        }
    }

    /// Returns the number of bytes in one page.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        1 << self.shift
    }

    /// Returns the page that holds `address`.
    #[must_use]
    pub const fn page_of(self, address: u64) -> Vpn {
        Vpn(address >> self.shift)
    }

    /// Returns the number of pages needed to hold `bytes`, rounded up.
    #[must_use]
    pub const fn pages_for(self, bytes: u64) -> PageCount {
        PageCount((bytes >> self.shift) + if bytes & (self.bytes() - 1) == 0 { 0 } else { 1 })
    }

    /// Returns the number of bytes in `pages`; `None` if they do not fit into 64 bits.
    #[must_use]
    pub const fn bytes_in(self, pages: PageCount) -> Option<u64> {
        pages.0.checked_mul(self.bytes())
    }

    /// Returns the first address of page `vpn`; `None` if it does not fit into 64 bits.
    #[must_use]
    pub const fn address_of(self, vpn: Vpn) -> Option<u64> {
        vpn.0.checked_mul(self.bytes())
    }
}

/// The size of a block of pages, as a power of two: order 0 is one page, order 9 a pageblock of 512.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order(u8);

impl Order {
    /// The smallest order: one page.
    pub const ZERO: Order = Order(0);
    /// A pageblock: the unit whose pages are meant to be of one migratetype, and the size of a transparent huge page
    /// on x86-64.
    pub const PAGEBLOCK: Order = Order(9);
    /// The largest order: 1024 pages.
    pub const MAX: Order = Order(10);
    /// Linux's `PAGE_ALLOC_COSTLY_ORDER`: larger orders are not retried for ever.
    pub const COSTLY: Order = Order(3);
    pub const COUNT: usize = Order::MAX.0 as usize + 1;

    /// Returns the order with this number; `None` above [`MAX`](Self::MAX).
    #[must_use]
    pub const fn new(order: u8) -> Option<Order> {
        if order <= Order::MAX.0 { Some(Order(order)) } else { None }
    }

    /// Returns the order as a number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Returns the order as an index into a table with a row per order.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the number of pages in a block of this order.
    #[must_use]
    pub const fn pages(self) -> u64 {
        1 << self.0
    }

    /// Returns the next larger order; `None` after [`MAX`](Self::MAX).
    #[must_use]
    pub const fn larger(self) -> Option<Order> {
        Order::new(self.0 + 1)
    }

    /// Returns the next smaller order; `None` below [`ZERO`](Self::ZERO).
    #[must_use]
    pub const fn smaller(self) -> Option<Order> {
        if self.0 == 0 { None } else { Some(Order(self.0 - 1)) }
    }

    /// Returns the orders from this one up to the largest.
    pub fn and_larger(self) -> impl DoubleEndedIterator<Item = Order> {
        (self.0..=Order::MAX.0).map(Order)
    }

    /// Returns all orders, smallest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Order> {
        Order::ZERO.and_larger()
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
