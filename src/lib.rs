//! Plans, runs and judges performance test matrices.
//! `docs/architecture.md` shows how the layers stand to each other.

// Nothing from outside ends the program by a panic: a run may have set-ups to undo. Messages go through the writers of
// `cli/show.rs` and `run/progress.rs`, which show control characters and outlive a closed terminal.
#![cfg_attr(
    not(test),
    deny(
        clippy::expect_used,
        clippy::panic,
        clippy::print_stderr,
        clippy::print_stdout,
        clippy::todo,
        clippy::unimplemented,
        clippy::unreachable,
        clippy::unwrap_used
    )
)]

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
