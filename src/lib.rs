//! Plans, runs and judges performance test matrices.
//! `docs/architecture.md` shows how the layers stand to each other.

pub mod cli;
pub mod config;
pub mod edge;
pub mod judge;
pub mod plan;
pub mod report;
pub mod run;
pub mod words;
