//! The way from samples to verdicts. Pure functions; each names its formula and source.

pub mod changepoint;
pub mod compare;
pub mod confirm;
pub mod culprit;
pub mod history;
pub mod monitors;
pub mod noise;
pub mod permutation;
pub mod place;
pub mod power;
pub mod stats;
pub mod trend;
pub mod verdict;
