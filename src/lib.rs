//! Plans, runs and judges performance test matrices.
//! `docs/architecture.md` shows how the layers stand to each other.

pub mod base;
pub mod cli;
pub mod config;
pub mod edge;
pub mod judge;
pub mod machine;
pub mod plan;
pub mod report;
pub mod resolve;
pub mod run;
pub mod verdicts;
