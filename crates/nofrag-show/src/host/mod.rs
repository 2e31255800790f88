//! Pages of what `nofrag-host` reports.

mod machine;
mod maps;
mod pages;
mod ranking;
mod vmalloc;

pub use machine::machine;
pub use maps::maps;
pub use pages::pages;
pub use ranking::ranking;
pub use vmalloc::vmalloc;

/// A whole number, in a sentence.
fn count(value: f64) -> String {
    crate::count(value).to_string()
}
