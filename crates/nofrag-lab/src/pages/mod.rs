//! Pages of the lab's results: runs of scenarios, replays, comparisons.

mod compare;
mod replay;
mod scenario;

#[cfg(all(test, not(packed)))]
mod tests;

pub use compare::compare;
pub use replay::replay;
pub use scenario::{ScenarioResult, run};
