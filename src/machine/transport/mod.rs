//! The ways to an agent that is another process.

mod child;
pub mod pipe;
pub mod ssh;
