//! Owns the way from declared values to cells, steps and what is to be done. Pure.
//! Knows no file, process, clock or database.

pub mod pairwise;
