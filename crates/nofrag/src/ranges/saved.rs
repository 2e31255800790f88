//! Spaces that are saved and restored, by the feature `serde`.
//!
//! A space is saved as its configuration, the ranges that belong to it, and those of them that are free, both
//! ascending. What is allocated is the rest. Counts and learned alignments begin anew where it is restored.
//!
//! What is read is not trusted: it goes through the operations that take input from anybody, so an overlap, a free
//! range outside the space or a lack of memory is an error of the reader.

use core::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{AlignClasses, Config, RangeAllocator, Span};
use crate::lists::put;
use alloc::vec::Vec;

/// Start and end of a span.
#[derive(Serialize, Deserialize)]
struct Bounds(u64, u64);

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Bounds(self.start(), self.end()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let Bounds(start, end) = Bounds::deserialize(deserializer)?;
        Span::new(start, end).map_err(D::Error::custom)
    }
}

impl Serialize for AlignClasses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.exponents())
    }
}

impl<'de> Deserialize<'de> for AlignClasses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AlignClasses, D::Error> {
        let List(exponents) = List::<u8>::deserialize(deserializer)?;
        AlignClasses::new(&exponents)
            .ok_or_else(|| D::Error::custom("at most four ascending exponents, from 1 to 30"))
    }
}

/// A list whose lack of memory is an error, whatever length its source announces.
struct List<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<List<T>, D::Error> {
        struct Items<T>(core::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = List<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<List<T>, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.try_reserve(1).map_err(A::Error::custom)?;
                    put(&mut list, item);
                }
                Ok(List(list))
            }
        }

        deserializer.deserialize_seq(Items(core::marker::PhantomData))
    }
}

/// Spans that are written one by one.
struct Each<I>(I);

impl<I: Iterator<Item = Span> + Clone> Serialize for Each<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}

impl Serialize for RangeAllocator {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut saved = serializer.serialize_struct("RangeAllocator", 3)?;
        saved.serialize_field("config", self.config())?;
        saved.serialize_field("space", &Each(self.spans()))?;
        saved.serialize_field("free", &Each(self.iter_free()))?;
        saved.end()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    config: Config,
    space: List<Span>,
    free: List<Span>,
}

impl<'de> Deserialize<'de> for RangeAllocator {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RangeAllocator, D::Error> {
        let Saved { config, space, free } = Saved::deserialize(deserializer)?;
        let mut allocator = RangeAllocator::new(config);
        for span in space.0 {
            allocator.add_span(span).map_err(D::Error::custom)?;
            allocator.alloc_at(span).map_err(D::Error::custom)?;
        }
        for span in free.0 {
            allocator.free(span).map_err(D::Error::custom)?;
        }
        Ok(allocator.uncounted())
    }
}
