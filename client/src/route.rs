//! Which way a read goes: the costs of the routes, the choice between them, and whether a page is worth keeping.
//!
//! Cores without IO, clock or chance of their own. [`crate::shared`] asks them and tells them what came of it.

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
pub use order::{CLASSES, Choice, Orders, Purpose, RouteOrder, SizeClass};
pub use policy::{Explanation, Policy, Record};
pub use reuse::{PageName, Reuse};
