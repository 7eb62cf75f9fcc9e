//! The choice of a route: what each route costs, which one a read takes, and whether to keep a page.
//!
//! These modules have no IO, clock or randomness of their own. [`crate::shared`] asks them and reports the results to
//! them.

mod asked;
mod config;
mod cost;
mod growth;
mod keep;
mod order;
mod policy;
mod refusals;
mod reuse;
mod trial;

pub use asked::{AskedRead, News, ReadOutcome};
pub use config::Config;
#[cfg(test)]
pub use keep::whole_chance;
pub use order::{CLASSES, Choice, Orders, Purpose, RouteOrder, SizeClass};
pub use policy::{Explanation, Policy, Record};
pub use reuse::{PageName, Reuse};
