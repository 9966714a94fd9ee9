//! Everything of a machine: its files and processes, its tuning, what it is like, how busy it is.

pub mod agent;
pub mod connect;
pub mod counters;
pub mod environment;
pub mod host;
pub mod measure;
pub mod quiet;
pub mod setups;
pub mod transport;
pub mod tune;
