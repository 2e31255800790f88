//! What a number counts. The only shifts between units stand here.

use core::fmt;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// The bare number.
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
    /// A number of pages.
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

    /// A page of `bytes` bytes; `None` unless that is a power of two.
    #[must_use]
    pub const fn new(bytes: u64) -> Option<PageSize> {
        if bytes.is_power_of_two() {
            Some(PageSize { shift: bytes.trailing_zeros() as u8 })
        } else {
            None
        }
    }

    /// Bytes in one page.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        1 << self.shift
    }

    /// The page that holds `address`.
    #[must_use]
    pub const fn page_of(self, address: u64) -> Vpn {
        Vpn(address >> self.shift)
    }

    /// Pages needed to hold `bytes`, rounded up.
    #[must_use]
    pub const fn pages_for(self, bytes: u64) -> PageCount {
        PageCount((bytes >> self.shift) + if bytes & (self.bytes() - 1) == 0 { 0 } else { 1 })
    }

    /// Bytes in `pages`; `None` if they do not fit into 64 bits.
    #[must_use]
    pub const fn bytes_in(self, pages: PageCount) -> Option<u64> {
        pages.0.checked_mul(self.bytes())
    }

    /// The first address of page `vpn`; `None` if it does not fit into 64 bits.
    #[must_use]
    pub const fn address_of(self, vpn: Vpn) -> Option<u64> {
        vpn.0.checked_mul(self.bytes())
    }
}
