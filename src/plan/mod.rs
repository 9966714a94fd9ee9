//! The way from declared values to cells, steps and what is to be done. Pure: no file, process, clock or database.

pub mod cell;
pub mod commands;
pub mod dag;
pub mod explain;
pub mod key;
pub mod order;
pub mod pairwise;
pub mod programs;
pub mod projection;
pub mod scope;
pub mod selector;
pub mod steps;
pub mod why;
