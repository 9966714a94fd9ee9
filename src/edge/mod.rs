//! What is stored and read beside the machines: git repositories, the database, artifacts, outputs of programs.

pub mod artifact;
pub mod csv;
pub mod git;
pub mod parse;
pub mod store;
