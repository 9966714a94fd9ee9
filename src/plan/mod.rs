//! Owns the way from declared values to cells, steps and what is to be done. Pure.
//! Knows no file, process, clock or database.

pub mod cell;
pub mod dag;
pub mod explain;
pub mod key;
pub mod only;
pub mod order;
pub mod pairwise;
pub mod projection;
pub mod resolve;
pub mod scope;
pub mod steps;
pub mod why;
