//! Owns the words that every layer uses: diagnostics, units, keys, patterns, samples.
//! Knows no file, process, clock or database.

pub mod diag;
pub mod input;
pub mod key;
pub mod pattern;
pub mod sample;
pub mod units;
