//! The ways to an agent that is another process.

pub mod pipe;
