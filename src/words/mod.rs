//! Owns the words that every layer uses: diagnostics, units, keys, samples.
//! Knows no file, process, clock or database.

pub mod diag;
pub mod key;
pub mod sample;
pub mod units;
