//! What every layer uses: diagnostics, units, keys, patterns, random numbers, samples. Pure.

pub mod diag;
pub mod file_name;
pub mod input;
pub mod key;
pub mod pattern;
pub mod printable;
pub mod random;
pub mod sample;
pub mod secret;
pub mod unit;
pub mod units;
