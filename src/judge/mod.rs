//! Owns the way from samples to verdicts. Pure functions; each names its formula and source.
//! Knows no file, process, clock or database.

pub mod changepoint;
pub mod compare;
pub mod confirm;
pub mod history;
pub mod monitors;
pub mod stats;
pub mod table;
#[cfg(test)]
mod tests;
pub mod verdict;
