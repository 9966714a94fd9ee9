//! Owns what touches the world: git, hosts, tuning, the store, outputs of programs.
//! Does not know what is planned or why.

pub mod artifact;
pub mod counters;
pub mod csv;
pub mod environment;
pub mod git;
pub mod host;
pub mod parse;
pub mod quiet;
pub mod store;
pub mod tune;
