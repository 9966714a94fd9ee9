//! The agent of a machine: it serves the machine's host to whoever asks, by messages.

pub mod client;
pub mod frames;
pub mod held;
pub mod protocol;
pub mod resume;
pub mod serve;
pub mod thread;

#[cfg(test)]
mod tests;
