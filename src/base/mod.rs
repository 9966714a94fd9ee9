//! What every layer uses: diagnostics, units, keys, patterns, samples. Pure.

pub mod diag;
pub mod input;
pub mod key;
pub mod pattern;
pub mod sample;
pub mod units;
